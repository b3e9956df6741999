// AVX-512 BF16 by intrinsics behind a CPU check: Debian's Highway has no BF16 dot product.
#include <algorithm>

#include "kernels/matmul.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

// GCC 12's own intrinsics, inlined, look uninitialised to it.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"

#include "kernels/matmul_bf16_formats-inl.h"
#include "kernels/transpose-inl.h"

namespace keynest {
namespace {

constexpr int kPanelVectors = kPanelRows / kLanes;
constexpr int kTileTokens = 8;  // 8 x 3 accumulators, 3 vectors of weights, 1 of activations

/// Blocks [first_block, last_block) of 16 rows (those from `rows` on are zero) as group `group` of a panel:
/// panel[column pair, kPanelRows].
template <class Load>
KEYNEST_BF16 __attribute__((noinline)) void pack_group(Load load, int first_row, int rows, int first_block,
                                                       int last_block, int group, std::uint32_t* panel) {
  std::uint32_t* out = panel + group * kLanes;
  for (int block = first_block; block < last_block; ++block, out += kLanes * kPanelRows) {
    __m512i words[kLanes];
    for (int i = 0; i < rows; ++i) load.begin(i, first_row + i, block);
    for (int i = 0; i < kLanes; ++i)
      words[i] = i < rows ? load(i, first_row + i, block) : _mm512_setzero_si512();
    transpose(words);
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
  const std::uint32_t* activations;  // [tokens, stride] pairs of BF16
  std::size_t stride;
  int pairs, rows, tokens;
  bool add;
  float* out;
  std::size_t out_stride;

  template <int kVectors>
  void run() const {
    for (int token = 0; token < tokens; token += kTileTokens) {
      tile<kTileTokens, kVectors>(std::min(kTileTokens, tokens - token),
                                  activations + static_cast<std::size_t>(token) * stride,
                                  out + static_cast<std::size_t>(token) * out_stride);
    }
  }

  template <int kTokens, int kVectors>
  void tile(int count, const std::uint32_t* from, float* to) const {
    if constexpr (kTokens > 1) {
      if (count < kTokens) return tile<kTokens - 1, kVectors>(count, from, to);
    }
    const int lanes = rows - (kVectors - 1) * kLanes;
    multiply<kTokens, kVectors>(from, stride, panel, pairs, add, to, out_stride,
                                static_cast<__mmask16>((1u << lanes) - 1));
  }
};

constexpr std::size_t kPanelWords = std::size_t{kPanelDepth} / 2 * kPanelRows;

/// Columns [column, column + columns) of the rows of a panel.
void pack_panel(const WeightMatrix& w, int first_row, int rows, int column, int columns, std::uint32_t* panel,
                float* converted) {
  const int first_block = column / kBlockColumns, last_block = (column + columns) / kBlockColumns;
  for (int group = 0; group * kLanes < rows; ++group) {
    const int first = first_row + group * kLanes, count = std::min(kLanes, rows - group * kLanes);
    const auto pack = [&](const auto& load) {
      pack_group(load, first, count, first_block, last_block, group, panel);
    };
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
      case WeightFormat::kQ5_1:
        pack(LoadQ5_1{w});
        break;
      case WeightFormat::kQ8_0:
        pack(LoadQ8_0{w});
        break;
      case WeightFormat::kQ4_K:
        pack(LoadQ4_K{w});
        break;
      case WeightFormat::kQ5_K:
        pack(LoadQ5_K{w});
        break;
      case WeightFormat::kQ6_K:
        pack(LoadQ6_K{w});
        break;
      case WeightFormat::kIQ4_NL:
        pack(LoadIQ4_NL{w});
        break;
      case WeightFormat::kF16:
        pack(LoadF16{w});
        break;
      case WeightFormat::kBF16:
        pack(LoadBF16{w});
        break;
      case WeightFormat::kOther:
        convert_rows(w, first, count, column, columns, converted, kPanelDepth);
        pack(LoadFloat{converted, first_block});
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
  const auto* pairs = reinterpret_cast<const std::uint32_t*>(activations);
  for (int column = 0; column < weights.columns; column += kPanelDepth) {
    const int columns = std::min(kPanelDepth, weights.columns - column);
    pack_panel(weights, first_row, rows, column, columns, panel,
               reinterpret_cast<float*>(panel + kPanelWords));
    const PanelProduct product{panel,
                               pairs + column / 2,
                               static_cast<std::size_t>(weights.columns / 2),
                               columns / 2,
                               rows,
                               tokens,
                               column > 0,
                               out + first_row,
                               out_stride};
    static_assert(kPanelVectors == 3);
    if (rows <= kLanes)
      product.run<1>();
    else if (rows <= 2 * kLanes)
      product.run<2>();
    else
      product.run<3>();
  }
}

std::size_t bf16_matmul_scratch_bytes() {
  return kPanelWords * sizeof(std::uint32_t) + sizeof(float) * kLanes * kPanelDepth;
}

}  // namespace keynest

#else  // other compilers and processors

namespace keynest {

bool bf16_matmul_supported() { return false; }
std::size_t bf16_matmul_scratch_bytes() { return 0; }
void bf16_matmul_panel(const WeightMatrix&, int, int, const std::uint16_t*, int, float*, std::size_t, void*) {
}

}  // namespace keynest

#endif
