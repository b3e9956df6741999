#include "kernels/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rows_write.cc"
#include <algorithm>
#include <array>
#include <cmath>
#include <type_traits>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/convert-inl.h"
#include "kernels/rows.h"
#include "kernels/stored.h"

HWY_BEFORE_NAMESPACE();
namespace keynest {
namespace HWY_NAMESPACE {
namespace {

constexpr int kChunkDims = 32;  // dimensions handled at a time; also the block of kQ8_0

/// New entries of one page: `count` rows from `row` on.
struct Segment {
  const PageLayout& layout;
  std::byte* keys;
  std::byte* values;
  int row, count;
  const float* new_keys;
  std::size_t key_stride;
  const float* new_values;
  std::size_t value_stride;
};

using Squares = std::array<double, kPageRows>;  // |key|^2 of the rows of a segment

/// Dimensions [first, last) of the segment's keys, transposed: out[last - first, 64].
void transpose_keys(const Segment& s, int first, int last, float* out) {
  for (int i = 0; i < s.count; ++i) {
    const float* key = s.new_keys + static_cast<std::size_t>(i) * s.key_stride;
    for (int dim = first; dim < last; ++dim) out[(dim - first) * kPageRows + i] = key[dim];
  }
}

using IntTag = hn::RebindToSigned<FloatTag>;
using IntVec = hn::Vec<IntTag>;

/// to_f16, lane by lane and to the bit. Magnitudes are positive as integers, so they compare as such.
HWY_INLINE IntVec stored_bits(F16, FloatVec values) {
  const IntTag d;
  const hn::RebindToUnsigned<FloatTag> u;
  const auto bits = hn::BitCast(u, values);
  const IntVec sign = hn::BitCast(d, hn::And(hn::ShiftRight<16>(bits), hn::Set(u, 0x8000u)));
  const IntVec magnitude = hn::BitCast(d, hn::And(bits, hn::Set(u, 0x7fffffffu)));
  const IntVec odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(d, 1));
  const IntVec normal = hn::ShiftRight<13>(hn::Add(hn::Sub(magnitude, hn::Set(d, (112 << 23) - 0xfff)), odd));
  const FloatVec shifted = hn::Add(hn::BitCast(FloatTag(), magnitude), hn::Set(FloatTag(), 0.5f));
  const IntVec subnormal = hn::Sub(hn::BitCast(d, shifted), hn::Set(d, 0x3f000000));
  const IntVec not_finite =
      hn::IfThenElse(hn::Gt(magnitude, hn::Set(d, 0x7f800000)), hn::Set(d, 0x7e00), hn::Set(d, 0x7c00));
  const IntVec finite = hn::IfThenElse(hn::Lt(magnitude, hn::Set(d, 113 << 23)), subnormal, normal);
  return hn::Or(sign, hn::IfThenElse(hn::Gt(magnitude, hn::Set(d, 0x477fefff)), not_finite, finite));
}

/// to_bf16, likewise.
HWY_INLINE IntVec stored_bits(BF16, FloatVec values) {
  const IntTag d;
  const hn::RebindToUnsigned<FloatTag> u;
  const auto bits = hn::BitCast(u, values);
  const IntVec magnitude = hn::BitCast(d, hn::And(bits, hn::Set(u, 0x7fffffffu)));
  const auto high = hn::ShiftRight<16>(bits);
  const auto odd = hn::And(high, hn::Set(u, 1u));
  const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(hn::Set(u, 0x7fffu), odd)));
  const auto is_nan = hn::Gt(magnitude, hn::Set(d, 0x7f800000));
  return hn::IfThenElse(is_nan, hn::BitCast(d, hn::Or(high, hn::Set(u, 0x40u))), hn::BitCast(d, rounded));
}

/// out[count] = in[count] as stored.
template <class Type>
void store_numbers(const float* HWY_RESTRICT in, int count, typename Type::Stored* HWY_RESTRICT out) {
  constexpr int kStep = static_cast<int>(kLanes);
  int i = 0;
  if constexpr (!std::is_same_v<Type, F32>) {
    const hn::Rebind<std::uint16_t, FloatTag> halves;
    for (; i + kStep <= count; i += kStep) {
      hn::StoreU(hn::DemoteTo(halves, stored_bits(Type(), hn::LoadU(FloatTag(), in + i))), halves, out + i);
    }
  }
  for (; i < count; ++i) out[i] = Type::store(in[i]);
}

HWY_INLINE const float* lanes_of(F32, const float* in) { return in; }
HWY_INLINE const hwy::float16_t* lanes_of(F16, const std::uint16_t* in) {
  return reinterpret_cast<const hwy::float16_t*>(in);
}
HWY_INLINE const hwy::bfloat16_t* lanes_of(BF16, const std::uint16_t* in) {
  return reinterpret_cast<const hwy::bfloat16_t*>(in);
}

/// squares[count] += the squares of stored numbers in[count].
template <class Type>
void add_squares(const typename Type::Stored* in, int count, double* HWY_RESTRICT squares) {
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, decltype(d)> f;
  constexpr int kStep = static_cast<int>(kLanes);
  HWY_ALIGN float lanes[kLanes];
  int i = 0;
  for (; i + kStep <= count; i += kStep) {
    hn::Store(load_stored(lanes_of(Type(), in + i)), FloatTag(), lanes);
    for (std::size_t j = 0; j < kLanes; j += hn::Lanes(d)) {
      const auto value = hn::PromoteTo(d, hn::Load(f, lanes + j));
      double* sums = squares + static_cast<std::size_t>(i) + j;
      hn::StoreU(hn::MulAdd(value, value, hn::LoadU(d, sums)), d, sums);
    }
  }
  for (; i < count; ++i) squares[i] += std::pow(static_cast<double>(Type::load(in[i])), 2);
}

/// Keys that are too few to fill vectors of rows: converted one by one, then spread.
template <class Type>
void write_few_keys(const Segment& s, Squares& squares) {
  typename Type::Stored stored[kChunkDims];
  const int head_dim = s.layout.head_dim;
  for (int i = 0; i < s.count; ++i) {
    const float* key = s.new_keys + static_cast<std::size_t>(i) * s.key_stride;
    auto* out = reinterpret_cast<typename Type::Stored*>(s.keys) + s.row + i;
    double square = 0;
    for (int first = 0; first < head_dim; first += kChunkDims) {
      const int dims = std::min(kChunkDims, head_dim - first);
      store_numbers<Type>(key + first, dims, stored);
      for (int dim = 0; dim < dims; ++dim, out += kPageRows) {
        *out = stored[dim];
        const double number = Type::load(stored[dim]);
        square += number * number;
      }
    }
    squares[static_cast<std::size_t>(i)] = square;
  }
}

template <class Type>
void write_keys(const Segment& s, Squares& squares) {
  if (s.count < static_cast<int>(kLanes)) return write_few_keys<Type>(s, squares);
  HWY_ALIGN float chunk[kChunkDims * kPageRows];
  const int head_dim = s.layout.head_dim;
  auto* keys = reinterpret_cast<typename Type::Stored*>(s.keys) + s.row;
  for (int first = 0; first < head_dim; first += kChunkDims) {
    const int last = std::min(first + kChunkDims, head_dim);
    transpose_keys(s, first, last, chunk);
    for (int dim = 0; dim < last - first; ++dim, keys += kPageRows) {
      store_numbers<Type>(chunk + dim * kPageRows, s.count, keys);
      add_squares<Type>(keys, s.count, squares.data());
    }
  }
}

template <class Type>
void write_segment(const Segment& s, Squares& squares) {
  write_keys<Type>(s, squares);
  const int head_dim = s.layout.head_dim;
  auto* values =
      reinterpret_cast<typename Type::Stored*>(s.values) + static_cast<std::size_t>(s.row) * head_dim;
  for (int i = 0; i < s.count; ++i) {
    store_numbers<Type>(s.new_values + static_cast<std::size_t>(i) * s.value_stride, head_dim,
                        values + i * head_dim);
  }
}

/// Quantises 32 numbers; returns the scale as stored.
std::uint16_t quantise_block(const float* in, std::int8_t* quants) {
  float largest = 0;
  for (int i = 0; i < 32; ++i) largest = std::max(largest, std::fabs(in[i]));
  const std::uint16_t stored = to_f16(std::min(largest / 127.0f, 65504.0f));
  const float scale = from_f16(stored);
  for (int i = 0; i < 32; ++i) {
    const float quotient = scale > 0 ? std::nearbyint(in[i] / scale) : 0.0f;
    quants[i] = static_cast<std::int8_t>(std::max(-127.0f, std::min(127.0f, quotient)));  // NaN becomes 127
  }
  return stored;
}

void write_quantised_key(const QuantisedPage& page, int row, const float* key, int head_dim, double& square) {
  for (int block = 0; block < head_dim / 32; ++block) {
    std::int8_t quants[32];
    const std::uint16_t stored = quantise_block(key + block * 32, quants);
    page.key_scales[block * kPageRows + row] = stored;
    const double scale = from_f16(stored);
    for (int i = 0; i < 32; ++i) {
      page.keys[(block * 32 + i) * kPageRows + row] = quants[i];
      square += scale * scale * quants[i] * quants[i];
    }
  }
}

void write_quantised_segment(const Segment& s, Squares& squares) {
  const QuantisedPage page(s.layout, s.keys, s.values);
  const int head_dim = s.layout.head_dim;
  for (int i = 0; i < s.count; ++i) {
    const auto entry = static_cast<std::size_t>(i);
    const int row = s.row + i;
    write_quantised_key(page, row, s.new_keys + entry * s.key_stride, head_dim, squares[entry]);
    const float* value = s.new_values + entry * s.value_stride;
    for (int block = 0; block < head_dim / 32; ++block) {
      page.value_scales[row * (head_dim / 32) + block] =
          quantise_block(value + block * 32, page.values + row * head_dim + block * 32);
    }
  }
}

void write_segment(const Segment& s, Squares& squares) {
  switch (s.layout.type) {
    case KvType::kF32:
      return write_segment<F32>(s, squares);
    case KvType::kF16:
      return write_segment<F16>(s, squares);
    case KvType::kBF16:
      return write_segment<BF16>(s, squares);
    case KvType::kQ8_0:
      return write_quantised_segment(s, squares);
  }
}

float inverse_norm(double square) { return static_cast<float>(1.0 / std::max(std::sqrt(square), 1e-12)); }

void write_one_key(const Segment& s, Squares& squares) {
  switch (s.layout.type) {
    case KvType::kF32:
      return write_keys<F32>(s, squares);
    case KvType::kF16:
      return write_keys<F16>(s, squares);
    case KvType::kBF16:
      return write_keys<BF16>(s, squares);
    case KvType::kQ8_0:
      return write_quantised_key(QuantisedPage(s.layout, s.keys, s.values), s.row, s.new_keys,
                                 s.layout.head_dim, squares[0]);
  }
}

void write_key(const HeadRows& head, Row at, const float* key) {
  const int page = to_int(at) / kPageRows, row = to_int(at) % kPageRows;
  Squares squares{};
  write_one_key({*head.layout, head.keys(page), head.values(page), row, 1, key, 0, nullptr, 0}, squares);
  head.inv_norms(page)[row] = inverse_norm(squares[0]);
}

void write_rows(const HeadRows& head, Row first, int count, const float* keys, std::size_t key_stride,
                const float* values, std::size_t value_stride, const Position* positions) {
  int done = 0;
  while (done < count) {
    const int at = to_int(first) + done;
    const int page = at / kPageRows, row = at % kPageRows;
    const int part = std::min(count - done, kPageRows - row);
    const auto entry = static_cast<std::size_t>(done);
    Squares squares{};
    write_segment({*head.layout, head.keys(page), head.values(page), row, part, keys + entry * key_stride,
                   key_stride, values + entry * value_stride, value_stride},
                  squares);
    std::copy(positions + done, positions + done + part, head.positions(page) + row);
    for (int i = 0; i < part; ++i) {
      head.inv_norms(page)[row + i] = inverse_norm(squares[static_cast<std::size_t>(i)]);
    }
    for (int s = 0; s < head.layout->state_floats; ++s) std::fill_n(head.state(page, s) + row, part, 0.0f);
    done += part;
  }
}

}  // namespace
// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace keynest
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace keynest {
namespace {

HWY_EXPORT(write_rows);
HWY_EXPORT(write_key);

}  // namespace

void write_rows(const HeadRows& head, Row first, int count, const float* keys, std::size_t key_stride,
                const float* values, std::size_t value_stride, const Position* positions) {
  HWY_DYNAMIC_DISPATCH(write_rows)(head, first, count, keys, key_stride, values, value_stride, positions);
}

void write_key(const HeadRows& head, Row row, const float* key) {
  HWY_DYNAMIC_DISPATCH(write_key)(head, row, key);
}

}  // namespace keynest
#endif  // HWY_ONCE
