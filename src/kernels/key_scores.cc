#include "kernels/key_scores.h"

#include "kernels/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/key_scores.cc"
#include <algorithm>
#include <cmath>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/key_chunks-inl.h"

HWY_BEFORE_NAMESPACE();
namespace keynest {
namespace HWY_NAMESPACE {
namespace {

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

/// sums[64] = sum over all dimensions for every row of a page. The next page is asked for.
template <RowSum kind>
HWY_INLINE void page_row_sums(const HeadRows& head, int page, const float* anchor, double* sums) {
  HWY_ALIGN float buffer[kChunkDims * kPageRows];
  const int head_dim = head.layout->head_dim;
  std::fill(sums, sums + kPageRows, 0.0);
  for (int first = 0; first < head_dim; first += kChunkDims) {
    const int dims = std::min(kChunkDims, head_dim - first);
    const float* part = anchor == nullptr ? nullptr : anchor + first;
    const KeyPlace next{std::max(page - 1, 0), first};
    read_keys(head, {page, first}, dims, next, buffer,
              [&](const auto& chunk) HWY_ATTR { add_row_sums<kind>(chunk, dims, part, sums); });
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

}  // namespace
// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace keynest
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace keynest {
namespace {

HWY_EXPORT(dot_keys);
HWY_EXPORT(cosine_keys);
HWY_EXPORT(distance_keys);
HWY_EXPORT(norm_keys);

}  // namespace

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
