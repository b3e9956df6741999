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

/// 32 signed bytes times a scale, as 32 BF16.
KEYNEST_BF16_INLINE __m512i scaled(__m256i bytes, float scale) {
  const __m512 s = _mm512_set1_ps(scale);
  const __m512 low = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm256_castsi256_si128(bytes)));
  const __m512 high = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm256_extracti128_si256(bytes, 1)));
  return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(_mm512_mul_ps(high, s), _mm512_mul_ps(low, s)));
}

KEYNEST_BF16_INLINE float half_at(const std::byte* at) {
  std::uint16_t bits;
  std::memcpy(&bits, at, sizeof bits);
  return _cvtsh_ss(bits);
}

// A loader gives columns [32 b, 32 b + 32) of a row as BF16.

/// ggml's Q5_0: an F16 scale, the fifth bits of 32 weights, their low four bits (the second half in the high
/// nibbles).
struct LoadQ5_0 {
  const WeightMatrix& weights;
  KEYNEST_BF16_INLINE __m512i operator()(int row, int block) const {
    const std::byte* at = weights.data + static_cast<std::size_t>(row) * weights.row_bytes +
                          static_cast<std::size_t>(block) * 22;
    std::uint32_t fifth;
    std::memcpy(&fifth, at + 2, sizeof fifth);
    const __m128i nibbles = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at + 6));
    const __m128i mask = _mm_set1_epi8(15);
    const __m256i low =
        _mm256_set_m128i(_mm_and_si128(_mm_srli_epi16(nibbles, 4), mask), _mm_and_si128(nibbles, mask));
    // A weight is low + 16 fifth - 16.
    return scaled(_mm256_mask_sub_epi8(low, ~fifth, low, _mm256_set1_epi8(16)), half_at(at));
  }
};

/// ggml's Q8_0: an F16 scale and 32 signed bytes.
struct LoadQ8_0 {
  const WeightMatrix& weights;
  KEYNEST_BF16_INLINE __m512i operator()(int row, int block) const {
    const std::byte* at = weights.data + static_cast<std::size_t>(row) * weights.row_bytes +
                          static_cast<std::size_t>(block) * 34;
    return scaled(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at + 2)), half_at(at));
  }
};

/// Rows of a group that were converted to float before.
struct LoadFloat {
  const float* rows;  // [kLanes, columns]
  int first, columns;
  KEYNEST_BF16_INLINE __m512i operator()(int row, int block) const {
    const float* at = rows + static_cast<std::size_t>(row - first) * static_cast<std::size_t>(columns) +
                      static_cast<std::size_t>(block) * kBlockColumns;
    return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(_mm512_loadu_ps(at + 16), _mm512_loadu_ps(at)));
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

void pack_panel(const WeightMatrix& w, int first_row, int rows, std::uint32_t* panel, float* converted) {
  for (int group = 0; group * kLanes < rows; ++group) {
    const int first = first_row + group * kLanes, count = std::min(kLanes, rows - group * kLanes);
    switch (w.format) {
      case WeightFormat::kQ5_0:
        pack_group(LoadQ5_0{w}, first, count, w.columns, group, panel);
        break;
      case WeightFormat::kQ8_0:
        pack_group(LoadQ8_0{w}, first, count, w.columns, group, panel);
        break;
      case WeightFormat::kOther:
        for (int i = 0; i < count; ++i) {
          w.to_float(w.data + static_cast<std::size_t>(first + i) * w.row_bytes,
                     converted + static_cast<std::size_t>(i) * static_cast<std::size_t>(w.columns),
                     w.columns);
        }
        pack_group(LoadFloat{converted, first, w.columns}, first, count, w.columns, group, panel);
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
