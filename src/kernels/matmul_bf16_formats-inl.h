// Weights of every format as BF16, 32 columns of a row at a time, by AVX-512 intrinsics. The formats are
// ggml's; the results are those of its conversion to float, rounded. Part of matmul_bf16.cc.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/matmul.h"

#define KEYNEST_BF16 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,f16c,fma")))
#define KEYNEST_BF16_INLINE KEYNEST_BF16 __attribute__((always_inline)) inline

namespace keynest {
namespace {

constexpr int kBlockColumns = 32;  // of the quantised formats, and of a transposed tile (as 16 pairs)

KEYNEST_BF16_INLINE __m512 low_half(__m256i bytes) {
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm256_castsi256_si128(bytes)));
}
KEYNEST_BF16_INLINE __m512 high_half(__m256i bytes) {
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm256_extracti128_si256(bytes, 1)));
}
KEYNEST_BF16_INLINE __m512i to_bf16(__m512 low, __m512 high) {
  return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low));
}

/// 32 signed bytes times a scale for each half, as 32 BF16.
KEYNEST_BF16_INLINE __m512i scaled_halves(__m256i bytes, float low, float high) {
  return to_bf16(_mm512_mul_ps(low_half(bytes), _mm512_set1_ps(low)),
                 _mm512_mul_ps(high_half(bytes), _mm512_set1_ps(high)));
}
KEYNEST_BF16_INLINE __m512i scaled(__m256i bytes, float scale) { return scaled_halves(bytes, scale, scale); }

/// a * b + c, each rounded, as plain code for any x86 does it: compilers may fuse what is written with
/// operators.
KEYNEST_BF16_INLINE __m512 multiply_then_add(__m512 a, __m512 b, __m512 c) {
  return _mm512_add_round_ps(_mm512_mul_ps(a, b), c, _MM_FROUND_CUR_DIRECTION);
}

/// 32 bytes, none negative, times a scale plus an offset.
KEYNEST_BF16_INLINE __m512i scaled(__m256i bytes, float scale, float offset) {
  const __m512 s = _mm512_set1_ps(scale), o = _mm512_set1_ps(offset);
  return to_bf16(multiply_then_add(low_half(bytes), s, o), multiply_then_add(high_half(bytes), s, o));
}

KEYNEST_BF16_INLINE float half_at(const std::byte* at) {
  std::uint16_t bits;
  std::memcpy(&bits, at, sizeof bits);
  return _cvtsh_ss(bits);
}

// A loader gives columns [32 block, 32 block + 32) of a row as BF16; `index` is the row's number of the 16
// that are packed together, and begin() comes first for all of them. The formats are ggml's.

/// For formats that have nothing to begin with.
struct Loader {
  KEYNEST_BF16_INLINE void begin(int /*index*/, int /*row*/, int /*block*/) {}
};

/// The stored block that holds columns [32 block, 32 block + 32) of a row, in a format of `size` bytes for
/// `columns`. Asks for the same columns 16 rows on, which are read next: 16 rows at a time are too many
/// streams for the CPU to foresee.
KEYNEST_BF16_INLINE const std::byte* block_at(const WeightMatrix& weights, int row, int block, int columns,
                                              int size) {
  const std::byte* in_row = weights.data + static_cast<std::size_t>(row) * weights.row_bytes;
  const int ahead = block * size * kBlockColumns / columns;
  _mm_prefetch(reinterpret_cast<const char*>(in_row) + 16 * weights.row_bytes + ahead, _MM_HINT_T0);
  return in_row + static_cast<std::size_t>(block * kBlockColumns / columns) * static_cast<std::size_t>(size);
}

/// 16 bytes as 32 numbers: the low nibbles, then the high ones.
KEYNEST_BF16_INLINE __m256i nibbles(const std::byte* at) {
  const __m128i both = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
  const __m128i mask = _mm_set1_epi8(15);
  return _mm256_set_m128i(_mm_and_si128(_mm_srli_epi16(both, 4), mask), _mm_and_si128(both, mask));
}

KEYNEST_BF16_INLINE __m256i bytes_at(const std::byte* at) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
}

/// Q4_0: an F16 scale, 32 weights of four bits less 8.
struct LoadQ4_0 : Loader {
  const WeightMatrix& weights;
  explicit LoadQ4_0(const WeightMatrix& matrix) : weights(matrix) {}
  KEYNEST_BF16_INLINE __m512i operator()(int /*index*/, int row, int block) const {
    const std::byte* at = block_at(weights, row, block, 32, 18);
    return scaled(_mm256_sub_epi8(nibbles(at + 2), _mm256_set1_epi8(8)), half_at(at));
  }
};

/// Q4_1: an F16 scale and an F16 minimum, 32 weights of four bits.
struct LoadQ4_1 : Loader {
  const WeightMatrix& weights;
  explicit LoadQ4_1(const WeightMatrix& matrix) : weights(matrix) {}
  KEYNEST_BF16_INLINE __m512i operator()(int /*index*/, int row, int block) const {
    const std::byte* at = block_at(weights, row, block, 32, 20);
    return scaled(nibbles(at + 4), half_at(at), half_at(at + 2));
  }
};

/// Lanes with 16 where `bits` has a one.
KEYNEST_BF16_INLINE __m256i sixteens(std::uint32_t bits) {
  return _mm256_maskz_mov_epi8(bits, _mm256_set1_epi8(16));
}

/// Q5_0: an F16 scale, the fifth bits of 32 weights, their low four bits; less 16.
struct LoadQ5_0 : Loader {
  const WeightMatrix& weights;
  explicit LoadQ5_0(const WeightMatrix& matrix) : weights(matrix) {}
  KEYNEST_BF16_INLINE __m512i operator()(int /*index*/, int row, int block) const {
    const std::byte* at = block_at(weights, row, block, 32, 22);
    std::uint32_t fifth;
    std::memcpy(&fifth, at + 2, sizeof fifth);
    // low + 16 fifth - 16
    const __m256i low = nibbles(at + 6);
    return scaled(_mm256_mask_sub_epi8(low, ~fifth, low, _mm256_set1_epi8(16)), half_at(at));
  }
};

/// Q5_1: an F16 scale and an F16 minimum, the fifth bits of 32 weights, their low four bits.
struct LoadQ5_1 : Loader {
  const WeightMatrix& weights;
  explicit LoadQ5_1(const WeightMatrix& matrix) : weights(matrix) {}
  KEYNEST_BF16_INLINE __m512i operator()(int /*index*/, int row, int block) const {
    const std::byte* at = block_at(weights, row, block, 32, 24);
    std::uint32_t fifth;
    std::memcpy(&fifth, at + 4, sizeof fifth);
    return scaled(_mm256_or_si256(nibbles(at + 8), sixteens(fifth)), half_at(at), half_at(at + 2));
  }
};

/// IQ4_NL: an F16 scale, 32 weights of four bits that number 16 fixed values.
struct LoadIQ4_NL : Loader {
  const WeightMatrix& weights;
  explicit LoadIQ4_NL(const WeightMatrix& matrix) : weights(matrix) {}
  KEYNEST_BF16_INLINE __m512i operator()(int /*index*/, int row, int block) const {
    const std::byte* at = block_at(weights, row, block, 32, 18);
    const __m256i values = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113));
    return scaled(_mm256_shuffle_epi8(values, nibbles(at + 2)), half_at(at));
  }
};

/// Q8_0: an F16 scale and 32 signed bytes.
struct LoadQ8_0 : Loader {
  const WeightMatrix& weights;
  explicit LoadQ8_0(const WeightMatrix& matrix) : weights(matrix) {}
  KEYNEST_BF16_INLINE __m512i operator()(int /*index*/, int row, int block) const {
    const std::byte* at = block_at(weights, row, block, 32, 34);
    return scaled(bytes_at(at + 2), half_at(at));
  }
};

/// Scales and minima of 16 rows of a block of Q4_K or Q5_K, of 8 parts: F16 scales of scales and of minima,
/// then eight of both in 6 bits each, of which the last four of both lie apart.
struct PartScales {
  float scales[16][8], minima[16][8];

  KEYNEST_BF16_INLINE void read(int row, const std::byte* at) {
    std::uint32_t packed[3];
    std::memcpy(packed, at + 4, sizeof packed);
    const std::uint32_t high_scales = (packed[2] & 0x0f0f0f0f) | (packed[0] >> 2 & 0x30303030);
    const std::uint32_t high_minima = (packed[2] >> 4 & 0x0f0f0f0f) | (packed[1] >> 2 & 0x30303030);
    store(scales[row], packed[0] & 0x3f3f3f3f, high_scales, half_at(at));
    store(minima[row], packed[1] & 0x3f3f3f3f, high_minima, -half_at(at + 2));
  }

 private:
  KEYNEST_BF16_INLINE static void store(float* out, std::uint32_t low, std::uint32_t high, float scale) {
    const __m128i bytes = _mm_set_epi32(0, 0, static_cast<int>(high), static_cast<int>(low));
    const __m256 numbers = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes));
    _mm256_storeu_ps(out, _mm256_mul_ps(numbers, _mm256_set1_ps(scale)));
  }
};

/// Part 0 .. 7 of 256 nibbles, of which two parts share 32 bytes.
KEYNEST_BF16_INLINE __m256i nibbles_of_part(const std::byte* at, int part) {
  const __m256i both = bytes_at(at + part / 2 * 32);
  const __m256i low = part % 2 == 0 ? both : _mm256_srli_epi16(both, 4);
  return _mm256_and_si256(low, _mm256_set1_epi8(15));
}

/// Q4_K, 256 weights: scales, nibbles.
struct LoadQ4_K {
  const WeightMatrix& weights;
  PartScales parts{};
  KEYNEST_BF16_INLINE void begin(int index, int row, int block) {
    if (block % 8 == 0) parts.read(index, block_at(weights, row, block, 256, 144));
  }
  KEYNEST_BF16_INLINE __m512i operator()(int index, int row, int block) const {
    const std::byte* at = block_at(weights, row, block, 256, 144);
    return scaled(nibbles_of_part(at + 16, block % 8), parts.scales[index][block % 8],
                  parts.minima[index][block % 8]);
  }
};

/// Q5_K, 256 weights: scales, 32 bytes with the fifth bit of a weight of every part, nibbles.
struct LoadQ5_K {
  const WeightMatrix& weights;
  PartScales parts{};
  KEYNEST_BF16_INLINE void begin(int index, int row, int block) {
    if (block % 8 == 0) parts.read(index, block_at(weights, row, block, 256, 176));
  }
  KEYNEST_BF16_INLINE __m512i operator()(int index, int row, int block) const {
    const std::byte* at = block_at(weights, row, block, 256, 176);
    const __m256i bit = _mm256_set1_epi8(static_cast<char>(1 << block % 8));
    const __mmask32 fifth = _mm256_test_epi8_mask(bytes_at(at + 16), bit);
    const __m256i five = _mm256_or_si256(nibbles_of_part(at + 48, block % 8), sixteens(fifth));
    return scaled(five, parts.scales[index][block % 8], parts.minima[index][block % 8]);
  }
};

/// Q6_K, 256 weights: low nibbles, high pairs of bits, a signed byte of scale for 16 weights each, an F16
/// scale; less 32.
struct LoadQ6_K {
  const WeightMatrix& weights;
  float scales[16][16]{};
  KEYNEST_BF16_INLINE void begin(int index, int row, int block) {
    if (block % 8 != 0) return;
    const std::byte* at = block_at(weights, row, block, 256, 210);
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at + 192));
    _mm512_storeu_ps(scales[index], _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes)),
                                                  _mm512_set1_ps(half_at(at + 208))));
  }
  KEYNEST_BF16_INLINE __m512i operator()(int index, int row, int block) const {
    const std::byte* at = block_at(weights, row, block, 256, 210);
    const int half = block % 8 / 4, part = block % 4;
    const __m256i both = bytes_at(at + 64 * half + 32 * (part % 2));
    const __m256i low = _mm256_and_si256(part < 2 ? both : _mm256_srli_epi16(both, 4), _mm256_set1_epi8(15));
    const __m256i pairs = _mm256_srl_epi16(bytes_at(at + 128 + 32 * half), _mm_cvtsi32_si128(2 * part));
    const __m256i high = _mm256_slli_epi16(_mm256_and_si256(pairs, _mm256_set1_epi8(3)), 4);
    const __m256i six = _mm256_sub_epi8(_mm256_or_si256(low, high), _mm256_set1_epi8(32));
    return scaled_halves(six, scales[index][block % 8 * 2], scales[index][block % 8 * 2 + 1]);
  }
};

/// F16: half precision.
struct LoadF16 : Loader {
  const WeightMatrix& weights;
  explicit LoadF16(const WeightMatrix& matrix) : weights(matrix) {}
  KEYNEST_BF16_INLINE __m512i operator()(int /*index*/, int row, int block) const {
    const std::byte* at = block_at(weights, row, block, 32, 64);
    return to_bf16(_mm512_cvtph_ps(bytes_at(at)), _mm512_cvtph_ps(bytes_at(at + 32)));
  }
};

/// BF16: nothing to do.
struct LoadBF16 : Loader {
  const WeightMatrix& weights;
  explicit LoadBF16(const WeightMatrix& matrix) : weights(matrix) {}
  KEYNEST_BF16_INLINE __m512i operator()(int /*index*/, int row, int block) const {
    return _mm512_loadu_si512(block_at(weights, row, block, 32, 64));
  }
};

/// Rows that were converted to float before.
struct LoadFloat {
  const float* rows;  // [row, kPanelDepth]
  int first_block;
  KEYNEST_BF16_INLINE void begin(int /*index*/, int /*row*/, int /*block*/) {}
  KEYNEST_BF16_INLINE __m512i operator()(int index, int /*row*/, int block) const {
    const float* at = rows + static_cast<std::size_t>(index) * kPanelDepth +
                      static_cast<std::size_t>(block - first_block) * kBlockColumns;
    return to_bf16(_mm512_loadu_ps(at), _mm512_loadu_ps(at + 16));
  }
};

}  // namespace
}  // namespace keynest
