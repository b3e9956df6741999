#include "kernels/key_distances.h"

#include "kernels/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/key_distances.cc"
#include <algorithm>
#include <cmath>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/convert-inl.h"

HWY_BEFORE_NAMESPACE();
namespace keynest {
namespace HWY_NAMESPACE {
namespace {

constexpr int kChunkDims = 32;  // dimensions converted at a time; also the block of kQ8_0

/// dots[64] += key . anchor and squares[64] += |key|^2 over the dimensions of a chunk [dims, 64]; anchor:
/// [dims].
HWY_INLINE void add_chunk(const float* chunk, int dims, const double* anchor, double* dots, double* squares) {
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, decltype(d)> f;
  for (std::size_t row = 0; row < kPageRows; row += hn::Lanes(d)) {
    auto dot = hn::Load(d, dots + row);
    auto square = hn::Load(d, squares + row);
    for (int dim = 0; dim < dims; ++dim) {
      const auto key = hn::PromoteTo(d, hn::LoadU(f, chunk + dim * kPageRows + row));
      dot = hn::MulAdd(key, hn::Set(d, anchor[dim]), dot);
      square = hn::MulAdd(key, key, square);
    }
    hn::Store(dot, d, dots + row);
    hn::Store(square, d, squares + row);
  }
}

void key_distances(const HeadRows& head, const double* anchor, double* out) {
  HWY_ALIGN float chunk[kChunkDims * kPageRows];
  HWY_ALIGN double dots[kPageRows];
  HWY_ALIGN double squares[kPageRows];
  const int head_dim = head.layout->head_dim;
  double anchor_square = 0;
  for (int dim = 0; dim < head_dim; ++dim) anchor_square += anchor[dim] * anchor[dim];
  const double anchor_norm = std::max(std::sqrt(anchor_square), 1e-8);
  for (int page = 0; page < head.page_count(); ++page, out += kPageRows) {
    std::fill(dots, dots + kPageRows, 0.0);
    std::fill(squares, squares + kPageRows, 0.0);
    for (int first = 0; first < head_dim; first += kChunkDims) {
      const int last = std::min(first + kChunkDims, head_dim);
      keys_to_f32(*head.layout, head.keys(page), first, last, chunk);
      add_chunk(chunk, last - first, anchor + first, dots, squares);
    }
    for (int row = 0; row < head.rows_in_page(page); ++row) {
      out[row] = 1.0 - dots[row] / (std::max(std::sqrt(squares[row]), 1e-8) * anchor_norm);
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

HWY_EXPORT(key_distances);

}  // namespace

void key_distances(const HeadRows& head, const double* anchor, double* out) {
  HWY_DYNAMIC_DISPATCH(key_distances)(head, anchor, out);
}

}  // namespace keynest
#endif  // HWY_ONCE
