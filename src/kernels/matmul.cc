// AVX-512 BF16 by intrinsics behind a CPU check: Debian's Highway has no BF16 dot product.
#include "kernels/matmul.h"

#include <algorithm>
#include <cstring>

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

// GCC 12's own intrinsics, inlined, look uninitialised to it.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"

#define KEYNEST_BF16 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,f16c,fma")))
#define KEYNEST_BF16_INLINE KEYNEST_BF16 __attribute__((always_inline)) inline

namespace keynest {
namespace {

constexpr int kLanes = 16;  // rows side by side in a vector
constexpr int kPanelVectors = kPanelRows / kLanes;
constexpr int kTileTokens = 8;     // 8 x 3 accumulators, 3 vectors of weights, 1 of activations
constexpr int kBlockColumns = 32;  // of the quantised formats, and of a transposed tile (as 16 pairs)
constexpr int kDepth = 1024;       // columns between two visits of the output, for the first-level cache

/// 16 x 16 words, transposed in place.
KEYNEST_BF16_INLINE void transpose(__m512i (&rows)[kLanes]) {
  __m512i t[kLanes];
  for (int i = 0; i < 8; ++i) {
    t[2 * i] = _mm512_unpacklo_epi32(rows[2 * i], rows[2 * i + 1]);
    t[2 * i + 1] = _mm512_unpackhi_epi32(rows[2 * i], rows[2 * i + 1]);
  }
  for (int i = 0; i < 16; i += 4) {
    rows[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    rows[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    rows[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    rows[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  for (int i = 0; i < 4; ++i) {
    t[i] = _mm512_shuffle_i32x4(rows[i], rows[4 + i], 0x88);
    t[4 + i] = _mm512_shuffle_i32x4(rows[i], rows[4 + i], 0xdd);
    t[8 + i] = _mm512_shuffle_i32x4(rows[8 + i], rows[12 + i], 0x88);
    t[12 + i] = _mm512_shuffle_i32x4(rows[8 + i], rows[12 + i], 0xdd);
  }
  for (int i = 0; i < 4; ++i) {
    rows[i] = _mm512_shuffle_i32x4(t[i], t[8 + i], 0x88);
    rows[8 + i] = _mm512_shuffle_i32x4(t[i], t[8 + i], 0xdd);
    rows[4 + i] = _mm512_shuffle_i32x4(t[4 + i], t[12 + i], 0x88);
    rows[12 + i] = _mm512_shuffle_i32x4(t[4 + i], t[12 + i], 0xdd);
  }
}

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

/// 32 signed bytes times a scale plus an offset.
KEYNEST_BF16_INLINE __m512i scaled(__m256i bytes, float scale, float offset) {
  const __m512 s = _mm512_set1_ps(scale), o = _mm512_set1_ps(offset);
  return to_bf16(_mm512_fmadd_ps(low_half(bytes), s, o), _mm512_fmadd_ps(high_half(bytes), s, o));
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

/// Q8_0: an F16 scale and 32 signed bytes.
struct LoadQ8_0 {
  const WeightMatrix& weights;
  KEYNEST_BF16_INLINE __m512i operator()(int row, int block) const {
    const std::byte* at = block_at(weights, row, block, 32, 34);
    return scaled(bytes_at(at + 2), half_at(at));
  }
};

/// Q4_K, 256 weights: F16 scales of scales and minima, eight of both in 6 bits each, then nibbles, two blocks
/// of 32 to 32 bytes.
struct LoadQ4_K {
  const WeightMatrix& weights;
  KEYNEST_BF16_INLINE __m512i operator()(int row, int block) const {
    const std::byte* at = block_at(weights, row, block, 256, 144);
    const int part = block % 8;
    const auto packed = [&](int i) { return std::to_integer<unsigned>(at[4 + i]); };
    const unsigned scale =
        part < 4 ? packed(part) & 63 : (packed(part + 4) & 15) | (packed(part - 4) >> 6) << 4;
    const unsigned minimum =
        part < 4 ? packed(part + 4) & 63 : packed(part + 4) >> 4 | (packed(part) >> 6) << 4;
    const __m256i both = bytes_at(at + 16 + part / 2 * 32);
    const __m256i low = part % 2 == 0 ? both : _mm256_srli_epi16(both, 4);
    return scaled(_mm256_and_si256(low, _mm256_set1_epi8(15)), half_at(at) * static_cast<float>(scale),
                  -half_at(at + 2) * static_cast<float>(minimum));
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

/// Rows of a group that were converted to float before.
struct LoadFloat {
  const float* rows;  // [kLanes, columns]
  int first, columns;
  KEYNEST_BF16_INLINE __m512i operator()(int row, int block) const {
    const float* at = rows + static_cast<std::size_t>(row - first) * static_cast<std::size_t>(columns) +
                      static_cast<std::size_t>(block) * kBlockColumns;
    return to_bf16(_mm512_loadu_ps(at), _mm512_loadu_ps(at + 16));
  }
};

/// Columns of panel group `group` (16 rows from first_row, those from `rows` on are zero): panel[column pair,
/// kPanelRows].
template <class Load>
KEYNEST_BF16 __attribute__((noinline)) void pack_group(const Load& load, int first_row, int rows, int columns,
                                                       int group, std::uint32_t* panel) {
  for (int block = 0; block < columns / kBlockColumns; ++block) {
    __m512i words[kLanes];
    for (int i = 0; i < kLanes; ++i)
      words[i] = i < rows ? load(first_row + i, block) : _mm512_setzero_si512();
    transpose(words);
    std::uint32_t* out = panel + static_cast<std::size_t>(block * kLanes) * kPanelRows + group * kLanes;
    for (int i = 0; i < kLanes; ++i) _mm512_store_si512(out + i * kPanelRows, words[i]);
  }
}

/// out[kTokens, vectors * 16] (+)= activations [kTokens, pairs] * panel [pairs, kPanelRows].
template <int kTokens, int kVectors>
KEYNEST_BF16 __attribute__((noinline)) void multiply(const std::uint32_t* activations, std::size_t stride,
                                                     const std::uint32_t* panel, int pairs, bool add,
                                                     float* out, std::size_t out_stride, __mmask16 last) {
  __m512 sums[kTokens][kVectors];
  for (int t = 0; t < kTokens; ++t) {
    for (int v = 0; v < kVectors; ++v) {
      const __mmask16 mask = v == kVectors - 1 ? last : __mmask16{0xffff};
      sums[t][v] =
          add ? _mm512_maskz_loadu_ps(mask, out + static_cast<std::size_t>(t) * out_stride + v * kLanes)
              : _mm512_setzero_ps();
    }
  }
  for (int pair = 0; pair < pairs; ++pair, panel += kPanelRows) {
    __m512bh weights[kVectors];
    for (int v = 0; v < kVectors; ++v) {
      weights[v] = reinterpret_cast<__m512bh>(_mm512_load_si512(panel + v * kLanes));
    }
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) {
      const auto both = reinterpret_cast<__m512bh>(_mm512_set1_epi32(static_cast<int>(
          activations[static_cast<std::size_t>(t) * stride + static_cast<std::size_t>(pair)])));
      for (int v = 0; v < kVectors; ++v) sums[t][v] = _mm512_dpbf16_ps(sums[t][v], weights[v], both);
    }
  }
  for (int t = 0; t < kTokens; ++t) {
    for (int v = 0; v < kVectors; ++v) {
      const __mmask16 mask = v == kVectors - 1 ? last : __mmask16{0xffff};
      _mm512_mask_storeu_ps(out + static_cast<std::size_t>(t) * out_stride + v * kLanes, mask, sums[t][v]);
    }
  }
}

/// The product of one packed panel with all tokens.
struct PanelProduct {
  const std::uint32_t* panel;
  const std::uint32_t* activations;  // [tokens, columns / 2] pairs of BF16
  int columns, rows, tokens;
  float* out;
  std::size_t out_stride;

  template <int kVectors>
  void run() const {
    const std::size_t stride = static_cast<std::size_t>(columns / 2);
    for (int column = 0; column < columns; column += kDepth) {
      const int pairs = std::min(kDepth, columns - column) / 2;
      const std::size_t at = static_cast<std::size_t>(column / 2);
      for (int token = 0; token < tokens; token += kTileTokens) {
        tile<kTileTokens, kVectors>(std::min(kTileTokens, tokens - token),
                                    activations + static_cast<std::size_t>(token) * stride + at, stride,
                                    panel + at * kPanelRows, pairs, column > 0,
                                    out + static_cast<std::size_t>(token) * out_stride);
      }
    }
  }

  template <int kTokens, int kVectors>
  void tile(int count, const std::uint32_t* from, std::size_t stride, const std::uint32_t* weights, int pairs,
            bool add, float* to) const {
    if constexpr (kTokens > 1) {
      if (count < kTokens) return tile<kTokens - 1, kVectors>(count, from, stride, weights, pairs, add, to);
    }
    const int lanes = rows - (kVectors - 1) * kLanes;
    multiply<kTokens, kVectors>(from, stride, weights, pairs, add, to, out_stride,
                                static_cast<__mmask16>((1u << lanes) - 1));
  }
};

std::size_t panel_words(int columns) { return static_cast<std::size_t>(columns / 2) * kPanelRows; }

void convert_rows(const WeightMatrix& w, int first, int rows, float* out) {
  for (int i = 0; i < rows; ++i) {
    w.to_float(w.data + static_cast<std::size_t>(first + i) * w.row_bytes,
               out + static_cast<std::size_t>(i) * static_cast<std::size_t>(w.columns), w.columns);
  }
}

void pack_panel(const WeightMatrix& w, int first_row, int rows, std::uint32_t* panel, float* converted) {
  for (int group = 0; group * kLanes < rows; ++group) {
    const int first = first_row + group * kLanes, count = std::min(kLanes, rows - group * kLanes);
    const auto pack = [&](const auto& load) { pack_group(load, first, count, w.columns, group, panel); };
    switch (w.format) {
      case WeightFormat::kQ4_0:
        pack(LoadQ4_0{w});
        break;
      case WeightFormat::kQ4_1:
        pack(LoadQ4_1{w});
        break;
      case WeightFormat::kQ5_0:
        pack(LoadQ5_0{w});
        break;
      case WeightFormat::kQ8_0:
        pack(LoadQ8_0{w});
        break;
      case WeightFormat::kQ4_K:
        pack(LoadQ4_K{w});
        break;
      case WeightFormat::kQ6_K:
        pack(LoadQ6_K{w});
        break;
      case WeightFormat::kOther:
        convert_rows(w, first, count, converted);
        pack(LoadFloat{converted, first, w.columns});
        break;
    }
  }
}

}  // namespace

bool bf16_matmul_supported() {
  return __builtin_cpu_supports("avx512bw") != 0 && __builtin_cpu_supports("avx512vl") != 0 &&
         __builtin_cpu_supports("avx512dq") != 0 && __builtin_cpu_supports("avx512bf16") != 0;
}

void bf16_matmul_panel(const WeightMatrix& weights, int first_row, int rows, const std::uint16_t* activations,
                       int tokens, float* out, std::size_t out_stride, void* scratch) {
  auto* panel = static_cast<std::uint32_t*>(scratch);
  pack_panel(weights, first_row, rows, panel, reinterpret_cast<float*>(panel + panel_words(weights.columns)));
  const PanelProduct product{panel,           reinterpret_cast<const std::uint32_t*>(activations),
                             weights.columns, rows,
                             tokens,          out + first_row,
                             out_stride};
  switch ((rows + kLanes - 1) / kLanes) {
    case 1:
      return product.run<1>();
    case 2:
      return product.run<2>();
    default:
      static_assert(kPanelVectors == 3);
      return product.run<3>();
  }
}

std::size_t bf16_matmul_scratch_bytes(const WeightMatrix& weights) {
  const std::size_t converted =
      weights.format == WeightFormat::kOther
          ? static_cast<std::size_t>(kLanes) * static_cast<std::size_t>(weights.columns)
          : 0;
  return (panel_words(weights.columns) + converted) * sizeof(float);
}

}  // namespace keynest

#else  // other compilers and processors

namespace keynest {

bool bf16_matmul_supported() { return false; }
std::size_t bf16_matmul_scratch_bytes(const WeightMatrix&) { return 0; }
void bf16_matmul_panel(const WeightMatrix&, int, int, const std::uint16_t*, int, float*, std::size_t, void*) {
}

}  // namespace keynest

#endif

namespace keynest {

// Measured on a Zen 5 core beside ggml's own product; conversion through float costs the most.
int bf16_matmul_least_tokens(WeightFormat format) { return format == WeightFormat::kOther ? 64 : 16; }

}  // namespace keynest
