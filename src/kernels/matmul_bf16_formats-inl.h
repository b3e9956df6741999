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

float signed_byte(std::byte value) { return static_cast<float>(static_cast<std::int8_t>(value)); }

// A loader gives columns [32 b, 32 b + 32) of a row as BF16. The formats are ggml's.

/// The stored block that holds columns [32 block, 32 block + 32) of a row, in a format of `size` bytes for
/// `columns`.
KEYNEST_BF16_INLINE const std::byte* block_at(const WeightMatrix& weights, int row, int block, int columns,
                                              int size) {
  return weights.data + static_cast<std::size_t>(row) * weights.row_bytes +
         static_cast<std::size_t>(block * kBlockColumns / columns) * static_cast<std::size_t>(size);
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
struct LoadQ4_0 {
  const WeightMatrix& weights;
  KEYNEST_BF16_INLINE __m512i operator()(int row, int block) const {
    const std::byte* at = block_at(weights, row, block, 32, 18);
    return scaled(_mm256_sub_epi8(nibbles(at + 2), _mm256_set1_epi8(8)), half_at(at));
  }
};

/// Q4_1: an F16 scale and an F16 minimum, 32 weights of four bits.
struct LoadQ4_1 {
  const WeightMatrix& weights;
  KEYNEST_BF16_INLINE __m512i operator()(int row, int block) const {
    const std::byte* at = block_at(weights, row, block, 32, 20);
    return scaled(nibbles(at + 4), half_at(at), half_at(at + 2));
  }
};

/// Lanes with 16 where `bits` has a one.
KEYNEST_BF16_INLINE __m256i sixteens(std::uint32_t bits) {
  return _mm256_maskz_mov_epi8(bits, _mm256_set1_epi8(16));
}

/// Q5_0: an F16 scale, the fifth bits of 32 weights, their low four bits; less 16.
struct LoadQ5_0 {
  const WeightMatrix& weights;
  KEYNEST_BF16_INLINE __m512i operator()(int row, int block) const {
    const std::byte* at = block_at(weights, row, block, 32, 22);
    std::uint32_t fifth;
    std::memcpy(&fifth, at + 2, sizeof fifth);
    // low + 16 fifth - 16
    const __m256i low = nibbles(at + 6);
    return scaled(_mm256_mask_sub_epi8(low, ~fifth, low, _mm256_set1_epi8(16)), half_at(at));
  }
};

/// Q5_1: an F16 scale and an F16 minimum, the fifth bits of 32 weights, their low four bits.
struct LoadQ5_1 {
  const WeightMatrix& weights;
  KEYNEST_BF16_INLINE __m512i operator()(int row, int block) const {
    const std::byte* at = block_at(weights, row, block, 32, 24);
    std::uint32_t fifth;
    std::memcpy(&fifth, at + 4, sizeof fifth);
    return scaled(_mm256_or_si256(nibbles(at + 8), sixteens(fifth)), half_at(at), half_at(at + 2));
  }
};

/// IQ4_NL: an F16 scale, 32 weights of four bits that number 16 fixed values.
struct LoadIQ4_NL {
  const WeightMatrix& weights;
  KEYNEST_BF16_INLINE __m512i operator()(int row, int block) const {
    const std::byte* at = block_at(weights, row, block, 32, 18);
    const __m256i values = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113));
    return scaled(_mm256_shuffle_epi8(values, nibbles(at + 2)), half_at(at));
  }
};

/// Q8_0: an F16 scale and 32 signed bytes.
struct LoadQ8_0 {
  const WeightMatrix& weights;
  KEYNEST_BF16_INLINE __m512i operator()(int row, int block) const {
    const std::byte* at = block_at(weights, row, block, 32, 34);
    return scaled(bytes_at(at + 2), half_at(at));
  }
};

/// The scale and the minimum of part 0 .. 7 of a block of Q4_K or Q5_K: F16 scales of scales and minima, then
/// eight of both in 6 bits each.
struct PartScale {
  float scale, minimum;
  KEYNEST_BF16_INLINE PartScale(const std::byte* at, int part) {
    const auto packed = [&](int i) { return std::to_integer<unsigned>(at[4 + i]); };
    const unsigned six =
        part < 4 ? packed(part) & 63 : (packed(part + 4) & 15) | (packed(part - 4) >> 6) << 4;
    const unsigned low = part < 4 ? packed(part + 4) & 63 : packed(part + 4) >> 4 | (packed(part) >> 6) << 4;
    scale = half_at(at) * static_cast<float>(six);
    minimum = half_at(at + 2) * static_cast<float>(low);
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
  KEYNEST_BF16_INLINE __m512i operator()(int row, int block) const {
    const std::byte* at = block_at(weights, row, block, 256, 144);
    const PartScale part(at, block % 8);
    return scaled(nibbles_of_part(at + 16, block % 8), part.scale, -part.minimum);
  }
};

/// Q5_K, 256 weights: scales, 32 bytes with the fifth bit of a weight of every part, nibbles.
struct LoadQ5_K {
  const WeightMatrix& weights;
  KEYNEST_BF16_INLINE __m512i operator()(int row, int block) const {
    const std::byte* at = block_at(weights, row, block, 256, 176);
    const PartScale part(at, block % 8);
    const __mmask32 fifth =
        _mm256_test_epi8_mask(bytes_at(at + 16), _mm256_set1_epi8(static_cast<char>(1 << block % 8)));
    const __m256i five = _mm256_or_si256(nibbles_of_part(at + 48, block % 8), sixteens(fifth));
    return scaled(five, part.scale, -part.minimum);
  }
};

/// Q6_K, 256 weights: low nibbles, high pairs of bits, a signed byte of scale for 16 weights each, an F16
/// scale; less 32.
struct LoadQ6_K {
  const WeightMatrix& weights;
  KEYNEST_BF16_INLINE __m512i operator()(int row, int block) const {
    const std::byte* at = block_at(weights, row, block, 256, 210);
    const int half = block % 8 / 4, part = block % 4;
    const __m256i both = bytes_at(at + 64 * half + 32 * (part % 2));
    const __m256i low = _mm256_and_si256(part < 2 ? both : _mm256_srli_epi16(both, 4), _mm256_set1_epi8(15));
    const __m256i pairs = _mm256_srl_epi16(bytes_at(at + 128 + 32 * half), _mm_cvtsi32_si128(2 * part));
    const __m256i high = _mm256_slli_epi16(_mm256_and_si256(pairs, _mm256_set1_epi8(3)), 4);
    const __m256i six = _mm256_sub_epi8(_mm256_or_si256(low, high), _mm256_set1_epi8(32));
    const float scale = half_at(at + 208);
    const std::byte* scales = at + 192 + 8 * half + 2 * part;
    return scaled_halves(six, scale * signed_byte(scales[0]), scale * signed_byte(scales[1]));
  }
};

/// F16: half precision.
struct LoadF16 {
  const WeightMatrix& weights;
  KEYNEST_BF16_INLINE __m512i operator()(int row, int block) const {
    const std::byte* at = block_at(weights, row, block, 32, 64);
    return to_bf16(_mm512_cvtph_ps(bytes_at(at)), _mm512_cvtph_ps(bytes_at(at + 32)));
  }
};

/// BF16: nothing to do.
struct LoadBF16 {
  const WeightMatrix& weights;
  KEYNEST_BF16_INLINE __m512i operator()(int row, int block) const {
    return _mm512_loadu_si512(block_at(weights, row, block, 32, 64));
  }
};

/// Rows that were converted to float before.
struct LoadFloat {
  const float* rows;  // [row, kPanelDepth]
  int first_row, first_block;
  KEYNEST_BF16_INLINE __m512i operator()(int row, int block) const {
    const float* at = rows + static_cast<std::size_t>(row - first_row) * kPanelDepth +
                      static_cast<std::size_t>(block - first_block) * kBlockColumns;
    return to_bf16(_mm512_loadu_ps(at), _mm512_loadu_ps(at + 16));
  }
};

}  // namespace
}  // namespace keynest
