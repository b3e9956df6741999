// Dot products of rows of 4 to 6 bits with few tokens by AVX-512 VNNI: 64 weights as unsigned bytes times 64
// activations rounded to signed ones. A single token reads every weight once, so what counts is how few
// instructions a weight takes; nothing is packed.
#include "kernels/matmul.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include "kernels/matmul_int8_formats-inl.h"

namespace keynest {
namespace {

constexpr int kTileTokens = 4;
// What is asked for ahead of its use. The processor's own prefetching ends with every page of memory.
constexpr std::size_t kPrefetchBytes = 8192;

/// 64 activations of one token. Lane i of the vectors belongs to numbers 4 i .. 4 i + 3.
struct alignas(64) Step {
  std::int8_t numbers[kStepColumns];
  std::int32_t start[16];  // what takes the zero of the unsigned weights off
  float scales[16];
  float sums[16];  // of four numbers, as floats
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
KEYNEST_VNNI_INLINE void dot(const std::byte* stored, std::size_t step_bytes, const Rounded& x, float* out,
                             std::size_t out_stride) {
  const int steps = x.step_count();
  const std::byte* soon = stored + kPrefetchBytes;
  __m512 sums[kTokens], others[kTokens];  // two, since an addition waits for the one before
#pragma GCC unroll 4
  for (int t = 0; t < kTokens; ++t) sums[t] = others[t] = _mm512_setzero_ps();
  Row row;
  for (int group = 0; group < steps / Row::kSteps; ++group) {
    row.begin(stored, group);
#pragma GCC unroll 4
    for (int i = 0; i < Row::kSteps; ++i) {
      _mm_prefetch(reinterpret_cast<const char*>(soon), _MM_HINT_T0);
      soon += step_bytes;
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
  const std::size_t step_bytes = w.row_bytes / static_cast<std::size_t>(x.step_count());
  for (int row = first_row; row < first_row + rows; ++row) {
    dot<Row, kTokens>(w.data + static_cast<std::size_t>(row) * w.row_bytes, step_bytes, x, out + row,
                      out_stride);
  }
  if (tokens > kTokens) {
    const Rounded rest{x.steps + kTokens * x.step_count(), x.sums + 2 * kTokens * x.step_count(), x.columns};
    dots<Row, kTokens>(w, first_row, rows, rest, tokens - kTokens,
                       out + static_cast<std::size_t>(kTokens) * out_stride, out_stride);
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
  return cpu_has_vnni() && columns % kStepColumns == 0 && with_row(format, [](auto) {});
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
