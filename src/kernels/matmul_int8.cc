// Dot products of rows of 4 to 6 bits with few tokens by AVX-512 VNNI: 64 weights as unsigned bytes times 64
// activations rounded to signed ones. A single token reads every weight once, so what counts is how few
// instructions a weight takes; nothing is packed.
#include "kernels/matmul.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <cstring>

// GCC 12's own intrinsics, inlined, look uninitialised to it.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"

#define KEYNEST_VNNI __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,f16c,fma")))
#define KEYNEST_VNNI_INLINE KEYNEST_VNNI __attribute__((always_inline)) inline

namespace keynest {
namespace {

constexpr int kStepColumns = 64;
constexpr int kTileTokens = 4;

/// 64 activations of one token. Lane i of the vectors belongs to numbers 4 i .. 4 i + 3.
struct alignas(64) Step {
  std::int8_t numbers[kStepColumns];
  std::int32_t start[16];  // what takes the zero of the unsigned weights off
  float scales[16];
  float sums[16];  // of four numbers, as floats
};

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

template <int steps, int zero, Minima minima>
struct Row {
  static constexpr int kSteps = steps;
  static constexpr int kZero = zero;  // of the unsigned bytes
  static constexpr Minima kMinima = minima;
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
    return {bytes, _mm512_permutexvar_ps(lanes, numbers), _mm512_setzero_ps()};
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

struct RowQ6_K : Row<4, 32, kNoMinima> {
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

template <class Row>
KEYNEST_VNNI_INLINE __m512 add(const Weights& weights, const Step& x, __m512 sum) {
  const __m512i start = Row::kZero == 0 ? _mm512_setzero_si512() : _mm512_load_si512(x.start);
  const __m512i products = _mm512_dpbusd_epi32(start, weights.bytes, _mm512_load_si512(x.numbers));
  const __m512 scales = _mm512_mul_ps(weights.scales, _mm512_load_ps(x.scales));
  sum = _mm512_fmadd_ps(_mm512_cvtepi32_ps(products), scales, sum);
  if constexpr (Row::kMinima != kMinimaOfSteps) return sum;
  return _mm512_fmadd_ps(weights.minima, _mm512_load_ps(x.sums), sum);
}

/// The rounded activations of all tokens.
struct Rounded {
  const Step* steps;  // [tokens, columns / 64]
  const float* sums;  // [tokens, columns / 32]
  int columns;
  int step_count() const { return columns / kStepColumns; }
};

/// out[token] of one row for kTokens tokens.
template <class Row, int kTokens>
KEYNEST_VNNI_INLINE void dot(const std::byte* stored, const Rounded& x, float* out, std::size_t out_stride) {
  const int steps = x.step_count();
  __m512 sums[kTokens], others[kTokens];  // two, since an addition waits for the one before
#pragma GCC unroll 4
  for (int t = 0; t < kTokens; ++t) sums[t] = others[t] = _mm512_setzero_ps();
  Row row;
  for (int group = 0; group < steps / Row::kSteps; ++group) {
    row.begin(stored, group);
#pragma GCC unroll 4
    for (int i = 0; i < Row::kSteps; ++i) {
      const Weights weights = row.step(i);
#pragma GCC unroll 4
      for (int t = 0; t < kTokens; ++t) {
        const Step& step = x.steps[t * steps + group * Row::kSteps + i];
        if (i % 2 == 0)
          sums[t] = add<Row>(weights, step, sums[t]);
        else
          others[t] = add<Row>(weights, step, others[t]);
      }
    }
    if constexpr (Row::kMinima == kMinimaOfGroups) {
#pragma GCC unroll 4
      for (int t = 0; t < kTokens; ++t) others[t] = row.minima(x.sums + 2 * t * steps + 8 * group, others[t]);
    }
  }
#pragma GCC unroll 4
  for (int t = 0; t < kTokens; ++t) {
    out[static_cast<std::size_t>(t) * out_stride] = _mm512_reduce_add_ps(_mm512_add_ps(sums[t], others[t]));
  }
}

/// Rows of a matrix times all tokens, kTokens at a time.
template <class Row, int kTokens>
KEYNEST_VNNI void dots(const WeightMatrix& w, int first_row, int rows, const Rounded& x, int tokens,
                       float* out, std::size_t out_stride) {
  if constexpr (kTokens > 1) {
    if (tokens < kTokens) return dots<Row, kTokens - 1>(w, first_row, rows, x, tokens, out, out_stride);
  }
  for (int row = first_row; row < first_row + rows; ++row) {
    dot<Row, kTokens>(w.data + static_cast<std::size_t>(row) * w.row_bytes, x, out + row, out_stride);
  }
  if (tokens > kTokens) {
    const Rounded rest{x.steps + kTokens * x.step_count(), x.sums + 2 * kTokens * x.step_count(), x.columns};
    dots<Row, kTokens>(w, first_row, rows, rest, tokens - kTokens,
                       out + static_cast<std::size_t>(kTokens) * out_stride, out_stride);
  }
}

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

/// 32 activations, rounded with one scale: half of a step. Returns their sum after rounding.
KEYNEST_VNNI float round_block(const float* x, int zero, Step& step, int half) {
  const __m512 a = _mm512_loadu_ps(x), b = _mm512_loadu_ps(x + 16);
  const float largest = _mm512_reduce_max_ps(_mm512_max_ps(_mm512_abs_ps(a), _mm512_abs_ps(b)));
  const float scale = largest / 127.0f, inverse = largest > 0 ? 127.0f / largest : 0.0f;
  const __m512i ints[] = {_mm512_cvtps_epi32(_mm512_mul_ps(a, _mm512_set1_ps(inverse))),
                          _mm512_cvtps_epi32(_mm512_mul_ps(b, _mm512_set1_ps(inverse)))};
  for (int i = 0; i < 2; ++i) {
    _mm_store_si128(reinterpret_cast<__m128i*>(step.numbers + 32 * half + 16 * i),
                    _mm512_cvtepi32_epi8(ints[i]));
  }
  const __m256i numbers = _mm256_load_si256(reinterpret_cast<const __m256i*>(step.numbers + 32 * half));
  const __m256i sums = _mm256_dpbusd_epi32(_mm256_setzero_si256(), _mm256_set1_epi8(1), numbers);
  _mm256_store_si256(reinterpret_cast<__m256i*>(step.start + 8 * half),
                     _mm256_mullo_epi32(sums, _mm256_set1_epi32(-zero)));
  _mm256_store_ps(step.scales + 8 * half, _mm256_set1_ps(scale));
  const __m256 real = _mm256_mul_ps(_mm256_cvtepi32_ps(sums), _mm256_set1_ps(scale));
  _mm256_store_ps(step.sums + 8 * half, real);
  return _mm512_reduce_add_ps(_mm512_zextps256_ps512(real));
}

}  // namespace

bool int8_matmul_supported(WeightFormat format, int columns) {
  const bool cpu = __builtin_cpu_supports("avx512bw") != 0 && __builtin_cpu_supports("avx512vl") != 0 &&
                   __builtin_cpu_supports("avx512dq") != 0 && __builtin_cpu_supports("avx512vnni") != 0;
  return cpu && columns % kStepColumns == 0 && with_row(format, [](auto) {});
}

std::size_t int8_matmul_scratch_bytes(int columns, int tokens) {
  const auto steps = static_cast<std::size_t>(columns / kStepColumns) * static_cast<std::size_t>(tokens);
  return (sizeof(Step) + 2 * sizeof(float)) * steps;
}

void int8_matmul_round(WeightFormat format, const float* activations, int columns, int tokens,
                       void* scratch) {
  auto* steps = static_cast<Step*>(scratch);
  auto* sums = reinterpret_cast<float*>(steps + columns / kStepColumns * tokens);
  with_row(format, [&](auto tag) {
    for (int block = 0; block < columns / 32 * tokens; ++block) {
      sums[block] = round_block(activations + static_cast<std::size_t>(block) * 32,
                                decltype(tag)::Type::kZero, steps[block / 2], block % 2);
    }
  });
}

void int8_matmul_rows(const WeightMatrix& weights, int first_row, int rows, int tokens, float* out,
                      std::size_t out_stride, const void* scratch) {
  const auto* steps = static_cast<const Step*>(scratch);
  const Rounded x{steps, reinterpret_cast<const float*>(steps + weights.columns / kStepColumns * tokens),
                  weights.columns};
  with_row(weights.format, [&](auto tag) {
    dots<typename decltype(tag)::Type, kTileTokens>(weights, first_row, rows, x, tokens, out, out_stride);
  });
}

}  // namespace keynest

#else  // other compilers and processors

namespace keynest {

bool int8_matmul_supported(WeightFormat, int) { return false; }
std::size_t int8_matmul_scratch_bytes(int, int) { return 0; }
void int8_matmul_round(WeightFormat, const float*, int, int, void*) {}
void int8_matmul_rows(const WeightMatrix&, int, int, int, float*, std::size_t, const void*) {}

}  // namespace keynest

#endif
