// Products of blocks of tokens with weights of 4 to 8 bits by AVX-512 VNNI: unsigned bytes of weights times
// activations rounded to signed ones, summed as integers as far as one scale goes, then added up in floats.
// Twice the multiplications of BF16 in an instruction, and what is rounded is what ggml rounds.
#include <algorithm>

#include "kernels/matmul.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include "kernels/matmul_int8_formats-inl.h"
#include "kernels/transpose-inl.h"

namespace keynest {
namespace {

constexpr int kPanelVectors = kPanelRows / kLanes;
constexpr int kTileTokens =
    4;  // 4 x 3 sums of integers and of floats, 3 vectors of weights, 1 of activations
constexpr int kRoundedTokens = 8;  // rounded together
constexpr int kGroupColumns = 32;
constexpr int kQuads = kGroupColumns / 4;

/// 32 activations of eight tokens, rounded with a scale per token.
struct alignas(32) RoundedGroup {
  std::int8_t numbers[kRoundedTokens][kGroupColumns];
  float scales[kRoundedTokens];
  float sums[kRoundedTokens];              // after rounding
  std::int32_t halves[2][kRoundedTokens];  // sums of 16 of the integers
};

/// 32 columns of the rows of a panel, four columns of a row side by side.
struct alignas(64) PanelGroup {
  std::uint8_t bytes[kQuads][4 * kPanelRows];
  float scales[2][kPanelRows];  // of each half where 16 columns share one, else only the first
  float minima[kPanelRows];     // added, where there are any
};

constexpr int kDepth = 512;  // columns of a panel: with four tokens' activations it fits the first cache
constexpr int kPanelGroups = kDepth / kGroupColumns;

// ---- rounding

struct Larger {
  KEYNEST_VNNI_INLINE __m256i operator()(__m256i a, __m256i b) const {
    return _mm256_castps_si256(_mm256_max_ps(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b)));
  }
};
struct Sum {
  KEYNEST_VNNI_INLINE __m256i operator()(__m256i a, __m256i b) const { return _mm256_add_epi32(a, b); }
};

/// What is left when the lanes of eight vectors are merged: of[0] of their low halves, of[1] of their high
/// ones, lane t of vector t.
struct Merged {
  __m256i of[2];
};
template <class Merge>
KEYNEST_VNNI_INLINE Merged merge_lanes(const __m256i (&in)[kRoundedTokens], Merge merge) {
  __m256i quads[2];
  for (int i = 0; i < 2; ++i) {
    __m256i pairs[2];
    for (int j = 0; j < 2; ++j) {
      const __m256i a = in[4 * i + 2 * j], b = in[4 * i + 2 * j + 1];
      pairs[j] = merge(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
    }
    quads[i] = merge(_mm256_unpacklo_epi64(pairs[0], pairs[1]), _mm256_unpackhi_epi64(pairs[0], pairs[1]));
  }
  return {{_mm256_permute2x128_si256(quads[0], quads[1], 0x20),
           _mm256_permute2x128_si256(quads[0], quads[1], 0x31)}};
}

/// 32 columns of up to eight tokens, token t at x + t * stride; zero beyond `tokens`.
struct Block {
  const float* x;
  std::size_t stride;
  int tokens;

  KEYNEST_VNNI_INLINE __m512 half(int t, int i) const {
    if (t >= tokens) return _mm512_setzero_ps();
    return _mm512_loadu_ps(x + static_cast<std::size_t>(t) * stride + i * kLanes);
  }
};

/// The largest magnitude of every token.
KEYNEST_VNNI_INLINE __m256 largest_of(const Block& block) {
  __m256i lanes[kRoundedTokens];
  for (int t = 0; t < kRoundedTokens; ++t) {
    const __m512 both = _mm512_max_ps(_mm512_abs_ps(block.half(t, 0)), _mm512_abs_ps(block.half(t, 1)));
    lanes[t] = Larger()(_mm512_castsi512_si256(_mm512_castps_si512(both)),
                        _mm512_extracti64x4_epi64(_mm512_castps_si512(both), 1));
  }
  const Merged merged = merge_lanes(lanes, Larger());
  return _mm256_castsi256_ps(Larger()(merged.of[0], merged.of[1]));
}

KEYNEST_VNNI_INLINE __m128i to_bytes(__m512 numbers, __m512 factor) {
  return _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(_mm512_mul_ps(numbers, factor)));
}

KEYNEST_VNNI void round_group(const Block& block, RoundedGroup& group) {
  const __m256 largest = largest_of(block), limit = _mm256_set1_ps(127.0f);
  const __m256 scales = _mm256_div_ps(largest, limit);
  const __mmask8 some = _mm256_cmp_ps_mask(largest, _mm256_setzero_ps(), _CMP_GT_OQ);
  alignas(32) float inverses[kRoundedTokens];
  _mm256_store_ps(inverses, _mm256_maskz_div_ps(some, limit, largest));

  __m256i lanes[kRoundedTokens];
  for (int t = 0; t < kRoundedTokens; ++t) {
    const __m512 inverse = _mm512_set1_ps(inverses[t]);
    const __m256i bytes =
        _mm256_set_m128i(to_bytes(block.half(t, 1), inverse), to_bytes(block.half(t, 0), inverse));
    _mm256_store_si256(reinterpret_cast<__m256i*>(group.numbers[t]), bytes);
    lanes[t] = _mm256_dpbusd_epi32(_mm256_setzero_si256(), _mm256_set1_epi8(1), bytes);
  }
  const Merged sums = merge_lanes(lanes, Sum());
  for (int i = 0; i < 2; ++i) _mm256_store_si256(reinterpret_cast<__m256i*>(group.halves[i]), sums.of[i]);
  _mm256_store_ps(group.scales, scales);
  _mm256_store_ps(group.sums, _mm256_mul_ps(_mm256_cvtepi32_ps(Sum()(sums.of[0], sums.of[1])), scales));
}

// ---- packing

/// Lane 4 i of a vector.
template <int i>
KEYNEST_VNNI_INLINE float lane_of_quad(__m512 v) {
  return _mm_cvtss_f32(_mm512_extractf32x4_ps(v, i));
}

/// The scales (and minima) of one row's 64 weights into both groups they belong to.
template <class Row>
KEYNEST_VNNI_INLINE void store_scales(const Weights& weights, PanelGroup* groups, int row) {
  groups[0].scales[0][row] = lane_of_quad<0>(weights.scales);
  groups[1].scales[0][row] = lane_of_quad<2>(weights.scales);
  if constexpr (Row::kScaleColumns < kGroupColumns) {
    groups[0].scales[1][row] = lane_of_quad<1>(weights.scales);
    groups[1].scales[1][row] = lane_of_quad<3>(weights.scales);
  }
  if constexpr (Row::kMinima != kNoMinima) {
    groups[0].minima[row] = lane_of_quad<0>(weights.minima);
    groups[1].minima[row] = lane_of_quad<2>(weights.minima);
  }
}

/// Where up to sixteen rows' columns begin, and the stored bytes that will be wanted next, which are asked
/// for meanwhile: runs this short are none that the CPU foresees.
struct StoredRows {
  const std::byte* first;
  std::size_t row_bytes, step_bytes;
  int count;
  std::ptrdiff_t next;

  KEYNEST_VNNI_INLINE const std::byte* row(int i) const {
    return first + static_cast<std::size_t>(i) * row_bytes;
  }
  KEYNEST_VNNI_INLINE void ask_for_next(int i, int step) const {
    _mm_prefetch(reinterpret_cast<const char*>(row(i) + next) + static_cast<std::size_t>(step) * step_bytes,
                 _MM_HINT_T1);
  }
};

/// Sixteen rows, those that are missing zero, as lanes [lane, lane + 16) of a panel of `groups` groups.
template <class Row>
KEYNEST_VNNI __attribute__((noinline)) void pack_rows(const StoredRows& stored, int groups, int lane,
                                                      PanelGroup* panel) {
  constexpr int kGroups = 2;  // of a step
  Row row[kLanes];
  for (int step = 0; step < groups / kGroups; ++step, panel += kGroups) {
    __m512i words[kLanes];
    for (int i = 0; i < stored.count; ++i) {
      stored.ask_for_next(i, step);
      if (step % Row::kSteps == 0) row[i].begin(stored.row(i), step / Row::kSteps);
      const Weights weights = row[i].step(step % Row::kSteps);
      words[i] = weights.bytes;
      store_scales<Row>(weights, panel, lane + i);
    }
    for (int i = stored.count; i < kLanes; ++i) words[i] = _mm512_setzero_si512();
    transpose(words);
    for (int i = 0; i < kLanes; ++i) {
      _mm512_store_si512(panel[i / kQuads].bytes[i % kQuads] + 4 * lane, words[i]);
    }
  }
}

// ---- multiplying

/// Eight tokens' activations from a panel's first column on, with starts [groups, kParts, kRoundedTokens]
/// that take the zero of the unsigned weights off their sums.
struct Activations {
  const RoundedGroup* groups;
  const std::int32_t* starts;
};

template <int kTokens, int kVectors>
struct Tile {
  __m512 sums[kTokens][kVectors];
  __m512i integers[kTokens][kVectors];

  KEYNEST_VNNI_INLINE void start(const std::int32_t* starts) {
#pragma GCC unroll 4
    for (int t = 0; t < kTokens; ++t) {
      for (int v = 0; v < kVectors; ++v) integers[t][v] = _mm512_set1_epi32(starts[t]);
    }
  }
  /// Four columns of the rows times those of the tokens from `column` on.
  KEYNEST_VNNI_INLINE void add(const std::uint8_t* bytes, const std::int8_t (*numbers)[kGroupColumns],
                               int column) {
    __m512i weights[kVectors];
    for (int v = 0; v < kVectors; ++v) weights[v] = _mm512_load_si512(bytes + v * 4 * kLanes);
#pragma GCC unroll 4
    for (int t = 0; t < kTokens; ++t) {
      std::int32_t four;
      std::memcpy(&four, numbers[t] + column, sizeof four);
      const __m512i broadcast = _mm512_set1_epi32(four);
      for (int v = 0; v < kVectors; ++v) {
        integers[t][v] = _mm512_dpbusd_epi32(integers[t][v], weights[v], broadcast);
      }
    }
  }
  /// sums += integers, or ones, times a number of the row and one of the token.
  template <bool kIntegers>
  KEYNEST_VNNI_INLINE void scale(const float* of_rows, const float* of_tokens) {
    __m512 rows[kVectors];
    for (int v = 0; v < kVectors; ++v) rows[v] = _mm512_load_ps(of_rows + v * kLanes);
#pragma GCC unroll 4
    for (int t = 0; t < kTokens; ++t) {
      const __m512 token = _mm512_set1_ps(of_tokens[t]);
      for (int v = 0; v < kVectors; ++v) {
        const __m512 term = kIntegers ? _mm512_mul_ps(_mm512_cvtepi32_ps(integers[t][v]), rows[v]) : rows[v];
        sums[t][v] = _mm512_fmadd_ps(term, token, sums[t][v]);
      }
    }
  }
};

/// out[kTokens, kVectors * 16] (+)= activations of tokens [first, first + kTokens) of the eight * panel.
template <int kParts, bool kMinima, int kTokens, int kVectors>
KEYNEST_VNNI __attribute__((noinline)) void multiply(Activations x, int first, const PanelGroup* panel,
                                                     int groups, bool add, float* out, std::size_t out_stride,
                                                     __mmask16 last) {
  const auto mask = [last](int v) { return v == kVectors - 1 ? last : __mmask16{0xffff}; };
  Tile<kTokens, kVectors> tile;
  for (int t = 0; t < kTokens; ++t) {
    for (int v = 0; v < kVectors; ++v) {
      const float* from = out + static_cast<std::size_t>(t) * out_stride + v * kLanes;
      tile.sums[t][v] = add ? _mm512_maskz_loadu_ps(mask(v), from) : _mm512_setzero_ps();
    }
  }
  for (int group = 0; group < groups; ++group, ++panel, ++x.groups) {
#pragma GCC unroll 2
    for (int part = 0; part < kParts; ++part, x.starts += kRoundedTokens) {
      tile.start(x.starts + first);
#pragma GCC unroll 8
      for (int quad = 0; quad < kQuads; ++quad) {
        if (quad / (kQuads / kParts) != part) continue;
        tile.add(panel->bytes[quad], x.groups->numbers + first, 4 * quad);
      }
      tile.template scale<true>(panel->scales[part], x.groups->scales + first);
    }
    if constexpr (kMinima) tile.template scale<false>(panel->minima, x.groups->sums + first);
  }
  for (int t = 0; t < kTokens; ++t) {
    for (int v = 0; v < kVectors; ++v) {
      _mm512_mask_storeu_ps(out + static_cast<std::size_t>(t) * out_stride + v * kLanes, mask(v),
                            tile.sums[t][v]);
    }
  }
}

/// The product of one packed panel with all tokens.
struct PanelProduct {
  const PanelGroup* panel;
  const RoundedGroup* activations;  // [tokens / 8, stride]
  int stride, groups, rows, tokens, zero;
  bool add;
  float* out;
  std::size_t out_stride;

  template <int kParts, bool kMinima, int kVectors>
  void run() const {
    std::int32_t starts[kPanelGroups * kParts * kRoundedTokens];
    for (int token = 0; token < tokens; token += kTileTokens) {
      const Activations x{activations + static_cast<std::size_t>(token / kRoundedTokens) * stride, starts};
      if (token % kRoundedTokens == 0) take_zero_off<kParts>(x.groups, starts);
      tile<kTileTokens, kParts, kMinima, kVectors>(std::min(kTileTokens, tokens - token), x, token);
    }
  }

 private:
  template <int kParts>
  void take_zero_off(const RoundedGroup* x, std::int32_t* starts) const {
    for (int group = 0; group < groups; ++group, ++x) {
      for (int part = 0; part < kParts; ++part) {
        for (int t = 0; t < kRoundedTokens; ++t) {
          *starts++ = -zero * (kParts == 1 ? x->halves[0][t] + x->halves[1][t] : x->halves[part][t]);
        }
      }
    }
  }

  template <int kTokens, int kParts, bool kMinima, int kVectors>
  void tile(int count, const Activations& x, int token) const {
    if constexpr (kTokens > 1) {
      if (count < kTokens) return tile<kTokens - 1, kParts, kMinima, kVectors>(count, x, token);
    }
    const int lanes = rows - (kVectors - 1) * kLanes;
    multiply<kParts, kMinima, kTokens, kVectors>(x, token % kRoundedTokens, panel, groups, add,
                                                 out + static_cast<std::size_t>(token) * out_stride,
                                                 out_stride, static_cast<__mmask16>((1u << lanes) - 1));
  }
};

/// Rows [first_row, first_row + rows) of the matrix, columns from `column` on.
template <class Row>
void multiply_chunk(const WeightMatrix& w, int first_row, int column, PanelGroup* panel,
                    const PanelProduct& product) {
  const int end = column + product.groups * kGroupColumns;
  // The rest of the rows, or those of the panel that follows.
  const std::size_t next =
      end < w.columns ? w.bytes_of(end - column) : kPanelRows * w.row_bytes - w.bytes_of(column);
  for (int lane = 0; lane < product.rows; lane += kLanes) {
    pack_rows<Row>(
        {w.data + static_cast<std::size_t>(first_row + lane) * w.row_bytes + w.bytes_of(column), w.row_bytes,
         w.bytes_of(kStepColumns), std::min(kLanes, product.rows - lane), static_cast<std::ptrdiff_t>(next)},
        product.groups, lane, panel);
  }
  constexpr int kParts = kGroupColumns / Row::kScaleColumns;
  constexpr bool kMinima = Row::kMinima != kNoMinima;
  static_assert(kPanelVectors == 3);
  if (product.rows <= kLanes)
    product.run<kParts, kMinima, 1>();
  else if (product.rows <= 2 * kLanes)
    product.run<kParts, kMinima, 2>();
  else
    product.run<kParts, kMinima, 3>();
}

int tiles_of(int tokens) { return (tokens + kRoundedTokens - 1) / kRoundedTokens; }

}  // namespace

std::size_t int8_panel_rounded_bytes(int columns, int tokens) {
  return sizeof(RoundedGroup) * static_cast<std::size_t>(columns / kGroupColumns) *
         static_cast<std::size_t>(tiles_of(tokens));
}

void int8_panel_round(const float* activations, int columns, int tokens, int part, int parts, void* rounded) {
  const int groups = columns / kGroupColumns;
  const auto stride = static_cast<std::size_t>(columns);
  for (int tile = part; tile < tiles_of(tokens); tile += parts) {
    const int token = tile * kRoundedTokens;
    auto* out = static_cast<RoundedGroup*>(rounded) +
                static_cast<std::size_t>(tile) * static_cast<std::size_t>(groups);
    Block block{activations + static_cast<std::size_t>(token) * stride, stride,
                std::min(kRoundedTokens, tokens - token)};
    for (int group = 0; group < groups; ++group, block.x += kGroupColumns) round_group(block, out[group]);
  }
}

std::size_t int8_panel_scratch_bytes() { return sizeof(PanelGroup) * kPanelGroups; }

void int8_matmul_panel(const WeightMatrix& weights, int first_row, int rows, const void* rounded, int tokens,
                       float* out, std::size_t out_stride, void* scratch) {
  const int stride = weights.columns / kGroupColumns;
  with_row(weights.format, [&](auto tag) {
    using Row = typename decltype(tag)::Type;
    for (int column = 0; column < weights.columns; column += kDepth) {
      const int groups = std::min(kDepth, weights.columns - column) / kGroupColumns;
      multiply_chunk<Row>(weights, first_row, column, static_cast<PanelGroup*>(scratch),
                          {static_cast<const PanelGroup*>(scratch),
                           static_cast<const RoundedGroup*>(rounded) + column / kGroupColumns, stride, groups,
                           rows, tokens, Row::kZero, column > 0, out + first_row, out_stride});
    }
  });
}

}  // namespace keynest

#else  // other compilers and processors

namespace keynest {

std::size_t int8_panel_rounded_bytes(int, int) { return 0; }
void int8_panel_round(const float*, int, int, int, int, void*) {}
std::size_t int8_panel_scratch_bytes() { return 0; }
void int8_matmul_panel(const WeightMatrix&, int, int, const void*, int, float*, std::size_t, void*) {}

}  // namespace keynest

#endif
