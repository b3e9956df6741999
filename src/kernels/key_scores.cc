#include "kernels/key_scores.h"

#include "kernels/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/key_scores.cc"
#include <algorithm>
#include <cmath>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/convert-inl.h"

HWY_BEFORE_NAMESPACE();
namespace keynest {
namespace HWY_NAMESPACE {
namespace {

using DoubleTag = hn::ScalableTag<double>;
using DoubleVec = hn::Vec<DoubleTag>;
inline constexpr std::size_t kDoubleLanes = hn::MaxLanes(DoubleTag());
inline constexpr int kChunkDims = 32;  // dimensions converted at a time; also the block of kQ8_0

HWY_INLINE DoubleVec load_double(const float* in) {
  return hn::PromoteTo(DoubleTag(), hn::LoadU(hn::Rebind<float, DoubleTag>(), in));
}

/// How a key takes part in one of the sums over dimensions below.
enum class RowSum { kDot, kDistance, kNorm };

/// sums[64] += over the dimensions of a chunk [dims, 64] what `kind` says; anchor: [dims].
template <RowSum kind>
HWY_INLINE void add_row_sums(const float* chunk, int dims, const float* anchor, double* sums) {
  for (std::size_t row = 0; row < kPageRows; row += kDoubleLanes) {
    DoubleVec sum = hn::Load(DoubleTag(), sums + row);
    for (int dim = 0; dim < dims; ++dim) {
      const DoubleVec key = load_double(chunk + dim * kPageRows + row);
      if constexpr (kind == RowSum::kNorm) {
        sum = hn::MulAdd(key, key, sum);
      } else {
        const DoubleVec other = hn::Set(DoubleTag(), static_cast<double>(anchor[dim]));
        const DoubleVec difference = hn::Sub(key, other);
        sum = kind == RowSum::kDot ? hn::MulAdd(key, other, sum) : hn::MulAdd(difference, difference, sum);
      }
    }
    hn::Store(sum, DoubleTag(), sums + row);
  }
}

/// sums[64] = sum over all dimensions for every row of a page.
template <RowSum kind>
HWY_INLINE void page_row_sums(const HeadRows& head, int page, const float* anchor, double* sums) {
  HWY_ALIGN float chunk[kChunkDims * kPageRows];
  const int head_dim = head.layout->head_dim;
  std::fill(sums, sums + kPageRows, 0.0);
  for (int first = 0; first < head_dim; first += kChunkDims) {
    const int last = std::min(first + kChunkDims, head_dim);
    keys_to_f32(*head.layout, head.keys(page), first, last, chunk);
    add_row_sums<kind>(chunk, last - first, anchor == nullptr ? nullptr : anchor + first, sums);
  }
}

void dot_keys(const HeadRows& head, const float* anchor, float* out) {
  HWY_ALIGN double sums[kPageRows];
  for (int page = 0; page < head.page_count(); ++page, out += kPageRows) {
    page_row_sums<RowSum::kDot>(head, page, anchor, sums);
    for (int row = 0; row < head.rows_in_page(page); ++row) out[row] = static_cast<float>(sums[row]);
  }
}

void cosine_keys(const HeadRows& head, const float* anchor, float* out) {
  HWY_ALIGN double sums[kPageRows];
  double square = 0;
  for (int dim = 0; dim < head.layout->head_dim; ++dim)
    square += static_cast<double>(anchor[dim]) * anchor[dim];
  const double anchor_factor = 1.0 / std::max(std::sqrt(square), 1e-8);
  for (int page = 0; page < head.page_count(); ++page, out += kPageRows) {
    page_row_sums<RowSum::kDot>(head, page, anchor, sums);
    for (int row = 0; row < head.rows_in_page(page); ++row) {
      const double key_factor = std::min(static_cast<double>(head.inv_norms(page)[row]), 1e8);
      out[row] = static_cast<float>(sums[row] * key_factor * anchor_factor);
    }
  }
}

void distance_keys(const HeadRows& head, const float* anchor, float* out) {
  HWY_ALIGN double sums[kPageRows];
  for (int page = 0; page < head.page_count(); ++page, out += kPageRows) {
    page_row_sums<RowSum::kDistance>(head, page, anchor, sums);
    for (int row = 0; row < head.rows_in_page(page); ++row)
      out[row] = static_cast<float>(std::sqrt(sums[row]));
  }
}

void norm_keys(const HeadRows& head, float* out) {
  HWY_ALIGN double sums[kPageRows];
  for (int page = 0; page < head.page_count(); ++page, out += kPageRows) {
    page_row_sums<RowSum::kNorm>(head, page, nullptr, sums);
    for (int row = 0; row < head.rows_in_page(page); ++row)
      out[row] = static_cast<float>(std::sqrt(sums[row]));
  }
}

/// out[dims] += sum over the rows of a chunk [dims, 64] of key * weight. `weights` [64]; rows >= count, whose
/// keys may be anything, are left out.
HWY_INLINE void add_weighted_rows(float* chunk, int dims, const float* weights, int count, double* out) {
  for (int dim = 0; dim < dims; ++dim) {
    float* keys = chunk + dim * kPageRows;
    std::fill(keys + count, keys + kPageRows, 0.0f);
    DoubleVec sum = hn::Zero(DoubleTag());
    for (std::size_t row = 0; row < kPageRows; row += kDoubleLanes) {
      sum = hn::MulAdd(load_double(keys + row), load_double(weights + row), sum);
    }
    out[dim] += hn::GetLane(hn::SumOfLanes(DoubleTag(), sum));
  }
}

void sum_keys(const HeadRows& head, bool unit, double* out) {
  HWY_ALIGN float chunk[kChunkDims * kPageRows];
  float weights[kPageRows];
  const int head_dim = head.layout->head_dim;
  std::fill(out, out + head_dim, 0.0);
  for (int page = 0; page < head.page_count(); ++page) {
    const int count = head.rows_in_page(page);
    std::fill(weights, weights + kPageRows, unit ? 0.0f : 1.0f);
    if (unit) std::copy(head.inv_norms(page), head.inv_norms(page) + count, weights);
    for (int first = 0; first < head_dim; first += kChunkDims) {
      const int last = std::min(first + kChunkDims, head_dim);
      keys_to_f32(*head.layout, head.keys(page), first, last, chunk);
      add_weighted_rows(chunk, last - first, weights, count, out + first);
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
