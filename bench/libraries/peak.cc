#include "peak.h"

#include <cstdint>
#include <cstdio>
#include <ctime>

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

namespace keynest::bench {
namespace {

// 24 chains: more than latency times throughput asks for.
constexpr int kChains = 24;

__attribute__((target("avx512f"))) float sum_of(const __m512 (&sums)[kChains]) {
  __m512 all = sums[0];
  for (const __m512& sum : sums) all = _mm512_add_ps(all, sum);
  return _mm512_cvtss_f32(all);
}

__attribute__((target("avx512f,avx512bf16"))) float run_bf16(std::int64_t rounds) {
  __m512 sums[kChains];
  for (__m512& sum : sums) sum = _mm512_setzero_ps();
  const auto a = reinterpret_cast<__m512bh>(_mm512_set1_epi32(static_cast<int>(rounds & 1)));
  for (std::int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 24
    for (__m512& sum : sums) sum = _mm512_dpbf16_ps(sum, a, a);
  }
  return sum_of(sums);
}

__attribute__((target("avx512f"))) float run_f32(std::int64_t rounds) {
  __m512 sums[kChains];
  for (__m512& sum : sums) sum = _mm512_setzero_ps();
  const __m512 a = _mm512_set1_ps(static_cast<float>(rounds & 1));
  for (std::int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 24
    for (__m512& sum : sums) sum = _mm512_fmadd_ps(sum, a, a);
  }
  return sum_of(sums);
}

/// flops: of one instruction.
void print_peak(const char* name, float (*run)(std::int64_t), double flops) {
  constexpr std::int64_t kRounds = 1 << 22;
  volatile float sink = run(kRounds / 8);
  const std::clock_t start = std::clock();
  sink = run(kRounds);
  const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  (void)sink;
  std::printf("peak of a core\t%s\t0\t0\t0\t%.1f\t0\t0\n", name, 1e-9 * flops * kChains * kRounds / seconds);
}

}  // namespace

void print_peaks() {
  if (__builtin_cpu_supports("avx512bf16")) print_peak("bf16", run_bf16, 64);
  if (__builtin_cpu_supports("avx512f")) print_peak("f32", run_f32, 32);
}

}  // namespace keynest::bench

#else

void keynest::bench::print_peaks() {}

#endif
