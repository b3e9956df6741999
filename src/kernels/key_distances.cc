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

using DoubleTag = hn::ScalableTag<double>;
using DoubleVec = hn::Vec<DoubleTag>;

/// Of the rows of a page: key . anchor and |key|^2.
struct Products {
  HWY_ALIGN double dots[kPageRows];
  HWY_ALIGN double squares[kPageRows];
};

/// Adds the dimensions of a chunk [dims, 64]; anchor: [dims].
HWY_INLINE void add_chunk(const float* chunk, int dims, const double* anchor, Products& out) {
  const DoubleTag d;
  const hn::Rebind<float, DoubleTag> f;
  constexpr std::size_t kStep = hn::MaxLanes(d);
  constexpr std::size_t kVectors = 4;  // enough chains to hide the latency of an addition
  for (std::size_t row = 0; row < kPageRows; row += kVectors * kStep) {
    DoubleVec dots[kVectors], squares[kVectors];
    for (std::size_t v = 0; v < kVectors; ++v) {
      dots[v] = hn::Load(d, out.dots + row + v * kStep);
      squares[v] = hn::Load(d, out.squares + row + v * kStep);
    }
    for (int dim = 0; dim < dims; ++dim) {
      const DoubleVec other = hn::Set(d, anchor[dim]);
      HWY_UNROLL(4)
      for (std::size_t v = 0; v < kVectors; ++v) {
        const auto key = hn::PromoteTo(d, hn::LoadU(f, chunk + dim * kPageRows + row + v * kStep));
        dots[v] = hn::MulAdd(key, other, dots[v]);
        squares[v] = hn::MulAdd(key, key, squares[v]);
      }
    }
    for (std::size_t v = 0; v < kVectors; ++v) {
      hn::Store(dots[v], d, out.dots + row + v * kStep);
      hn::Store(squares[v], d, out.squares + row + v * kStep);
    }
  }
}

/// out[64] = distances of a page's rows; anchor_norm: of the anchor, at least 1e-8.
void distances_of_page(const HeadRows& head, int page, const double* anchor, double anchor_norm,
                       double* out) {
  HWY_ALIGN float chunk[kChunkDims * kPageRows];
  Products products{};
  const int head_dim = head.layout->head_dim;
  for (int first = 0; first < head_dim; first += kChunkDims) {
    const int last = std::min(first + kChunkDims, head_dim);
    keys_to_f32(*head.layout, head.keys(page), first, last, chunk);
    add_chunk(chunk, last - first, anchor + first, products);
  }
  const DoubleTag d;
  for (std::size_t row = 0; row < kPageRows; row += hn::Lanes(d)) {
    const auto norm = hn::Max(hn::Sqrt(hn::Load(d, products.squares + row)), hn::Set(d, 1e-8));
    const auto cosine = hn::Div(hn::Load(d, products.dots + row), hn::Mul(norm, hn::Set(d, anchor_norm)));
    hn::StoreU(hn::Sub(hn::Set(d, 1.0), cosine), d, out + row);
  }
}

double norm_of_anchor(const double* anchor, int head_dim) {
  double square = 0;
  for (int dim = 0; dim < head_dim; ++dim) square += anchor[dim] * anchor[dim];
  return std::max(std::sqrt(square), 1e-8);
}

void key_distances_of_page(const HeadRows& head, int page, const double* anchor, double* out) {
  distances_of_page(head, page, anchor, norm_of_anchor(anchor, head.layout->head_dim), out);
}

void key_distances(const HeadRows& head, const double* anchor, double* out) {
  HWY_ALIGN double of_page[kPageRows];
  const double anchor_norm = norm_of_anchor(anchor, head.layout->head_dim);
  for (int page = 0; page < head.page_count(); ++page, out += kPageRows) {
    const int count = head.rows_in_page(page);
    distances_of_page(head, page, anchor, anchor_norm, count == kPageRows ? out : of_page);
    if (count < kPageRows) std::copy(of_page, of_page + count, out);
  }
}

/// out[count, head_dim] = the keys of rows [row, row + count) of a chunk [dims, 64].
void take_rows(const float* chunk, int dims, int row, int count, int head_dim, double* out) {
  for (int i = 0; i < count; ++i, out += head_dim) {
    for (int dim = 0; dim < dims; ++dim) out[dim] = chunk[dim * kPageRows + row + i];
  }
}

/// key[head_dim] /= max(|key|, 1e-12). head_dim is a multiple of 8, of whole vectors therefore.
void normalise(double* key, std::size_t head_dim) {
  const DoubleTag d;
  DoubleVec squares = hn::Zero(d);
  for (std::size_t dim = 0; dim < head_dim; dim += hn::Lanes(d)) {
    const DoubleVec x = hn::LoadU(d, key + dim);
    squares = hn::MulAdd(x, x, squares);
  }
  const double norm = std::sqrt(hn::GetLane(hn::SumOfLanes(d, squares)));
  const DoubleVec factor = hn::Set(d, 1.0 / std::max(norm, 1e-12));
  for (std::size_t dim = 0; dim < head_dim; dim += hn::Lanes(d)) {
    hn::StoreU(hn::Mul(hn::LoadU(d, key + dim), factor), d, key + dim);
  }
}

void unit_keys_of_page(const HeadRows& head, int page, int row, int count, double* out) {
  HWY_ALIGN float chunk[kChunkDims * kPageRows];
  const int head_dim = head.layout->head_dim;
  for (int first = 0; first < head_dim; first += kChunkDims) {
    const int last = std::min(first + kChunkDims, head_dim);
    keys_to_f32(*head.layout, head.keys(page), first, last, chunk);
    take_rows(chunk, last - first, row, count, head_dim, out + first);
  }
  for (int i = 0; i < count; ++i, out += head_dim) normalise(out, static_cast<std::size_t>(head_dim));
}

void read_unit_keys(const HeadRows& head, Row first, int count, double* out) {
  for (int done = 0; done < count;) {
    const int at = to_int(first) + done, row = at % kPageRows;
    const int part = std::min(count - done, kPageRows - row);
    unit_keys_of_page(head, at / kPageRows, row, part,
                      out + static_cast<std::ptrdiff_t>(done) * head.layout->head_dim);
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

HWY_EXPORT(key_distances);
HWY_EXPORT(key_distances_of_page);
HWY_EXPORT(read_unit_keys);

}  // namespace

void key_distances(const HeadRows& head, const double* anchor, double* out) {
  HWY_DYNAMIC_DISPATCH(key_distances)(head, anchor, out);
}

void key_distances_of_page(const HeadRows& head, int page, const double* anchor, double* out) {
  HWY_DYNAMIC_DISPATCH(key_distances_of_page)(head, page, anchor, out);
}

void read_unit_keys(const HeadRows& head, Row first, int count, double* out) {
  HWY_DYNAMIC_DISPATCH(read_unit_keys)(head, first, count, out);
}

}  // namespace keynest
#endif  // HWY_ONCE
