#include "kernels/key_scores.h"

#include "kernels/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/key_scores.cc"
#include <algorithm>
#include <cmath>
#include <numeric>

#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/convert-inl.h"

HWY_BEFORE_NAMESPACE();
namespace keynest {
namespace HWY_NAMESPACE {
namespace {

using DoubleTag = hn::ScalableTag<double>;
inline constexpr std::size_t kDoubleLanes = hn::MaxLanes(DoubleTag());
/// Dimensions, or pages, summed in float before the sum goes on in double; also the block of kQ8_0.
inline constexpr int kChunkDims = 32;
inline constexpr int kChunkPages = kLanes >= 8 ? 4 : 1;

/// Dimensions [first, last) of a page's keys, [last - first, 64], and the same of the page that follows, to
/// be asked for while these are read: an eviction mostly finds keys outside the first two caches.
template <class Stored>
struct KeyChunk {
  const Stored* keys;
  const Stored* next;

  HWY_INLINE FloatVec load(std::size_t at) const { return load_stored(keys + at); }
  /// The numbers [at, at + count) of the next page.
  HWY_INLINE void prefetch(std::size_t at, std::size_t count) const {
    constexpr std::size_t kLine = 64 / sizeof(Stored);
    hwy::Prefetch(next + at);
    for (std::size_t i = kLine; i < count; i += kLine) hwy::Prefetch(next + at + i);
  }
};

template <class Stored>
HWY_INLINE KeyChunk<Stored> stored_chunk(const HeadRows& head, int page, int next, int first) {
  const std::size_t start = static_cast<std::size_t>(first) * kPageRows;
  return {reinterpret_cast<const Stored*>(head.keys(page)) + start,
          reinterpret_cast<const Stored*>(head.keys(next)) + start};
}

/// Calls work(chunk) with dimensions [first, last) of a page's keys: as stored where they can be read so,
/// else converted into `buffer`.
template <class Work>
HWY_INLINE void read_keys(const HeadRows& head, int page, int next, int first, int last, float* buffer,
                          const Work& work) {
  const KvType type = head.layout->type;
  if (type == KvType::kF32) return work(stored_chunk<float>(head, page, next, first));
  if constexpr (kReadsHalf) {
    if (type == KvType::kF16) return work(stored_chunk<hwy::float16_t>(head, page, next, first));
    if (type == KvType::kBF16) return work(stored_chunk<hwy::bfloat16_t>(head, page, next, first));
  }
  keys_to_f32(*head.layout, head.keys(page), first, last, buffer);
  work(KeyChunk<float>{buffer, buffer});
}

/// sums[kLanes] += v.
HWY_INLINE void add_to_doubles(FloatVec v, double* sums) {
  const DoubleTag d;
#if HWY_TARGET == HWY_SCALAR
  hn::Store(hn::Add(hn::Load(d, sums), hn::PromoteTo(d, v)), d, sums);
#else
  const hn::Rebind<float, DoubleTag> half;
  const auto low = hn::PromoteTo(d, hn::LowerHalf(half, v)), high = hn::PromoteTo(d, hn::UpperHalf(half, v));
  hn::Store(hn::Add(hn::Load(d, sums), low), d, sums);
  hn::Store(hn::Add(hn::Load(d, sums + kDoubleLanes), high), d, sums + kDoubleLanes);
#endif
}

/// How a key takes part in one of the sums over dimensions below.
enum class RowSum { kDot, kDistance, kNorm };

template <RowSum kind>
HWY_INLINE FloatVec add_term(FloatVec key, const float* anchor, int dim, FloatVec sum) {
  if constexpr (kind == RowSum::kNorm) return hn::MulAdd(key, key, sum);
  const FloatVec other = hn::Set(FloatTag(), anchor[dim]);
  if constexpr (kind == RowSum::kDot) return hn::MulAdd(key, other, sum);
  const FloatVec difference = hn::Sub(key, other);
  return hn::MulAdd(difference, difference, sum);
}

/// sums[64] += over the dimensions of a chunk of keys [dims, 64] what `kind` says; anchor: [dims].
template <RowSum kind, class Chunk>
HWY_INLINE void add_row_sums(const Chunk& chunk, int dims, const float* anchor, double* sums) {
  constexpr std::size_t kVectors = 4;  // enough chains to hide the latency of an addition
  for (std::size_t row = 0; row < kPageRows; row += kVectors * kLanes) {
    FloatVec part[kVectors] = {hn::Zero(FloatTag()), hn::Zero(FloatTag()), hn::Zero(FloatTag()),
                               hn::Zero(FloatTag())};
    for (int dim = 0; dim < dims; ++dim) {
      const std::size_t at = static_cast<std::size_t>(dim) * kPageRows + row;
      chunk.prefetch(at, kVectors * kLanes);
      HWY_UNROLL(4)
      for (std::size_t v = 0; v < kVectors; ++v)
        part[v] = add_term<kind>(chunk.load(at + v * kLanes), anchor, dim, part[v]);
    }
    HWY_UNROLL(4)
    for (std::size_t v = 0; v < kVectors; ++v) add_to_doubles(part[v], sums + row + v * kLanes);
  }
}

/// sums[64] = sum over all dimensions for every row of a page.
template <RowSum kind>
HWY_INLINE void page_row_sums(const HeadRows& head, int page, const float* anchor, double* sums) {
  HWY_ALIGN float buffer[kChunkDims * kPageRows];
  const int head_dim = head.layout->head_dim;
  std::fill(sums, sums + kPageRows, 0.0);
  for (int first = 0; first < head_dim; first += kChunkDims) {
    const int last = std::min(first + kChunkDims, head_dim);
    const float* part = anchor == nullptr ? nullptr : anchor + first;
    read_keys(head, page, std::max(page - 1, 0), first, last, buffer,
              [&](const auto& chunk) HWY_ATTR { add_row_sums<kind>(chunk, last - first, part, sums); });
  }
}

/// out[count] = finish(sums, row) for the rows of a page, a vector of sums at a time.
template <class Finish>
HWY_INLINE void write_scores(const double* sums, int count, float* out, const Finish& finish) {
  const DoubleTag d;
  const hn::Rebind<float, DoubleTag> f;
  HWY_ALIGN float page[kPageRows];
  for (std::size_t row = 0; row < kPageRows; row += kDoubleLanes) {
    hn::Store(hn::DemoteTo(f, finish(hn::Load(d, sums + row), row)), f, page + row);
  }
  std::copy(page, page + count, out);
}

template <RowSum kind, class Finish>
HWY_INLINE void score_pages(const HeadRows& head, const float* anchor, float* out, const Finish& finish) {
  HWY_ALIGN double sums[kPageRows];
  // From the last page to the first: after sum_keys the last ones are those that caches still hold.
  for (int page = head.page_count() - 1; page >= 0; --page) {
    page_row_sums<kind>(head, page, anchor, sums);
    write_scores(sums, head.rows_in_page(page), out + page * kPageRows,
                 [&](auto sum, std::size_t row) HWY_ATTR { return finish(sum, page, row); });
  }
}

void dot_keys(const HeadRows& head, const float* anchor, float* out) {
  score_pages<RowSum::kDot>(head, anchor, out, [](auto sum, int, std::size_t) HWY_ATTR { return sum; });
}

void cosine_keys(const HeadRows& head, const float* anchor, float* out) {
  const DoubleTag d;
  const hn::Rebind<float, DoubleTag> f;
  double square = 0;
  for (int dim = 0; dim < head.layout->head_dim; ++dim)
    square += static_cast<double>(anchor[dim]) * anchor[dim];
  const auto anchor_factor = hn::Set(d, 1.0 / std::max(std::sqrt(square), 1e-8));
  score_pages<RowSum::kDot>(head, anchor, out, [&](auto sum, int page, std::size_t row) HWY_ATTR {
    const auto key_factor = hn::PromoteTo(d, hn::Load(f, head.inv_norms(page) + row));
    return hn::Mul(hn::Mul(sum, hn::Min(key_factor, hn::Set(d, 1e8))), anchor_factor);
  });
}

void distance_keys(const HeadRows& head, const float* anchor, float* out) {
  score_pages<RowSum::kDistance>(head, anchor, out,
                                 [](auto sum, int, std::size_t) HWY_ATTR { return hn::Sqrt(sum); });
}

void norm_keys(const HeadRows& head, float* out) {
  score_pages<RowSum::kNorm>(head, nullptr, out,
                             [](auto sum, int, std::size_t) HWY_ATTR { return hn::Sqrt(sum); });
}

/// Weights of a page's rows, and which of its rows there are.
struct RowWeights {
  HWY_ALIGN float of[kPageRows];  // 0 beyond count
  int count;

  void load(const HeadRows& head, int page, bool unit) {
    count = head.rows_in_page(page);
    std::fill(of, of + kPageRows, 0.0f);
    if (unit) std::copy(head.inv_norms(page), head.inv_norms(page) + count, of);
    if (!unit) std::fill(of, of + count, 1.0f);
  }
};

/// lanes[dims, kLanes] += sums over the rows of a chunk of keys [dims, 64], times their weights. What lies
/// beyond the count of a page that is not full may be anything.
template <bool kFull, class Chunk>
HWY_INLINE void add_weighted_rows(const Chunk& chunk, int dims, const RowWeights& weights, float* lanes) {
  const FloatTag d;
  for (int dim = 0; dim < dims; ++dim, lanes += kLanes) {
    const std::size_t at = static_cast<std::size_t>(dim) * kPageRows;
    chunk.prefetch(at, kPageRows);
    FloatVec sum = hn::Zero(d);
    HWY_UNROLL(4)
    for (std::size_t row = 0; row < kPageRows; row += kLanes) {
      FloatVec key = chunk.load(at + row);
      if constexpr (!kFull) {
        const int left = std::max(weights.count - static_cast<int>(row), 0);
        key = hn::IfThenElseZero(hn::FirstN(d, static_cast<std::size_t>(left)), key);
      }
      sum = hn::MulAdd(key, hn::Load(d, weights.of + row), sum);
    }
    hn::Store(hn::Add(sum, hn::Load(d, lanes)), d, lanes);
  }
}

/// The same for dimensions [first, last) of pages [page, end).
HWY_INLINE void add_weighted_pages(const HeadRows& head, bool unit, int page, int end, int first, int last,
                                   float* lanes) {
  HWY_ALIGN float buffer[kChunkDims * kPageRows];
  for (; page < end; ++page) {
    RowWeights weights;
    weights.load(head, page, unit);
    const int next = std::min(page + 1, head.page_count() - 1);
    read_keys(head, page, next, first, last, buffer, [&](const auto& chunk) HWY_ATTR {
      if (weights.count == kPageRows) return add_weighted_rows<true>(chunk, last - first, weights, lanes);
      add_weighted_rows<false>(chunk, last - first, weights, lanes);
    });
  }
}

void sum_keys(const HeadRows& head, bool unit, double* out) {
  HWY_ALIGN float lanes[kChunkDims * kLanes];
  HWY_ALIGN double sums[kChunkDims * kLanes];
  const int head_dim = head.layout->head_dim, pages = head.page_count();
  for (int first = 0; first < head_dim; first += kChunkDims) {
    const int last = std::min(first + kChunkDims, head_dim);
    const std::size_t used = static_cast<std::size_t>(last - first) * kLanes;
    std::fill(sums, sums + used, 0.0);
    for (int page = 0; page < pages; page += kChunkPages) {
      std::fill(lanes, lanes + used, 0.0f);
      add_weighted_pages(head, unit, page, std::min(page + kChunkPages, pages), first, last, lanes);
      for (std::size_t i = 0; i < used; i += kLanes)
        add_to_doubles(hn::Load(FloatTag(), lanes + i), sums + i);
    }
    for (int dim = first; dim < last; ++dim) {
      const double* of_dim = sums + static_cast<std::size_t>(dim - first) * kLanes;
      out[dim] = std::accumulate(of_dim, of_dim + kLanes, 0.0);
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
HWY_EXPORT(dot_keys);
HWY_EXPORT(cosine_keys);
HWY_EXPORT(distance_keys);
HWY_EXPORT(norm_keys);

}  // namespace

void sum_unit_keys(const HeadRows& head, double* out) { HWY_DYNAMIC_DISPATCH(sum_keys)(head, true, out); }

void sum_keys(const HeadRows& head, double* out) { HWY_DYNAMIC_DISPATCH(sum_keys)(head, false, out); }

void dot_keys(const HeadRows& head, const float* anchor, float* out) {
  HWY_DYNAMIC_DISPATCH(dot_keys)(head, anchor, out);
}

void cosine_keys(const HeadRows& head, const float* anchor, float* out) {
  HWY_DYNAMIC_DISPATCH(cosine_keys)(head, anchor, out);
}

void distance_keys(const HeadRows& head, const float* anchor, float* out) {
  HWY_DYNAMIC_DISPATCH(distance_keys)(head, anchor, out);
}

void norm_keys(const HeadRows& head, float* out) { HWY_DYNAMIC_DISPATCH(norm_keys)(head, out); }

}  // namespace keynest
#endif  // HWY_ONCE
