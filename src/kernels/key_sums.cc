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
inline constexpr int kFloatPages = kLanes >= 8 ? 4 : 1;

/// Calls work(chunk, dims) with dimensions [first, first + kChunkDims) of a page, or as many as there are;
/// those of the next page are asked for.
template <class Work>
HWY_INLINE void read_chunk(const HeadRows& head, int page, int first, const Work& work) {
  HWY_ALIGN float buffer[kChunkDims * kPageRows];
  const int dims = std::min(kChunkDims, head.layout->head_dim - first);
  read_keys(head, {page, first}, dims, {std::min(page + 1, head.page_count() - 1), first}, buffer,
            [&](const auto& chunk) HWY_ATTR { work(chunk, dims); });
}

HWY_INLINE auto first_lanes(int count) {
  return hn::FirstN(FloatTag(), static_cast<std::size_t>(std::max(count, 0)));
}

/// kLanes numbers of keys from row `row` on; what lies beyond the count of a page that is not full may be
/// anything.
template <bool kFull, class Chunk>
HWY_INLINE FloatVec load_rows(const Chunk& chunk, std::size_t dim, std::size_t row, int count) {
  const FloatVec keys = chunk.load(dim * kPageRows + row);
  if constexpr (kFull) return keys;
  return hn::IfThenElseZero(first_lanes(count - static_cast<int>(row)), keys);
}

/// lanes[dims, kLanes] += sums over the first `count` rows of a chunk of keys [dims, 64].
template <bool kFull, class Chunk>
HWY_INLINE void add_rows(const Chunk& chunk, int dims, int count, float* lanes) {
  const FloatTag d;
  for (std::size_t dim = 0; dim < static_cast<std::size_t>(dims); ++dim, lanes += kLanes) {
    chunk.prefetch(dim * kPageRows, kPageRows);
    FloatVec sum = hn::Zero(d);
    HWY_UNROLL(4)
    for (std::size_t row = 0; row < kPageRows; row += kLanes)
      sum = hn::Add(load_rows<kFull>(chunk, dim, row, count), sum);
    hn::Store(hn::Add(sum, hn::Load(d, lanes)), d, lanes);
  }
}

void sum_keys(const HeadRows& head, double* out) {
  HWY_ALIGN float lanes[kChunkDims * kLanes];
  HWY_ALIGN double sums[kChunkDims * kLanes];
  const int head_dim = head.layout->head_dim, pages = head.page_count();
  for (int first = 0; first < head_dim; first += kChunkDims) {
    std::fill(sums, std::end(sums), 0.0);
    for (int page = 0; page < pages;) {
      std::fill(lanes, std::end(lanes), 0.0f);
      for (const int end = std::min(page + kFloatPages, pages); page < end; ++page) {
        read_chunk(head, page, first, [&](const auto& chunk, int dims) HWY_ATTR {
          const int count = head.rows_in_page(page);
          if (count == kPageRows) return add_rows<true>(chunk, dims, count, lanes);
          add_rows<false>(chunk, dims, count, lanes);
        });
      }
      for (std::size_t i = 0; i < kChunkDims * kLanes; i += kLanes)
        add_to_doubles(hn::Load(FloatTag(), lanes + i), sums + i);
    }
    for (int dim = first; dim < std::min(first + kChunkDims, head_dim); ++dim) {
      const double* of_dim = sums + static_cast<std::size_t>(dim - first) * kLanes;
      out[dim] = std::accumulate(of_dim, of_dim + kLanes, 0.0);
    }
  }
}

using IntTag = hn::RebindToSigned<FloatTag>;

/// Unit keys are summed as integers, in units of 2^-26.
inline constexpr float kUnits = 0x1p26f;
inline constexpr double kUnit = 0x1p-26;
/// How many numbers of up to 2^26 a sum in 32 bits holds, and how many rows and pages that is.
inline constexpr std::size_t kAddends = 16;
inline constexpr std::size_t kIntRows = std::min<std::size_t>(kAddends * kLanes, kPageRows);
inline constexpr int kIntPages = std::max<int>(kAddends * kLanes / kPageRows, 1);

/// The nearest integers, ties to even: numbers here are far from those that int32 does not hold.
template <class V>
HWY_INLINE auto nearest(V v) {
#if HWY_TARGET == HWY_SCALAR
  const float rounded = std::isfinite(v.raw) ? std::nearbyint(v.raw) : 0;
  return hn::Vec1<std::int32_t>(static_cast<std::int32_t>(rounded));
#else
  // Without what makes large numbers saturate.
#if HWY_TARGET <= HWY_AVX3
  if constexpr (sizeof(v) == 64) return hn::Vec512<std::int32_t>{_mm512_cvtps_epi32(v.raw)};
#endif
#if HWY_TARGET <= HWY_AVX2
  if constexpr (sizeof(v) == 32) return hn::Vec256<std::int32_t>{_mm256_cvtps_epi32(v.raw)};
#endif
  return hn::NearestInt(v);
#endif
}

/// lanes[kDoubleLanes] += the halves of v.
HWY_INLINE void add_to_longs(hn::Vec<IntTag> v, std::int64_t* lanes) {
  const hn::RebindToSigned<DoubleTag> d;
#if HWY_TARGET == HWY_SCALAR
  hn::Store(hn::Add(hn::Load(d, lanes), hn::PromoteTo(d, v)), d, lanes);
#else
  const hn::Rebind<std::int32_t, decltype(d)> half;
  const auto sum =
      hn::Add(hn::PromoteTo(d, hn::LowerHalf(half, v)), hn::PromoteTo(d, hn::UpperHalf(half, v)));
  hn::Store(hn::Add(hn::Load(d, lanes), sum), d, lanes);
#endif
}

/// Numbers of keys as sum_unit_keys takes them. `scale`: inverse norms times kUnits. The product is rounded
/// to float before it becomes an integer: no machine can fuse the two.
template <class V>
HWY_INLINE auto unit_numbers(V key, V scale) {
  return nearest(hn::Mul(key, scale));
}

/// Inverse norms of a page's rows times kUnits: 0 for those before the first that is asked for and beyond the
/// last.
struct UnitScales {
  HWY_ALIGN float of[kPageRows];
  int count;
  bool finite;  // keys that hold NaN or infinity have no other inverse norm than NaN or 0

  HWY_INLINE void load(const HeadRows& head, int page, int first) {
    count = head.rows_in_page(page);
    if (first == 0 && count == kPageRows) return load<true>(head.inv_norms(page), first);
    load<false>(head.inv_norms(page), first);
  }

 private:
  template <bool kAll>
  HWY_INLINE void load(const float* inv_norms, int first) {
    const FloatTag d;
    auto bad = hn::Lt(hn::Zero(d), hn::Zero(d));
    for (int row = 0; row < kPageRows; row += static_cast<int>(kLanes)) {
      FloatVec inv_norm = hn::Load(d, inv_norms + row);
      auto good = hn::Gt(inv_norm, hn::Zero(d));
      if constexpr (!kAll) {
        const auto wanted = hn::AndNot(first_lanes(first - row), first_lanes(count - row));
        inv_norm = hn::IfThenElseZero(wanted, inv_norm);
        good = hn::Or(good, hn::Not(wanted));
      }
      bad = hn::Or(bad, hn::Not(good));
      hn::Store(hn::Mul(inv_norm, hn::Set(d, kUnits)), d, of + row);
    }
    finite = hn::AllFalse(d, bad);
  }
};

/// ints[dims, kLanes] += sums over rows [from, to) of a chunk of keys [dims, 64] over their norms, by whole
/// vectors.
template <bool kFull, class Chunk>
HWY_INLINE void add_unit_rows(const Chunk& chunk, int dims, const UnitScales& scales, std::size_t from,
                              std::size_t to, std::int32_t* ints) {
  const FloatTag d;
  for (std::size_t dim = 0; dim < static_cast<std::size_t>(dims); ++dim, ints += kLanes) {
    chunk.prefetch(dim * kPageRows + from, kIntRows);
    auto sum = hn::Load(IntTag(), ints);
    HWY_UNROLL(4)
    for (std::size_t row = from; row < to; row += kLanes) {
      const FloatVec keys = load_rows<kFull>(chunk, dim, row, scales.count);
      sum = hn::Add(sum, unit_numbers(keys, hn::Load(d, scales.of + row)));
    }
    hn::Store(sum, IntTag(), ints);
  }
}

/// The sum of unit keys over the rows that `head` has no sum of, kChunkDims dimensions at a time.
class UnitSum {
 public:
  /// sums [kChunkDims], of dimensions [first, first + kChunkDims). False: a key is not finite.
  HWY_INLINE bool run(const HeadRows& head, int first) {
    const int first_page = head.summed_rows / kPageRows;
    bool finite = true;
    for (std::int64_t& sum : longs_) sum = 0;
    for (std::int32_t& sum : ints_) sum = 0;
    for (int page = first_page; page < head.page_count(); ++page) {
      scales_.load(head, page, page == first_page ? head.summed_rows % kPageRows : 0);
      finite &= scales_.finite;
      read_chunk(head, page, first,
                 [&](const auto& chunk, int dims) HWY_ATTR { add_page(chunk, dims, page - first_page); });
    }
    flush();
    for (std::size_t dim = 0; dim < kChunkDims; ++dim) {
      const std::int64_t* of_dim = longs_ + dim * kDoubleLanes;
      sums[dim] = std::accumulate(of_dim, of_dim + kDoubleLanes, std::int64_t{0});
    }
    return finite;
  }

  std::int64_t sums[kChunkDims];

 private:
  template <class Chunk>
  HWY_INLINE void add_page(const Chunk& chunk, int dims, int index) {
    if (index > 0 && index % kIntPages == 0) flush();
    for (std::size_t from = 0; from < kPageRows; from += kIntRows) {
      if (from > 0) flush();
      if (scales_.count == kPageRows) {
        add_unit_rows<true>(chunk, dims, scales_, from, from + kIntRows, ints_);
      } else {
        const auto end = std::min(from + kIntRows, static_cast<std::size_t>(scales_.count));
        add_unit_rows<false>(chunk, dims, scales_, from, end, ints_);
      }
    }
  }

  HWY_INLINE void flush() {
    for (std::size_t dim = 0; dim < kChunkDims; ++dim) {
      add_to_longs(hn::Load(IntTag(), ints_ + dim * kLanes), longs_ + dim * kDoubleLanes);
      hn::Store(hn::Zero(IntTag()), IntTag(), ints_ + dim * kLanes);
    }
  }

  HWY_ALIGN std::int64_t longs_[kChunkDims * kDoubleLanes];
  HWY_ALIGN std::int32_t ints_[kChunkDims * kLanes];
  UnitScales scales_;
};

void sum_unit_keys(const HeadRows& head, double* out) {
  UnitSum unit_sum;
  const int head_dim = head.layout->head_dim;
  bool finite = true;
  for (int first = 0; first < head_dim; first += kChunkDims) {
    finite &= unit_sum.run(head, first);
    for (int dim = first; dim < std::min(first + kChunkDims, head_dim); ++dim) {
      const double before = head.summed_rows > 0 ? head.unit_sum[dim] : 0.0;
      out[dim] = before + static_cast<double>(unit_sum.sums[dim - first]) * kUnit;
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

// Taking one key out costs as much as this many in a pass over all: its numbers lie in a cache line each, and
// memory gives those singly more slowly than one after the other. Measured with 16-bit keys: 22 where the
// caches hold them, 140 where they do not.
constexpr std::int32_t kRowCost = 2 * kPageRows;

}  // namespace

bool keeps_unit_sum(std::int32_t rows, std::int32_t gone) {
  return static_cast<std::int64_t>(gone) * kRowCost <= rows;
}

void sum_keys(const HeadRows& head, double* out) { HWY_DYNAMIC_DISPATCH(sum_keys)(head, out); }

void sum_unit_keys(const HeadRows& head, double* out) { HWY_DYNAMIC_DISPATCH(sum_unit_keys)(head, out); }

void subtract_unit_keys(const HeadRows& head, std::span<const Row> rows, double* sum) {
  HWY_DYNAMIC_DISPATCH(subtract_unit_keys)(head, rows, sum);
}

}  // namespace keynest
#endif  // HWY_ONCE
