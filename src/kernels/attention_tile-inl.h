// The two matrix products of attention over one page, register-tiled, for a group of up to kMaxRows query
// rows.
#if defined(KEYNEST_KERNELS_ATTENTION_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KEYNEST_KERNELS_ATTENTION_TILE_INL_H_
#undef KEYNEST_KERNELS_ATTENTION_TILE_INL_H_
#else
#define KEYNEST_KERNELS_ATTENTION_TILE_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernels/convert-inl.h"
#include "kernels/page.h"

HWY_BEFORE_NAMESPACE();
namespace keynest {
namespace HWY_NAMESPACE {

// Accumulators: kTileRows x kStripVectors, which with the vectors of one key or value must fit the registers
// (32 on AVX-512 and NEON, 16 on AVX2 and SSE4). Up to kMaxRows rows, over narrower strips, where that saves
// reading a page twice: all query heads of a group in decode.
#if HWY_TARGET <= HWY_AVX3 || HWY_TARGET == HWY_NEON
inline constexpr int kStripVectors = 4;
#else
inline constexpr int kStripVectors = 2;
#endif
inline constexpr int kTileRows = 6;
inline constexpr int kMaxRows = 8;

constexpr int strip_vectors(int rows) { return rows <= kTileRows ? kStripVectors : kStripVectors / 2; }

/// A page as the products read it: keys [head_dim, 64], values [64, stride]. `next_keys` and `next_values`
/// are as many numbers that are asked for while keys and values are read, or null; with kOnce they are not
/// kept in the second cache, since they are read once and would only push out what is there.
template <class Stored, bool kOnce = false>
struct PageReader {
  const Stored* keys;
  const Stored* values;
  std::size_t stride;
  const Stored* next_keys;
  const Stored* next_values;

  HWY_INLINE FloatVec key(std::size_t dim, std::size_t column) const {
    return load_stored(keys + dim * kPageRows + column);
  }
  HWY_INLINE FloatVec value(std::size_t row, std::size_t column) const {
    return load_stored(values + row * stride + column);
  }
  template <int kVectors>
  HWY_INLINE void prefetch_key(std::size_t dim, std::size_t column) const {
    if (next_keys != nullptr) prefetch<kVectors>(next_keys + dim * kPageRows + column);
  }
  template <int kVectors>
  HWY_INLINE void prefetch_value(std::size_t row, std::size_t column) const {
    if (next_values != nullptr) prefetch<kVectors>(next_values + row * stride + column);
  }

 private:
  template <int kVectors>
  static HWY_INLINE void prefetch(const Stored* at) {
    constexpr std::size_t kLine = 64 / sizeof(Stored);
    constexpr int kKeep = kOnce ? 0 : 3;
    __builtin_prefetch(at, 0, kKeep);
    for (std::size_t i = kLine; i < kVectors * kLanes; i += kLine) __builtin_prefetch(at + i, 0, kKeep);
  }
};

/// out[kRows, 64] at columns [column, column + strip) = queries [head_dim, kRows]^T * keys.
template <int kRows, class Page>
HWY_INLINE void logits_strip(const Page& page, const float* HWY_RESTRICT queries, int head_dim,
                             std::size_t column, float* HWY_RESTRICT out) {
  constexpr int kVectors = strip_vectors(kRows);
  const FloatTag d;
  FloatVec sums[kRows][kVectors];
  HWY_UNROLL(8)
  for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(4)
    for (int v = 0; v < kVectors; ++v) sums[r][v] = hn::Zero(d);
  }
  HWY_UNROLL(2)
  for (std::size_t dim = 0; dim < static_cast<std::size_t>(head_dim); ++dim, queries += kRows) {
    page.template prefetch_key<kVectors>(dim, column);
    FloatVec keys[kVectors];
    HWY_UNROLL(4)
    for (int v = 0; v < kVectors; ++v) keys[v] = page.key(dim, column + v * kLanes);
    HWY_UNROLL(8)
    for (int r = 0; r < kRows; ++r) {
      const FloatVec query = hn::Set(d, queries[r]);
      HWY_UNROLL(4)
      for (int v = 0; v < kVectors; ++v) sums[r][v] = hn::MulAdd(keys[v], query, sums[r][v]);
    }
  }
  HWY_UNROLL(8)
  for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(4)
    for (int v = 0; v < kVectors; ++v) hn::StoreU(sums[r][v], d, out + r * kPageRows + column + v * kLanes);
  }
}

template <int kRows, class Page>
HWY_NOINLINE void logits_of(const Page& page, const float* queries, int head_dim, float* out) {
  for (std::size_t column = 0; column < kPageRows; column += strip_vectors(kRows) * kLanes) {
    logits_strip<kRows>(page, queries, head_dim, column, out);
  }
}

/// out[rows, 64] = logits of `rows` <= kMaxRows queries, given as [head_dim, rows], with all keys of the
/// page.
template <int kRows = kMaxRows, class Page>
HWY_INLINE void logits(int rows, const Page& page, const float* queries, int head_dim, float* out) {
  if constexpr (kRows > 1) {
    if (rows < kRows) return logits<kRows - 1>(rows, page, queries, head_dim, out);
  }
  logits_of<kRows>(page, queries, head_dim, out);
}

/// What add_values works on: out[rows, out_stride] = out * rescale[rows] + weights[rows, 64] * values, over
/// the first `count` rows of the page.
struct ValueSum {
  const float* weights;
  const float* rescale;
  int count;
  float* out;
  std::size_t out_stride;
};

template <int kRows, int kVectors, class Page>
HWY_NOINLINE void add_values_strip(const Page& page, const ValueSum& job, std::size_t column) {
  const FloatTag d;
  FloatVec sums[kRows][kVectors];
  HWY_UNROLL(8)
  for (int r = 0; r < kRows; ++r) {
    const FloatVec factor = hn::Set(d, job.rescale[r]);
    HWY_UNROLL(4)
    for (int v = 0; v < kVectors; ++v) {
      sums[r][v] = hn::Mul(factor, hn::LoadU(d, job.out + r * job.out_stride + column + v * kLanes));
    }
  }
  const float* HWY_RESTRICT weights = job.weights;
  HWY_UNROLL(2)
  for (std::size_t key = 0; key < static_cast<std::size_t>(job.count); ++key, ++weights) {
    page.template prefetch_value<kVectors>(key, column);
    FloatVec values[kVectors];
    HWY_UNROLL(4)
    for (int v = 0; v < kVectors; ++v) values[v] = page.value(key, column + v * kLanes);
    HWY_UNROLL(8)
    for (int r = 0; r < kRows; ++r) {
      const FloatVec weight = hn::Set(d, weights[r * kPageRows]);
      HWY_UNROLL(4)
      for (int v = 0; v < kVectors; ++v) sums[r][v] = hn::MulAdd(values[v], weight, sums[r][v]);
    }
  }
  HWY_UNROLL(8)
  for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(4)
    for (int v = 0; v < kVectors; ++v) {
      hn::StoreU(sums[r][v], d, job.out + r * job.out_stride + column + v * kLanes);
    }
  }
}

template <int kRows, int kVectors = strip_vectors(kRows), class Page>
HWY_INLINE void add_values_of(int vectors, const Page& page, const ValueSum& job, std::size_t column) {
  if constexpr (kVectors > 1) {
    if (vectors < kVectors) return add_values_of<kRows, kVectors - 1>(vectors, page, job, column);
  }
  add_values_strip<kRows, kVectors>(page, job, column);
}

/// The columns, `vectors` vectors of them, are shared evenly by as few strips as possible.
template <int kRows, class Page>
HWY_INLINE void add_values_of_rows(int vectors, const Page& page, const ValueSum& job) {
  const int strips = (vectors + strip_vectors(kRows) - 1) / strip_vectors(kRows);
  for (int strip = 0; strip < strips; ++strip) {
    const int first = vectors * strip / strips, last = vectors * (strip + 1) / strips;
    add_values_of<kRows>(last - first, page, job, static_cast<std::size_t>(first) * kLanes);
  }
}

template <int kRows = kMaxRows, class Page>
HWY_INLINE void add_values(int rows, int vectors, const Page& page, const ValueSum& job) {
  if constexpr (kRows > 1) {
    if (rows < kRows) return add_values<kRows - 1>(rows, vectors, page, job);
  }
  add_values_of_rows<kRows>(vectors, page, job);
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace keynest
HWY_AFTER_NAMESPACE();

#endif  // KEYNEST_KERNELS_ATTENTION_TILE_INL_H_
