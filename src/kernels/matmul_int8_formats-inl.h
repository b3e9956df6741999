// Weights of 4 to 8 bits as unsigned bytes with a scale, 64 columns of a row at a time, by AVX-512
// intrinsics. Part of matmul_int8.cc and matmul_int8_panel.cc.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/matmul.h"

// GCC 12's own intrinsics, inlined, look uninitialised to it.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"

#define KEYNEST_VNNI __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,f16c,fma")))
#define KEYNEST_VNNI_INLINE KEYNEST_VNNI __attribute__((always_inline)) inline

namespace keynest {
namespace {

constexpr int kStepColumns = 64;

inline bool cpu_has_vnni() {
  return __builtin_cpu_supports("avx512bw") != 0 && __builtin_cpu_supports("avx512vl") != 0 &&
         __builtin_cpu_supports("avx512dq") != 0 && __builtin_cpu_supports("avx512vnni") != 0;
}

/// 64 weights: (byte - zero) * scale + minimum.
struct Weights {
  __m512i bytes;
  __m512 scales, minima;
};

KEYNEST_VNNI_INLINE __m128i sixteen(const std::byte* at) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
}
KEYNEST_VNNI_INLINE __m256i thirty_two(const std::byte* at) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
}
template <class T>
KEYNEST_VNNI_INLINE T number_at(const std::byte* at) {
  T number;
  std::memcpy(&number, at, sizeof number);
  return number;
}

/// Two blocks of 32 nibbles in order.
KEYNEST_VNNI_INLINE __m512i nibbles(const std::byte* first, const std::byte* second) {
  const __m256i both = _mm256_inserti128_si256(_mm256_castsi128_si256(sixteen(first)), sixteen(second), 1);
  const __m512i halves = _mm512_inserti64x4(_mm512_castsi256_si512(both), _mm256_srli_epi16(both, 4), 1);
  const __m512i low = _mm512_and_si512(halves, _mm512_set1_epi8(15));
  return _mm512_shuffle_i64x2(low, low, 0xd8);
}

/// Lane `first` for the first block and lane `second` for the second one.
KEYNEST_VNNI_INLINE __m512 for_blocks(__m128 numbers, int first, int second) {
  const __m512i lanes = _mm512_inserti64x4(_mm512_set1_epi32(first), _mm256_set1_epi32(second), 1);
  return _mm512_permutexvar_ps(lanes, _mm512_castps128_ps512(numbers));
}

/// The F16 that blocks of 32 begin with, of two blocks.
KEYNEST_VNNI_INLINE __m512 block_scales(const std::byte* first, const std::byte* second) {
  const std::uint32_t bits =
      number_at<std::uint16_t>(first) | static_cast<std::uint32_t>(number_at<std::uint16_t>(second)) << 16;
  return for_blocks(_mm_cvtph_ps(_mm_cvtsi32_si128(static_cast<int>(bits))), 0, 1);
}

KEYNEST_VNNI_INLINE __m512i with_fifth_bits(__m512i low, const std::byte* first, const std::byte* second) {
  const std::uint64_t bits =
      number_at<std::uint32_t>(first) | static_cast<std::uint64_t>(number_at<std::uint32_t>(second)) << 32;
  return _mm512_or_si512(low, _mm512_maskz_mov_epi8(bits, _mm512_set1_epi8(16)));
}

// The formats are described in matmul_bf16_formats-inl.h. begin(row, i) goes to the i-th group of kSteps
// steps, step(j) gives the weights of step j in it.

enum Minima { kNoMinima, kMinimaOfSteps, kMinimaOfGroups };

template <int steps, int zero, Minima minima, int scale_columns = 32>
struct Row {
  static constexpr int kSteps = steps;
  static constexpr int kZero = zero;  // of the unsigned bytes
  static constexpr Minima kMinima = minima;
  static constexpr int kScaleColumns = scale_columns;  // that share a scale
};

struct RowQ4_0 : Row<1, 8, kNoMinima> {
  const std::byte* a;
  KEYNEST_VNNI_INLINE void begin(const std::byte* row, int i) { a = row + i * 36; }
  KEYNEST_VNNI_INLINE Weights step(int) const {
    const std::byte* b = a + 18;
    return {nibbles(a + 2, b + 2), block_scales(a, b), _mm512_setzero_ps()};
  }
};

struct RowIQ4_NL : Row<1, 128, kNoMinima> {
  const std::byte* a;
  KEYNEST_VNNI_INLINE void begin(const std::byte* row, int i) { a = row + i * 36; }
  KEYNEST_VNNI_INLINE Weights step(int) const {
    const std::byte* b = a + 18;
    const __m128i values =
        _mm_setr_epi8(1, 24, 45, 63, 79, 93, 106, 118, static_cast<char>(129), static_cast<char>(141),
                      static_cast<char>(153), static_cast<char>(166), static_cast<char>(181),
                      static_cast<char>(197), static_cast<char>(217), static_cast<char>(241));
    return {_mm512_shuffle_epi8(_mm512_broadcast_i32x4(values), nibbles(a + 2, b + 2)), block_scales(a, b),
            _mm512_setzero_ps()};
  }
};

struct RowQ5_0 : Row<1, 16, kNoMinima> {
  const std::byte* a;
  KEYNEST_VNNI_INLINE void begin(const std::byte* row, int i) { a = row + i * 44; }
  KEYNEST_VNNI_INLINE Weights step(int) const {
    const std::byte* b = a + 22;
    return {with_fifth_bits(nibbles(a + 6, b + 6), a + 2, b + 2), block_scales(a, b), _mm512_setzero_ps()};
  }
};

struct RowQ8_0 : Row<1, 128, kNoMinima> {
  const std::byte* a;
  KEYNEST_VNNI_INLINE void begin(const std::byte* row, int i) { a = row + i * 68; }
  KEYNEST_VNNI_INLINE Weights step(int) const {
    const std::byte* b = a + 34;
    const __m512i numbers =
        _mm512_inserti64x4(_mm512_castsi256_si512(thirty_two(a + 2)), thirty_two(b + 2), 1);
    return {_mm512_xor_si512(numbers, _mm512_set1_epi8(static_cast<char>(0x80))), block_scales(a, b),
            _mm512_setzero_ps()};
  }
};

/// Scales and minima of two blocks that begin with an F16 of each.
KEYNEST_VNNI_INLINE Weights with_minima(__m512i bytes, const std::byte* first, const std::byte* second) {
  const __m128 numbers =
      _mm_cvtph_ps(_mm_set_epi32(0, 0, number_at<std::int32_t>(second), number_at<std::int32_t>(first)));
  return {bytes, for_blocks(numbers, 0, 2), for_blocks(numbers, 1, 3)};
}

struct RowQ4_1 : Row<1, 0, kMinimaOfSteps> {
  const std::byte* a;
  KEYNEST_VNNI_INLINE void begin(const std::byte* row, int i) { a = row + i * 40; }
  KEYNEST_VNNI_INLINE Weights step(int) const {
    const std::byte* b = a + 20;
    return with_minima(nibbles(a + 4, b + 4), a, b);
  }
};

struct RowQ5_1 : Row<1, 0, kMinimaOfSteps> {
  const std::byte* a;
  KEYNEST_VNNI_INLINE void begin(const std::byte* row, int i) { a = row + i * 48; }
  KEYNEST_VNNI_INLINE Weights step(int) const {
    const std::byte* b = a + 24;
    return with_minima(with_fifth_bits(nibbles(a + 8, b + 8), a + 4, b + 4), a, b);
  }
};

/// The scales and minima of 8 parts of a block of Q4_K or Q5_K.
struct PartScales {
  __m512 numbers;  // 8 scales, 8 minima
  KEYNEST_VNNI_INLINE void read(const std::byte* at) {
    // Words 0 and 1 hold the first four scales and minima, and in the high pairs of their bits, with nibbles
    // of word 2, the last four.
    const __m128i packed = sixteen(at + 4);
    const __m128i first = _mm_srlv_epi32(_mm_shuffle_epi32(packed, 0x50), _mm_setr_epi32(0, 2, 0, 2));
    const __m128i last = _mm_srlv_epi32(_mm_shuffle_epi32(packed, 0xaa), _mm_setr_epi32(32, 0, 32, 4));
    const __m128i six =
        _mm_or_si128(_mm_and_si128(first, _mm_setr_epi32(0x3f3f3f3f, 0x30303030, 0x3f3f3f3f, 0x30303030)),
                     _mm_and_si128(last, _mm_set1_epi32(0x0f0f0f0f)));
    const __m128 scales = _mm_cvtph_ps(_mm_cvtsi32_si128(number_at<std::int32_t>(at)));
    numbers = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(six)), for_blocks(scales, 0, 1));
  }
  KEYNEST_VNNI_INLINE Weights with(__m512i bytes, int pair) const {
    const __m512i lanes = _mm512_inserti64x4(_mm512_set1_epi32(2 * pair), _mm256_set1_epi32(2 * pair + 1), 1);
    const __m512 minima = _mm512_permutexvar_ps(_mm512_add_epi32(lanes, _mm512_set1_epi32(8)), numbers);
    return {bytes, _mm512_permutexvar_ps(lanes, numbers), _mm512_sub_ps(_mm512_setzero_ps(), minima)};
  }
  /// Takes the minima of 256 weights off lanes that are to be added up. `sums` are those of the 8 blocks of
  /// activations.
  KEYNEST_VNNI_INLINE __m512 times(const float* sums, __m512 to) const {
    const __m256 minima = _mm512_extractf32x8_ps(numbers, 1);
    return _mm512_fnmadd_ps(_mm512_zextps256_ps512(minima), _mm512_zextps256_ps512(_mm256_loadu_ps(sums)),
                            to);
  }
};

/// 32 bytes as their low nibbles, then their high ones.
KEYNEST_VNNI_INLINE __m512i low_then_high(const std::byte* at) {
  const __m256i both = thirty_two(at);
  const __m512i halves = _mm512_inserti64x4(_mm512_castsi256_si512(both), _mm256_srli_epi16(both, 4), 1);
  return _mm512_and_si512(halves, _mm512_set1_epi8(15));
}

/// Q4_K and Q5_K: four steps share their scales.
struct RowWithParts : Row<4, 0, kMinimaOfGroups> {
  PartScales parts;
  KEYNEST_VNNI_INLINE __m512 minima(const float* sums, __m512 to) const { return parts.times(sums, to); }
};

struct RowQ4_K : RowWithParts {
  const std::byte* at;
  KEYNEST_VNNI_INLINE void begin(const std::byte* row, int group) { parts.read(at = row + group * 144); }
  KEYNEST_VNNI_INLINE Weights step(int i) const { return parts.with(low_then_high(at + 16 + i * 32), i); }
};

struct RowQ5_K : RowWithParts {
  const std::byte* at;
  KEYNEST_VNNI_INLINE void begin(const std::byte* row, int group) { parts.read(at = row + group * 176); }
  KEYNEST_VNNI_INLINE Weights step(int i) const {
    const __m512i fifths = _mm512_broadcast_i64x4(thirty_two(at + 16));
    const __m512i bits = _mm512_inserti64x4(_mm512_set1_epi8(static_cast<char>(1 << 2 * i)),
                                            _mm256_set1_epi8(static_cast<char>(2 << 2 * i)), 1);
    const __m512i sixteens = _mm512_maskz_mov_epi8(_mm512_test_epi8_mask(fifths, bits), _mm512_set1_epi8(16));
    return parts.with(_mm512_or_si512(low_then_high(at + 48 + i * 32), sixteens), i);
  }
};

struct RowQ6_K : Row<4, 32, kNoMinima, 16> {
  const std::byte* at;
  __m512 scales;  // of 16 weights each
  KEYNEST_VNNI_INLINE void begin(const std::byte* row, int group) {
    at = row + group * 210;
    const __m128 scale = _mm_cvtph_ps(_mm_cvtsi32_si128(number_at<std::uint16_t>(at + 208)));
    scales = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(sixteen(at + 192))),
                           _mm512_broadcastss_ps(scale));
  }
  KEYNEST_VNNI_INLINE Weights step(int i) const {
    const __m512i both = _mm512_loadu_si512(at + 64 * (i / 2));
    const __m512i low =
        _mm512_and_si512(i % 2 == 0 ? both : _mm512_srli_epi16(both, 4), _mm512_set1_epi8(15));
    const __m256i pairs = _mm256_srli_epi16(thirty_two(at + 128 + 32 * (i / 2)), i % 2 * 4);
    const __m512i high =
        _mm512_and_si512(_mm512_inserti64x4(_mm512_castsi256_si512(pairs), _mm256_srli_epi16(pairs, 2), 1),
                         _mm512_set1_epi8(3));
    const __m512i lanes = _mm512_add_epi32(_mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3),
                                           _mm512_set1_epi32(4 * i));
    return {_mm512_or_si512(low, _mm512_slli_epi16(high, 4)), _mm512_permutexvar_ps(lanes, scales),
            _mm512_setzero_ps()};
  }
};

template <class T>
struct Tag {
  using Type = T;
};

/// Calls take(Tag<loader>()) for the format; false for those without one.
template <class Take>
bool with_row(WeightFormat format, const Take& take) {
  switch (format) {
    case WeightFormat::kQ4_0:
      return take(Tag<RowQ4_0>()), true;
    case WeightFormat::kQ4_1:
      return take(Tag<RowQ4_1>()), true;
    case WeightFormat::kQ5_0:
      return take(Tag<RowQ5_0>()), true;
    case WeightFormat::kQ5_1:
      return take(Tag<RowQ5_1>()), true;
    case WeightFormat::kQ8_0:
      return take(Tag<RowQ8_0>()), true;
    case WeightFormat::kQ4_K:
      return take(Tag<RowQ4_K>()), true;
    case WeightFormat::kQ5_K:
      return take(Tag<RowQ5_K>()), true;
    case WeightFormat::kQ6_K:
      return take(Tag<RowQ6_K>()), true;
    case WeightFormat::kIQ4_NL:
      return take(Tag<RowIQ4_NL>()), true;
    default:
      return false;
  }
}

}  // namespace
}  // namespace keynest
