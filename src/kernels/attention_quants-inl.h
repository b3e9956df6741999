// The two matrix products of attention over a page of q8_0 as it is stored: numbers of a block of 32
// dimensions are integers times a scale that belongs to one row of the page. The products take the integers;
// the scales meet the logits once per block, and the weights before the values are read.
#if defined(KEYNEST_KERNELS_ATTENTION_QUANTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KEYNEST_KERNELS_ATTENTION_QUANTS_INL_H_
#undef KEYNEST_KERNELS_ATTENTION_QUANTS_INL_H_
#else
#define KEYNEST_KERNELS_ATTENTION_QUANTS_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"
#include "kernels/attention_tile-inl.h"
#include "kernels/convert-inl.h"
#include "kernels/page.h"

HWY_BEFORE_NAMESPACE();
namespace keynest {
namespace HWY_NAMESPACE {

inline constexpr std::size_t kBlockDims = 32;  // of kQ8_0
inline constexpr std::size_t kLineBytes = 64;  // what is asked for at a time

/// The matrix [head_dim, 64] or [64, head_dim] of a page, and its scales behind it.
struct Quants {
  const std::int8_t* numbers;
  const hwy::float16_t* scales;  // [head_dim / 32, 64] or [64, head_dim / 32]

  Quants(const std::byte* section, std::size_t head_dim)
      : numbers(reinterpret_cast<const std::int8_t*>(section)),
        scales(reinterpret_cast<const hwy::float16_t*>(section + head_dim * kPageRows)) {}
};

/// Asks for the line that byte `at` of a section begins; kKeep: how near it is kept.
template <int kKeep = 3>
HWY_INLINE void prefetch_line(const std::byte* section, std::size_t at) {
  if (section != nullptr && at % kLineBytes == 0) __builtin_prefetch(section + at, 0, kKeep);
}

/// The lines of the scales of one block, in keys or in values.
template <int kKeep = 3>
HWY_INLINE void prefetch_scales(const std::byte* section, std::size_t head_dim, std::size_t block) {
  constexpr std::size_t kBytes = kPageRows * sizeof(hwy::float16_t);
  const std::size_t first = head_dim * kPageRows + block * kBytes;
  for (std::size_t i = 0; i < kBytes; i += kLineBytes) prefetch_line<kKeep>(section, first + i);
}

/// A page as PageReader has it. `next_keys` and `next_values` are sections with their scales.
template <bool kOnce>
struct QuantPage {
  static constexpr int kKeep = kOnce ? 0 : 3;

  Quants keys, values;
  std::size_t head_dim;
  const std::byte* next_keys;
  const std::byte* next_values;
};

/// A page whose numbers are read one by one, times their scales: what conversion would make of them, to the
/// bit.
struct ScaledPage {
  Quants keys, values;
  const float* key_scales;    // [head_dim / 32, 64]
  const float* value_scales;  // [64, head_dim / 32]
  std::size_t head_dim;
  const std::byte* next_keys;
  const std::byte* next_values;

  HWY_INLINE FloatVec key(std::size_t dim, std::size_t column) const {
    const FloatTag d;
    return hn::Mul(load_quants(d, keys.numbers + dim * kPageRows + column),
                   hn::LoadU(d, key_scales + dim / kBlockDims * kPageRows + column));
  }
  HWY_INLINE FloatVec value(std::size_t row, std::size_t column) const {
    const FloatTag d;
    return hn::Mul(load_quants(d, values.numbers + row * head_dim + column),
                   hn::Set(d, value_scales[row * (head_dim / kBlockDims) + column / kBlockDims]));
  }
  template <int kVectors>
  HWY_INLINE void prefetch_key(std::size_t dim, std::size_t column) const {
    prefetch_line(next_keys, dim * kPageRows + column);
  }
};

/// out[kRows, 64] at columns [column, column + strip) (+)= the part of the logits that a block of dimensions
/// has.
template <int kRows, bool kOnce>
HWY_INLINE void logits_of_block(const QuantPage<kOnce>& page, const float* HWY_RESTRICT queries,
                                std::size_t block, std::size_t column, float* HWY_RESTRICT out) {
  constexpr int kVectors = strip_vectors(kRows);
  const FloatTag d;
  FloatVec sums[kRows][kVectors];
  HWY_UNROLL(8)
  for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(4)
    for (int v = 0; v < kVectors; ++v) sums[r][v] = hn::Zero(d);
  }
  const std::size_t first = block * kBlockDims * kPageRows + column;
  const std::int8_t* numbers = page.keys.numbers + first;
  HWY_UNROLL(2)
  for (std::size_t i = 0; i < kBlockDims; ++i, queries += kRows) {
    prefetch_line<QuantPage<kOnce>::kKeep>(page.next_keys, first + i * kPageRows);
    FloatVec keys[kVectors];
    HWY_UNROLL(4)
    for (int v = 0; v < kVectors; ++v) keys[v] = load_quants(d, numbers + i * kPageRows + v * kLanes);
    HWY_UNROLL(8)
    for (int r = 0; r < kRows; ++r) {
      const FloatVec query = hn::Set(d, queries[r]);
      HWY_UNROLL(4)
      for (int v = 0; v < kVectors; ++v) sums[r][v] = hn::MulAdd(keys[v], query, sums[r][v]);
    }
  }
  const hwy::float16_t* scales = page.keys.scales + block * kPageRows + column;
  HWY_UNROLL(4)
  for (int v = 0; v < kVectors; ++v) {
    const FloatVec scale = load_half(d, scales + v * kLanes);
    HWY_UNROLL(8)
    for (int r = 0; r < kRows; ++r) {
      float* at = out + r * kPageRows + column + v * kLanes;
      const FloatVec before = block == 0 ? hn::Zero(d) : hn::LoadU(d, at);
      hn::StoreU(hn::MulAdd(sums[r][v], scale, before), d, at);
    }
  }
}

template <int kRows, bool kOnce>
HWY_NOINLINE void logits_of(const QuantPage<kOnce>& page, const float* queries, int head_dim, float* out) {
  const std::size_t blocks = static_cast<std::size_t>(head_dim) / kBlockDims;
  for (std::size_t block = 0; block < blocks; ++block, queries += kBlockDims * kRows) {
    prefetch_scales<QuantPage<kOnce>::kKeep>(page.next_keys, page.head_dim, block);
    for (std::size_t column = 0; column < kPageRows; column += strip_vectors(kRows) * kLanes) {
      logits_of_block<kRows>(page, queries, block, column, out);
    }
  }
}

/// out[64] = the values' scales of one block of `blocks`.
HWY_INLINE void scales_of_block(const hwy::float16_t* scales, std::size_t blocks, std::size_t block,
                                float* out) {
  const FloatTag d;
  const hn::Rebind<std::uint16_t, FloatTag> bits;
  const hn::Rebind<hwy::float16_t, FloatTag> halves;
  const auto* in = reinterpret_cast<const std::uint16_t*>(scales);
  for (std::size_t row = 0; row < kPageRows; row += kLanes) {
    HWY_ALIGN std::uint16_t column[kLanes];
    hn::Vec<decltype(bits)> all[4];
    if (blocks == 2) {
      hn::LoadInterleaved2(bits, in + row * 2, all[0], all[1]);
    } else if (blocks == 4) {
      hn::LoadInterleaved4(bits, in + row * 4, all[0], all[1], all[2], all[3]);
    } else {
      for (std::size_t i = 0; i < kLanes; ++i) column[i] = in[(row + i) * blocks + block];
      all[0] = hn::Load(bits, column);
    }
    const auto own = all[blocks == 2 || blocks == 4 ? block : 0];
    hn::Store(hn::PromoteTo(d, hn::BitCast(halves, own)), d, out + row);
  }
}

/// Vectors that a block of values takes, and how many of them are summed together: whole blocks, or a part of
/// one.
inline constexpr int kBlockVectors = static_cast<int>(kBlockDims / kLanes);
template <int kVectors>
inline constexpr int kBlocksIn = std::max(1, kVectors / kBlockVectors);

/// Columns [column, column + strip) of what ValueSum says; the weights, [blocks of the strip, kRows, 64],
/// have been multiplied by the scales of the blocks.
template <int kRows, int kVectors, bool kOnce>
HWY_INLINE void add_quants_strip(const QuantPage<kOnce>& page, const ValueSum& job,
                                 const float* HWY_RESTRICT weights, std::size_t column) {
  constexpr int kBlocks = kBlocksIn<kVectors>, kOfBlock = kVectors / kBlocks;
  const FloatTag d;
  FloatVec sums[kRows][kVectors];
  HWY_UNROLL(8)
  for (int r = 0; r < kRows; ++r) {
    const FloatVec factor = hn::Set(d, job.rescale[r]);
    HWY_UNROLL(4)
    for (int v = 0; v < kVectors; ++v)
      sums[r][v] = hn::Mul(factor, hn::LoadU(d, job.out + r * job.out_stride + column + v * kLanes));
  }
  std::size_t at = column;
  HWY_UNROLL(2)
  for (std::size_t key = 0; key < static_cast<std::size_t>(job.count);
       ++key, ++weights, at += page.head_dim) {
    prefetch_line<QuantPage<kOnce>::kKeep>(page.next_values, at);
    FloatVec values[kVectors];
    HWY_UNROLL(4)
    for (int v = 0; v < kVectors; ++v) values[v] = load_quants(d, page.values.numbers + at + v * kLanes);
    HWY_UNROLL(8)
    for (int r = 0; r < kRows; ++r) {
      HWY_UNROLL(2)
      for (int b = 0; b < kBlocks; ++b) {
        const FloatVec weight = hn::Set(d, weights[(b * kRows + r) * kPageRows]);
        HWY_UNROLL(4)
        for (int v = b * kOfBlock; v < (b + 1) * kOfBlock; ++v)
          sums[r][v] = hn::MulAdd(values[v], weight, sums[r][v]);
      }
    }
  }
  HWY_UNROLL(8)
  for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(4)
    for (int v = 0; v < kVectors; ++v)
      hn::StoreU(sums[r][v], d, job.out + r * job.out_stride + column + v * kLanes);
  }
}

/// add_quants_strip of all columns of kBlocks blocks from `block` on, in strips of kVectors.
template <int kRows, int kVectors, bool kOnce>
HWY_NOINLINE void add_quant_blocks(const QuantPage<kOnce>& page, const ValueSum& job, std::size_t block) {
  constexpr int kBlocks = kBlocksIn<kVectors>;
  const FloatTag d;
  HWY_ALIGN float scales[kPageRows];
  HWY_ALIGN float weights[kBlocks * kRows * kPageRows];
  for (int b = 0; b < kBlocks; ++b) {
    prefetch_scales<QuantPage<kOnce>::kKeep>(page.next_values, page.head_dim, block + b);
    scales_of_block(page.values.scales, page.head_dim / kBlockDims, block + b, scales);
    for (std::size_t row = 0; row < kPageRows; row += kLanes) {
      const FloatVec scale = hn::Load(d, scales + row);
      HWY_UNROLL(8)
      for (int r = 0; r < kRows; ++r)
        hn::Store(hn::Mul(hn::LoadU(d, job.weights + r * kPageRows + row), scale), d,
                  weights + (b * kRows + r) * kPageRows + row);
    }
  }
  const std::size_t first = block * kBlockDims;
  for (std::size_t column = 0; column < kBlocks * kBlockDims; column += kVectors * kLanes)
    add_quants_strip<kRows, kVectors>(page, job, weights, first + column);
}

template <int kRows, bool kOnce>
HWY_INLINE void add_values_of_rows(int, const QuantPage<kOnce>& page, const ValueSum& job) {
  constexpr int kVectors = strip_vectors(kRows), kBlocks = kBlocksIn<kVectors>;
  const std::size_t blocks = page.head_dim / kBlockDims;
  std::size_t block = 0;
  for (; block + kBlocks <= blocks; block += kBlocks) add_quant_blocks<kRows, kVectors>(page, job, block);
  if (kBlocks > 1 && block < blocks) add_quant_blocks<kRows, kVectors / kBlocks>(page, job, block);
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace keynest
HWY_AFTER_NAMESPACE();

#endif  // KEYNEST_KERNELS_ATTENTION_QUANTS_INL_H_
