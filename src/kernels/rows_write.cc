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

using HalfTag = hn::Rebind<hwy::float16_t, FloatTag>;
using HalfBitsTag = hn::Rebind<std::uint16_t, FloatTag>;
using QuantTag = hn::Rebind<std::int8_t, FloatTag>;

/// Scales, as stored, of blocks by their largest absolute numbers.
HWY_INLINE hn::Vec<HalfBitsTag> scales_of(FloatVec largest) {
  const FloatTag d;
  const FloatVec scale = hn::Min(hn::Div(largest, hn::Set(d, 127.0f)), hn::Set(d, 65504.0f));
  return hn::DemoteTo(HalfBitsTag(), stored_bits(F16(), scale));
}

/// The larger of each lane; NaN in `number` is none.
HWY_INLINE FloatVec larger(FloatVec so_far, FloatVec number) {
  return hn::IfThenElse(hn::Gt(number, so_far), number, so_far);
}

/// numbers / scale, rounded to integers that a byte holds; NaN becomes 127.
HWY_INLINE FloatVec quantised(FloatVec numbers, FloatVec scale) {
  const FloatTag d;
  const FloatVec quotient = hn::Div(numbers, scale), limit = hn::Set(d, 127.0f);
  const FloatVec held = hn::Max(hn::IfThenElse(hn::Lt(quotient, limit), quotient, limit), hn::Neg(limit));
  return hn::IfThenElseZero(hn::Gt(scale, hn::Zero(d)), hn::Round(held));
}

/// out[count] = the first lanes of `values`.
template <class D>
HWY_INLINE void store_first(D d, hn::Vec<D> values, std::size_t count, hn::TFromD<D>* out) {
  if (count == kLanes) return hn::StoreU(values, d, out);
  HWY_ALIGN hn::TFromD<D> lanes[kLanes];
  hn::Store(values, d, lanes);
  std::copy_n(lanes, count, out);
}

HWY_INLINE hn::Vec<QuantTag> bytes_of(FloatVec quants) {
  return hn::DemoteTo(QuantTag(), hn::ConvertTo(IntTag(), quants));
}

/// |key|^2 of a block: exact, so that it does not matter how its squares were summed.
double square_of_block(float scale, float squares_of_quants) {
  return static_cast<double>(scale) * scale * squares_of_quants;
}

/// Quantises 32 numbers; returns the scale as stored.
HWY_INLINE std::uint16_t quantise_block(const float* in, std::int8_t* quants) {
  const FloatTag d;
  FloatVec largest = hn::Zero(d);
  for (std::size_t i = 0; i < kChunkDims; i += kLanes)
    largest = larger(largest, hn::Abs(hn::LoadU(d, in + i)));
  const auto stored = scales_of(hn::MaxOfLanes(d, largest));
  const FloatVec scale = hn::PromoteTo(d, hn::BitCast(HalfTag(), stored));
  for (std::size_t i = 0; i < kChunkDims; i += kLanes)
    hn::StoreU(bytes_of(quantised(hn::LoadU(d, in + i), scale)), QuantTag(), quants + i);
  return hn::GetLane(stored);
}

void write_few_quantised_keys(const Segment& s, const QuantisedPage& page, Squares& squares) {
  for (int i = 0; i < s.count; ++i) {
    const float* key = s.new_keys + static_cast<std::size_t>(i) * s.key_stride;
    for (int block = 0; block < s.layout.head_dim / kChunkDims; ++block) {
      std::int8_t quants[kChunkDims];
      const std::uint16_t stored = quantise_block(key + block * kChunkDims, quants);
      page.key_scales[block * kPageRows + s.row + i] = stored;
      std::int8_t* out = page.keys + block * kChunkDims * kPageRows + s.row + i;
      int sum = 0;
      for (int dim = 0; dim < kChunkDims; ++dim) {
        out[dim * kPageRows] = quants[dim];
        sum += quants[dim] * quants[dim];
      }
      squares[static_cast<std::size_t>(i)] += square_of_block(from_f16(stored), static_cast<float>(sum));
    }
  }
}

/// One block of the first `count` of a vector of keys: chunk[32, 64], transposed, to quants[32, 64] and
/// scales.
HWY_INLINE void quantise_keys(const float* chunk, std::size_t count, std::int8_t* quants,
                              std::uint16_t* scales, double* HWY_RESTRICT squares) {
  const FloatTag d;
  FloatVec largest = hn::Zero(d), sums = hn::Zero(d);
  for (std::size_t dim = 0; dim < kChunkDims; ++dim)
    largest = larger(largest, hn::Abs(hn::Load(d, chunk + dim * kPageRows)));
  const auto stored = scales_of(largest);
  const FloatVec scale = hn::PromoteTo(d, hn::BitCast(HalfTag(), stored));
  store_first(HalfBitsTag(), stored, count, scales);
  for (std::size_t dim = 0; dim < kChunkDims; ++dim) {
    const FloatVec numbers = quantised(hn::Load(d, chunk + dim * kPageRows), scale);
    sums = hn::MulAdd(numbers, numbers, sums);
    store_first(QuantTag(), bytes_of(numbers), count, quants + dim * kPageRows);
  }
  HWY_ALIGN float scale_lanes[kLanes], sum_lanes[kLanes];
  hn::Store(scale, d, scale_lanes);
  hn::Store(sums, d, sum_lanes);
  for (std::size_t i = 0; i < count; ++i) squares[i] += square_of_block(scale_lanes[i], sum_lanes[i]);
}

void write_quantised_keys(const Segment& s, const QuantisedPage& page, Squares& squares) {
  if (s.count < static_cast<int>(kLanes)) return write_few_quantised_keys(s, page, squares);
  HWY_ALIGN float chunk[kChunkDims * kPageRows];
  const auto count = static_cast<std::size_t>(s.count);
  for (int block = 0; block < s.layout.head_dim / kChunkDims; ++block) {
    transpose_keys(s, block * kChunkDims, (block + 1) * kChunkDims, chunk);
    std::int8_t* quants = page.keys + block * kChunkDims * kPageRows + s.row;
    std::uint16_t* scales = page.key_scales + block * kPageRows + s.row;
    for (std::size_t i = 0; i < count; i += kLanes)
      quantise_keys(chunk + i, std::min(kLanes, count - i), quants + i, scales + i, squares.data() + i);
  }
}

void write_quantised_segment(const Segment& s, Squares& squares) {
  const QuantisedPage page(s.layout, s.keys, s.values);
  write_quantised_keys(s, page, squares);
  const int head_dim = s.layout.head_dim, blocks = head_dim / kChunkDims;
  for (int i = 0; i < s.count; ++i) {
    const int row = s.row + i;
    const float* value = s.new_values + static_cast<std::size_t>(i) * s.value_stride;
    for (int block = 0; block < blocks; ++block) {
      page.value_scales[row * blocks + block] =
          quantise_block(value + block * kChunkDims, page.values + row * head_dim + block * kChunkDims);
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
      return write_quantised_keys(s, QuantisedPage(s.layout, s.keys, s.values), squares);
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
