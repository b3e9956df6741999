// Attention of a block in fixed point: both products by AVX-512 VNNI, which multiplies and sums pairs of
// 16-bit integers at twice the rate of float. Softmax, sums over pages and results are float.
// docs/performance.md says what this costs in accuracy.
#if defined(KEYNEST_KERNELS_ATTENTION_FIXED_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KEYNEST_KERNELS_ATTENTION_FIXED_INL_H_
#undef KEYNEST_KERNELS_ATTENTION_FIXED_INL_H_
#else
#define KEYNEST_KERNELS_ATTENTION_FIXED_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"
#include "kernels/attention_pages-inl.h"
#include "kernels/attention_round-inl.h"
#include "kernels/attention_scratch.h"
#include "kernels/attention_softmax-inl.h"
#include "kernels/attention_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace keynest {
namespace HWY_NAMESPACE {
namespace {

#if HWY_TARGET <= HWY_AVX3

/// A page as pairs of integers.
struct FixedPage {
  const std::int32_t* keys;    // [head_dim / 2, 64]
  const std::int32_t* values;  // [32, stride]
  const float* value_units;    // [stride]
  std::size_t stride;
  float value_norm;  // the largest of a dimension, over the rows of the page
};

template <int kRows, int kVectors>
HWY_INLINE void clear(IntVec (&sums)[kRows][kVectors]) {
  HWY_UNROLL(8)
  for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(4)
    for (int v = 0; v < kVectors; ++v) sums[r][v] = hn::Zero(IntTag());
  }
}

/// sums[kRows, kVectors vectors] += left[r * left_stride] of every row times right[kVectors vectors].
template <int kRows, int kVectors>
HWY_INLINE void add_outer(IntVec (&sums)[kRows][kVectors], const std::int32_t* left, std::size_t left_stride,
                          const std::int32_t* right) {
  const IntTag integers;
  IntVec pairs[kVectors];
  HWY_UNROLL(4)
  for (int v = 0; v < kVectors; ++v) pairs[v] = hn::Load(integers, right + v * kLanes);
  HWY_UNROLL(8)
  for (int r = 0; r < kRows; ++r) {
    const IntVec pair = hn::Set(integers, left[r * left_stride]);
    HWY_UNROLL(4)
    for (int v = 0; v < kVectors; ++v) sums[r][v] = add_products(sums[r][v], pairs[v], pair);
  }
}

/// out[kRows, 64] (+)= units[kRows] * queries [pairs, kRows]^T * keys [pairs, 64], for a strip of columns.
template <int kRows, bool kAdd>
HWY_INLINE void fixed_logits_strip(const std::int32_t* keys, const std::int32_t* queries, int pairs,
                                   const float* units, float* HWY_RESTRICT out) {
  constexpr int kVectors = strip_vectors(kRows);
  const FloatTag d;
  IntVec sums[kRows][kVectors];
  clear(sums);
  for (int i = 0; i < pairs; ++i, keys += kPageRows, queries += kRows) add_outer(sums, queries, 1, keys);
  HWY_UNROLL(8)
  for (int r = 0; r < kRows; ++r) {
    const FloatVec unit = hn::Set(d, units[r]);
    HWY_UNROLL(4)
    for (int v = 0; v < kVectors; ++v) {
      float* at = out + r * kPageRows + v * kLanes;
      const FloatVec sum = hn::ConvertTo(d, sums[r][v]);
      hn::StoreU(kAdd ? hn::MulAdd(sum, unit, hn::LoadU(d, at)) : hn::Mul(sum, unit), d, at);
    }
  }
}

template <int kRows>
HWY_NOINLINE void fixed_logits_of(const FixedPage& page, const std::int32_t* queries, int head_dim,
                                  const float* units, float* out) {
  for (std::size_t column = 0; column < kPageRows; column += strip_vectors(kRows) * kLanes) {
    const std::int32_t* keys = page.keys + column;
    fixed_logits_strip<kRows, false>(keys, queries, std::min(kSumDims, head_dim) / 2, units, out + column);
    for (int dim = kSumDims; dim < head_dim; dim += kSumDims) {
      fixed_logits_strip<kRows, true>(keys + static_cast<std::size_t>(dim / 2) * kPageRows,
                                      queries + dim / 2 * kRows, std::min(kSumDims, head_dim - dim) / 2,
                                      units, out + column);
    }
  }
}

/// out[rows, 64] = logits of `rows` <= kMaxRows rounded queries [head_dim / 2, rows] with all keys of the
/// page.
template <int kRows = kMaxRows>
HWY_INLINE void fixed_logits(int rows, const FixedPage& page, const std::int32_t* queries, int head_dim,
                             const float* units, float* out) {
  if constexpr (kRows > 1) {
    if (rows < kRows) return fixed_logits<kRows - 1>(rows, page, queries, head_dim, units, out);
  }
  fixed_logits_of<kRows>(page, queries, head_dim, units, out);
}

/// What add_fixed_values works on: out[rows, stride] = out * rescale[rows] + factor[rows] * units[stride] *
/// (weights [rows, 32] * values [32, stride]).
struct FixedValueSum {
  const std::int32_t* weights;
  const float* rescale;
  const float* factor;
  float* out;
};

template <int kRows, int kVectors>
HWY_NOINLINE void add_fixed_values_strip(const FixedPage& page, const FixedValueSum& job,
                                         std::size_t column) {
  const FloatTag d;
  IntVec sums[kRows][kVectors];
  clear(sums);
  const std::int32_t* values = page.values + column;
  for (std::size_t i = 0; i < kPageRows / 2; ++i, values += page.stride) {
    add_outer(sums, job.weights + i, kPageRows / 2, values);
  }
  FloatVec units[kVectors];
  HWY_UNROLL(4)
  for (int v = 0; v < kVectors; ++v) units[v] = hn::Load(d, page.value_units + column + v * kLanes);
  HWY_UNROLL(8)
  for (int r = 0; r < kRows; ++r) {
    const FloatVec rescale = hn::Set(d, job.rescale[r]), factor = hn::Set(d, job.factor[r]);
    HWY_UNROLL(4)
    for (int v = 0; v < kVectors; ++v) {
      float* at = job.out + r * page.stride + column + v * kLanes;
      const FloatVec sum = hn::Mul(hn::ConvertTo(d, sums[r][v]), units[v]);
      hn::StoreU(hn::MulAdd(sum, factor, hn::Mul(hn::LoadU(d, at), rescale)), d, at);
    }
  }
}

template <int kRows, int kVectors = strip_vectors(kRows)>
HWY_INLINE void add_fixed_values_of(int vectors, const FixedPage& page, const FixedValueSum& job,
                                    std::size_t column) {
  if constexpr (kVectors > 1) {
    if (vectors < kVectors) return add_fixed_values_of<kRows, kVectors - 1>(vectors, page, job, column);
  }
  add_fixed_values_strip<kRows, kVectors>(page, job, column);
}

template <int kRows = kMaxRows>
HWY_INLINE void add_fixed_values(int rows, const FixedPage& page, const FixedValueSum& job) {
  if constexpr (kRows > 1) {
    if (rows < kRows) return add_fixed_values<kRows - 1>(rows, page, job);
  }
  const int vectors = static_cast<int>(page.stride / kLanes);
  const int strips = (vectors + strip_vectors(kRows) - 1) / strip_vectors(kRows);
  for (int strip = 0; strip < strips; ++strip) {
    const int first = vectors * strip / strips, last = vectors * (strip + 1) / strips;
    add_fixed_values_of<kRows>(last - first, page, job, static_cast<std::size_t>(first) * kLanes);
  }
}

struct Sum {
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    return hn::Add(a, b);
  }
};

/// row[64] = 2^(row - max); returns the sums of the squares of its lanes.
HWY_INLINE FloatVec squares_of_row(float* row, FloatVec max) {
  return powers_of_row(
      row, max, [](FloatVec weight, FloatVec sum) HWY_ATTR { return hn::MulAdd(weight, weight, sum); });
}

/// pairs[32] = weights [64] * one, rounded; returns their sum, lane by lane.
HWY_INLINE FloatVec round_weights(const float* weights, FloatVec one, std::int32_t* pairs) {
  const FloatTag d;
  const IntTag integers;
  const auto bits = hn::Set(d, kRoundingBits);
  const hn::Repartition<std::int16_t, FloatTag> halves;
  const auto ones = hn::BitCast(integers, hn::Set(halves, 1));
  IntVec sum = hn::Zero(integers);
  HWY_UNROLL(2)
  for (std::size_t column = 0; column < kPageRows; column += 2 * kLanes, pairs += kLanes) {
    const IntVec pair = pair_rounded(hn::MulAdd(hn::LoadU(d, weights + column), one, bits),
                                     hn::MulAdd(hn::LoadU(d, weights + column + kLanes), one, bits));
    hn::Store(pair, integers, pairs);
    sum = add_products(sum, pair, ones);
  }
  return hn::ConvertTo(d, sum);
}

/// What a weight of 1 is rounded to in each of four rows: as much as its type holds and, by the inequality of
/// Cauchy and Schwarz, a sum of products with the values of the page. kRoundingShare covers what rounding
/// adds.
HWY_INLINE hn::Vec<QuadTag> ones_of_quad(const FloatVec (&squares)[kQuad], float value_norm) {
  constexpr float kRoundingShare = 0.002f;
  const QuadTag q;
  const auto norms = hn::Mul(hn::Sqrt(reduce_quad(squares, Sum())), hn::Set(q, value_norm));
  return hn::Min(hn::Div(hn::Set(q, kMaxSum * (1 - kRoundingShare)), norms), hn::Set(q, kMaxNumber));
}

/// Groups of rows that take every step together, since a step waits for all of the one before.
struct Batch {
  static constexpr std::size_t kRows = kFixedGroups * kMaxGroupRows;

  struct Group {
    std::size_t begin, rows;  // of the tile
    float* max;               // [kMaxGroupRows], so far
  };
  Group groups[kFixedGroups];
  std::size_t count = 0;
  HWY_ALIGN float page_max[kRows];
  HWY_ALIGN float ones[kRows];     // what a weight of 1 is rounded to
  HWY_ALIGN float factors[kRows];  // what one of a rounded weight is worth relative to the maximum so far
  HWY_ALIGN float rescale[kRows];  // of everything summed so far
  FloatVec squares[kRows / kQuad][kQuad];
};

/// Calls work(row of the batch, row of the tile) with all of them.
template <class Work>
HWY_INLINE void for_each_row(const Batch& batch, const Work& work) {
  for (std::size_t i = 0; i < batch.count; ++i) {
    for (std::size_t r = 0; r < batch.groups[i].rows; ++r)
      work(i * kMaxGroupRows + r, batch.groups[i].begin + r);
  }
}

/// Calls work(first row of the batch, their maxima so far) with all quads of rows; rows beyond a group's are
/// worked on as well.
template <class Work>
HWY_INLINE void for_each_quad(const Batch& batch, const Work& work) {
  for (std::size_t i = 0; i < batch.count; ++i) {
    for (std::size_t r = 0; r < kMaxGroupRows; r += kQuad)
      work(i * kMaxGroupRows + r, batch.groups[i].max + r);
  }
}

/// softmax_step with weights relative to the maximum of the page, so that those of a page of small ones keep
/// their precision, as pairs of integers.
HWY_INLINE void fixed_softmax_step(const Tile& tile, float value_norm, Batch& batch) {
  const FloatTag d;
  const QuadTag q;
  const FixedScratch& fixed = tile.scratch.fixed;
  for_each_quad(batch, [&](std::size_t r, float*) HWY_ATTR {
    hn::Store(hn::Max(max_of_quad(fixed.logits + r * kPageRows), hn::Set(q, kNoLogit)), q,
              batch.page_max + r);
  });
  for_each_row(batch, [&](std::size_t r, std::size_t) HWY_ATTR {
    batch.squares[r / kQuad][r % kQuad] =
        squares_of_row(fixed.logits + r * kPageRows, hn::Set(d, batch.page_max[r]));
  });
  for_each_quad(batch, [&](std::size_t r, float* max) HWY_ATTR {
    const auto old_max = hn::Load(q, max), of_page = hn::Load(q, batch.page_max + r);
    const auto new_max = hn::Max(of_page, old_max);
    const auto ones = ones_of_quad(batch.squares[r / kQuad], value_norm);
    hn::Store(new_max, q, max);
    hn::Store(ones, q, batch.ones + r);
    hn::Store(exp2_nonpositive(q, hn::Sub(old_max, new_max)), q, batch.rescale + r);
    hn::Store(hn::Div(exp2_nonpositive(q, hn::Sub(of_page, new_max)), ones), q, batch.factors + r);
  });
  for_each_row(batch, [&](std::size_t r, std::size_t row) HWY_ATTR {
    const FloatVec sum = round_weights(fixed.logits + r * kPageRows, hn::Set(d, batch.ones[r]),
                                       fixed.weights + r * (kPageRows / 2));
    float* total = tile.scratch.sums + row * kLanes;
    const FloatVec before = hn::Mul(hn::LoadU(d, total), hn::Set(d, batch.rescale[r]));
    hn::StoreU(hn::MulAdd(sum, hn::Set(d, batch.factors[r]), before), d, total);
  });
}

/// Softmax and values of the batch, whose logits are there; empties it.
inline void finish_batch(const Tile& tile, const FixedPage& page, Batch& batch) {
  const FixedScratch& fixed = tile.scratch.fixed;
  fixed_softmax_step(tile, page.value_norm, batch);
  for (std::size_t i = 0; i < batch.count; ++i) {
    const Batch::Group& group = batch.groups[i];
    const std::size_t slot = i * kMaxGroupRows;
    add_fixed_values(static_cast<int>(group.rows), page,
                     {fixed.weights + slot * (kPageRows / 2), batch.rescale + slot, batch.factors + slot,
                      tile.scratch.out + group.begin * page.stride});
  }
  batch.count = 0;
}

inline void add_fixed_page(const Tile& tile, const FixedPage& page, const PagePositions& positions,
                           Batch& batch) {
  const FixedScratch& fixed = tile.scratch.fixed;
  const int groups = tile.groups();
  for (int g = 0, begin = 0, end; g < groups; ++g, begin = end) {
    end = tile.group_start(g + 1);
    const Meeting how = meeting(tile.scratch, begin, end, positions);
    if (how == Meeting::kNone) continue;
    const auto first = static_cast<std::size_t>(begin), rows = static_cast<std::size_t>(end - begin);
    float* out = fixed.logits + batch.count * kMaxGroupRows * kPageRows;
    fixed_logits(end - begin, page, fixed.queries + first * static_cast<std::size_t>(tile.head_dim() / 2),
                 tile.head_dim(), tile.unit_of_group(g), out);
    mask_rows(tile, positions, begin, end, how, out);
    batch.groups[batch.count++] = {first, rows, tile.max_of_group(g)};
    if (batch.count == kFixedGroups) finish_batch(tile, page, batch);
  }
  finish_batch(tile, page, batch);
}

/// From so many rows on a page's numbers are rounded for less than what products gain.
inline constexpr int kMinFixedRows = 16;

inline bool takes_fixed_point(const PageLayout& layout, const QueryBlock& block) {
  return __builtin_cpu_supports("avx512vnni") != 0 && layout.type != KvType::kF32 &&
         block.tokens * block.group >= kMinFixedRows;
}

/// add_pages<true> over all pages in fixed point. False, with nothing done, where that is not to be had.
inline bool add_pages_fixed(const Tile& tile) {
  // Known from the whole block and the head, so that it is the same for every tile.
  if (!takes_fixed_point(*tile.keys.layout, tile.block) || !find_key_units(tile)) return false;
  for (int g = 0; g < tile.groups(); ++g) round_group(tile, g);
  const FixedScratch& fixed = tile.scratch.fixed;
  const auto d = static_cast<std::size_t>(tile.head_dim());
  std::fill_n(tile.scratch.out, static_cast<std::size_t>(tile.rows()) * padded_dim(tile.head_dim()), 0.0f);
  FixedPage rounded{fixed.keys, fixed.values, fixed.value_units, padded_dim(tile.head_dim()), 0};
  PagePositions positions;
  Batch batch{};
  for (int page = 0; page < tile.keys.page_count(); ++page) {
    positions.load(tile.keys, page);
    if (meeting(tile.scratch, 0, tile.rows(), positions) == Meeting::kNone) continue;
    const int count = tile.keys.rows_in_page(page);
    read_page_to_round(tile, page, [&](const auto& reader) {
      round_keys(reader, d, fixed.key_inverses, fixed.keys);
      rounded.value_norm = round_values(reader, count, d, rounded.stride, fixed.value_units, fixed.values);
    });
    add_fixed_page(tile, rounded, positions, batch);
  }
  return true;
}

#else

inline bool takes_fixed_point(const PageLayout&, const QueryBlock&) { return false; }
inline bool add_pages_fixed(const Tile&) { return false; }

#endif  // HWY_TARGET <= HWY_AVX3

}  // namespace
// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace keynest
HWY_AFTER_NAMESPACE();

#endif  // KEYNEST_KERNELS_ATTENTION_FIXED_INL_H_
