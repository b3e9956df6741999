#include "kernels/key_sums.h"

#include "kernels/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/key_sums.cc"
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/key_chunks-inl.h"
#include "kernels/stored.h"

HWY_BEFORE_NAMESPACE();
namespace keynest {
namespace HWY_NAMESPACE {
namespace {

/// Pages summed in float before the sum goes on in double.
inline constexpr int kChunkPages = kLanes >= 8 ? 4 : 1;

/// lanes[dims, kLanes] += sums over the first `count` rows of a chunk of keys [dims, 64]. What lies beyond
/// the count of a page that is not full may be anything.
template <bool kFull, class Chunk>
HWY_INLINE void add_rows(const Chunk& chunk, int dims, int count, float* lanes) {
  const FloatTag d;
  for (int dim = 0; dim < dims; ++dim, lanes += kLanes) {
    const std::size_t at = static_cast<std::size_t>(dim) * kPageRows;
    chunk.prefetch(at, kPageRows);
    FloatVec sum = hn::Zero(d);
    HWY_UNROLL(4)
    for (std::size_t row = 0; row < kPageRows; row += kLanes) {
      FloatVec key = chunk.load(at + row);
      if constexpr (!kFull) {
        const int left = std::max(count - static_cast<int>(row), 0);
        key = hn::IfThenElseZero(hn::FirstN(d, static_cast<std::size_t>(left)), key);
      }
      sum = hn::Add(key, sum);
    }
    hn::Store(hn::Add(sum, hn::Load(d, lanes)), d, lanes);
  }
}

/// The same for dimensions [first, last) of pages [page, end).
HWY_INLINE void add_pages(const HeadRows& head, int page, int end, int first, int last, float* lanes) {
  HWY_ALIGN float buffer[kChunkDims * kPageRows];
  for (; page < end; ++page) {
    const int next = std::min(page + 1, head.page_count() - 1), count = head.rows_in_page(page);
    read_keys(head, page, next, first, last, buffer, [&](const auto& chunk) HWY_ATTR {
      if (count == kPageRows) return add_rows<true>(chunk, last - first, count, lanes);
      add_rows<false>(chunk, last - first, count, lanes);
    });
  }
}

void sum_keys(const HeadRows& head, double* out) {
  HWY_ALIGN float lanes[kChunkDims * kLanes];
  HWY_ALIGN double sums[kChunkDims * kLanes];
  const int head_dim = head.layout->head_dim, pages = head.page_count();
  for (int first = 0; first < head_dim; first += kChunkDims) {
    const int last = std::min(first + kChunkDims, head_dim);
    const std::size_t used = static_cast<std::size_t>(last - first) * kLanes;
    std::fill(sums, sums + used, 0.0);
    for (int page = 0; page < pages; page += kChunkPages) {
      std::fill(lanes, lanes + used, 0.0f);
      add_pages(head, page, std::min(page + kChunkPages, pages), first, last, lanes);
      for (std::size_t i = 0; i < used; i += kLanes)
        add_to_doubles(hn::Load(FloatTag(), lanes + i), sums + i);
    }
    for (int dim = first; dim < last; ++dim) {
      const double* of_dim = sums + static_cast<std::size_t>(dim - first) * kLanes;
      out[dim] = std::accumulate(of_dim, of_dim + kLanes, 0.0);
    }
  }
}

using IntTag = hn::RebindToSigned<FloatTag>;
using IntVec = hn::Vec<IntTag>;
using LongTag = hn::RebindToSigned<DoubleTag>;

/// Unit keys are summed as integers, in units of 2^-28.
inline constexpr float kUnits = 0x1p28f;
inline constexpr double kUnit = 0x1p-28;
/// Numbers of up to 2^28 that 32 bits hold the sum of.
inline constexpr std::size_t kAddends = 4;

/// The nearest integers, ties to even: numbers here are far from those that int32 does not hold.
template <class V>
HWY_INLINE auto nearest(V v) {
#if HWY_TARGET == HWY_SCALAR
  const float rounded = std::isfinite(v.raw) ? std::nearbyint(v.raw) : 0;
  return hn::Vec1<std::int32_t>(static_cast<std::int32_t>(rounded));
#elif HWY_TARGET <= HWY_AVX3
  if constexpr (sizeof(v) == 64) return hn::Vec512<std::int32_t>{_mm512_cvtps_epi32(v.raw)};
  return hn::NearestInt(v);
#else
  return hn::NearestInt(v);
#endif
}

/// Numbers of keys as sum_unit_keys takes them. `scale`: inverse norms times kUnits. The product is rounded
/// to float before it becomes an integer: no machine can fuse the two.
template <class V>
HWY_INLINE auto unit_numbers(V key, V scale) {
  return nearest(hn::Mul(key, scale));
}

/// lanes[kDoubleLanes] += the halves of v.
HWY_INLINE void add_to_longs(IntVec v, std::int64_t* lanes) {
  const LongTag d;
#if HWY_TARGET == HWY_SCALAR
  hn::Store(hn::Add(hn::Load(d, lanes), hn::PromoteTo(d, v)), d, lanes);
#else
  const hn::Rebind<std::int32_t, LongTag> half;
  const auto sum =
      hn::Add(hn::PromoteTo(d, hn::LowerHalf(half, v)), hn::PromoteTo(d, hn::UpperHalf(half, v)));
  hn::Store(hn::Add(hn::Load(d, lanes), sum), d, lanes);
#endif
}

HWY_INLINE auto first_lanes(int count) {
  return hn::FirstN(FloatTag(), static_cast<std::size_t>(std::max(count, 0)));
}

/// Inverse norms of a page's rows times kUnits: 0 for those before the first that is asked for and beyond the
/// last.
struct UnitScales {
  HWY_ALIGN float of[kPageRows];
  int count;
  bool finite;  // keys that hold NaN or infinity have no other inverse norm than NaN or 0

  HWY_INLINE void load(const HeadRows& head, int page, int first) {
    const FloatTag d;
    count = head.rows_in_page(page);
    auto bad = hn::Lt(hn::Zero(d), hn::Zero(d));
    for (int row = 0; row < kPageRows; row += static_cast<int>(kLanes)) {
      const auto wanted = hn::AndNot(first_lanes(first - row), first_lanes(count - row));
      const FloatVec inv_norm = hn::Load(d, head.inv_norms(page) + row);
      bad = hn::Or(bad, hn::AndNot(hn::Gt(inv_norm, hn::Zero(d)), wanted));
      hn::Store(hn::IfThenElseZero(wanted, hn::Mul(inv_norm, hn::Set(d, kUnits))), d, of + row);
    }
    finite = hn::AllFalse(d, bad);
  }
};

/// lanes[dims, kDoubleLanes] += sums over the rows of a chunk of keys [dims, 64] over their norms.
template <bool kFull, class Chunk>
HWY_INLINE void add_unit_rows(const Chunk& chunk, int dims, const UnitScales& scales, std::int64_t* lanes) {
  constexpr std::size_t kStep = std::min(kAddends * kLanes, static_cast<std::size_t>(kPageRows));
  for (int dim = 0; dim < dims; ++dim, lanes += kDoubleLanes) {
    const std::size_t at = static_cast<std::size_t>(dim) * kPageRows;
    chunk.prefetch(at, kPageRows);
    for (std::size_t row = 0; row < kPageRows; row += kStep) {
      IntVec sum = hn::Zero(IntTag());
      HWY_UNROLL(4)
      for (std::size_t i = row; i < row + kStep; i += kLanes) {
        FloatVec key = chunk.load(at + i);
        if constexpr (!kFull) {
          key = hn::IfThenElseZero(first_lanes(scales.count - static_cast<int>(i)), key);
        }
        sum = hn::Add(sum, unit_numbers(key, hn::Load(FloatTag(), scales.of + i)));
      }
      add_to_longs(sum, lanes);
    }
  }
}

void sum_unit_keys(const HeadRows& head, double* out) {
  HWY_ALIGN float buffer[kChunkDims * kPageRows];
  HWY_ALIGN std::int64_t lanes[kChunkDims * kDoubleLanes];
  const int head_dim = head.layout->head_dim, pages = head.page_count();
  const int first_page = head.summed_rows / kPageRows;
  UnitScales scales;
  bool finite = true;
  for (int first = 0; first < head_dim; first += kChunkDims) {
    const int last = std::min(first + kChunkDims, head_dim);
    std::fill(lanes, lanes + static_cast<std::size_t>(last - first) * kDoubleLanes, 0);
    for (int page = first_page; page < pages; ++page) {
      scales.load(head, page, page == first_page ? head.summed_rows % kPageRows : 0);
      finite &= scales.finite;
      read_keys(head, page, std::min(page + 1, pages - 1), first, last, buffer,
                [&](const auto& chunk) HWY_ATTR {
                  if (scales.count == kPageRows)
                    return add_unit_rows<true>(chunk, last - first, scales, lanes);
                  add_unit_rows<false>(chunk, last - first, scales, lanes);
                });
    }
    for (int dim = first; dim < last; ++dim) {
      const std::int64_t* of_dim = lanes + static_cast<std::size_t>(dim - first) * kDoubleLanes;
      const double before = head.summed_rows > 0 ? head.unit_sum[dim] : 0.0;
      const auto sum = std::accumulate(of_dim, of_dim + kDoubleLanes, std::int64_t{0});
      out[dim] = before + static_cast<double>(sum) * kUnit;
    }
  }
  if (!finite) std::fill(out, out + head_dim, std::numeric_limits<double>::quiet_NaN());
}

/// out[count] = every 64th number from `in` on.
template <class Stored>
HWY_INLINE void copy_column(const Stored* in, int count, Stored* out) {
  for (int i = 0; i < count; ++i) out[i] = in[i * kPageRows];
}

/// Dimensions [first, last) of keys that lie anywhere, gathered before they are computed with: keys are
/// columns of a page, and vectors that read what was just written number by number would wait for it.
struct KeyColumns {
  static constexpr std::size_t kKeys = 16;
  HWY_ALIGN float keys[kKeys * kChunkDims];
  HWY_ALIGN std::uint16_t halves[kKeys * kChunkDims];

  /// rows: up to kKeys of them.
  HWY_INLINE void load(const HeadRows& head, std::span<const Row> rows, int first, int last) {
    const KvType type = head.layout->type;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      std::byte* page = head.keys(to_int(rows[i]) / kPageRows);
      const int at = first * kPageRows + to_int(rows[i]) % kPageRows, count = last - first;
      if (type == KvType::kF32) {
        copy_column(reinterpret_cast<const float*>(page) + at, count, keys + i * kChunkDims);
      } else if (type == KvType::kQ8_0) {
        load_quantised({*head.layout, page, page}, at, count, keys + i * kChunkDims);
      } else {
        copy_column(reinterpret_cast<const std::uint16_t*>(page) + at, count, halves + i * kChunkDims);
      }
    }
    const std::size_t numbers = rows.size() * kChunkDims;
    if (type == KvType::kF16) half_to_f32(reinterpret_cast<const hwy::float16_t*>(halves), numbers, keys);
    if (type == KvType::kBF16) half_to_f32(reinterpret_cast<const hwy::bfloat16_t*>(halves), numbers, keys);
  }

 private:
  static void load_quantised(const QuantisedPage& page, int at, int count, float* key) {
    const float scale = from_f16(page.key_scales[at / kPageRows / kChunkDims * kPageRows + at % kPageRows]);
    for (int i = 0; i < count; ++i) key[i] = scale * static_cast<float>(page.keys[at + i * kPageRows]);
  }
};

/// sum[dims] -= the keys of `rows` over their norms.
HWY_INLINE void subtract_columns(const KeyColumns& columns, const HeadRows& head, std::span<const Row> rows,
                                 std::size_t dims, double* sum) {
  const DoubleTag d;
  const hn::Rebind<float, DoubleTag> f;
  for (std::size_t dim = 0; dim < dims; dim += kDoubleLanes) {
    DoubleVec left = hn::LoadU(d, sum + dim);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const int row = to_int(rows[i]);
      const auto scale = hn::Set(f, head.inv_norms(row / kPageRows)[row % kPageRows] * kUnits);
      const auto numbers = unit_numbers(hn::LoadU(f, columns.keys + i * kChunkDims + dim), scale);
      left = hn::Sub(left, hn::Mul(hn::PromoteTo(d, numbers), hn::Set(d, kUnit)));
    }
    hn::StoreU(left, d, sum + dim);
  }
}

void subtract_unit_keys(const HeadRows& head, std::span<const Row> rows, double* sum) {
  KeyColumns columns;
  const int head_dim = head.layout->head_dim;
  for (; !rows.empty(); rows = rows.subspan(std::min(rows.size(), KeyColumns::kKeys))) {
    const std::span<const Row> batch = rows.first(std::min(rows.size(), KeyColumns::kKeys));
    for (int first = 0; first < head_dim; first += kChunkDims) {
      const int last = std::min(first + kChunkDims, head_dim);
      columns.load(head, batch, first, last);
      subtract_columns(columns, head, batch, static_cast<std::size_t>(last - first), sum + first);
    }
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

HWY_EXPORT(sum_keys);
HWY_EXPORT(sum_unit_keys);
HWY_EXPORT(subtract_unit_keys);

}  // namespace

void sum_keys(const HeadRows& head, double* out) { HWY_DYNAMIC_DISPATCH(sum_keys)(head, out); }

void sum_unit_keys(const HeadRows& head, double* out) { HWY_DYNAMIC_DISPATCH(sum_unit_keys)(head, out); }

void subtract_unit_keys(const HeadRows& head, std::span<const Row> rows, double* sum) {
  HWY_DYNAMIC_DISPATCH(subtract_unit_keys)(head, rows, sum);
}

}  // namespace keynest
#endif  // HWY_ONCE
