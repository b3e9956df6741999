#include "bench/peak.h"

#include "kernels/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bench/peak.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace keynest::bench::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

double run_fma(std::int64_t rounds) {
  constexpr int kChains = 12;
  const hn::ScalableTag<float> d;
  hn::Vec<decltype(d)> sums[kChains];
  HWY_UNROLL(12)
  for (int i = 0; i < kChains; ++i) sums[i] = hn::Set(d, static_cast<float>(i));
  const auto factor = hn::Set(d, 0.999f), term = hn::Set(d, static_cast<float>(rounds & 1));
  for (std::int64_t round = 0; round < rounds; ++round) {
    HWY_UNROLL(12)
    for (int i = 0; i < kChains; ++i) sums[i] = hn::MulAdd(sums[i], factor, term);
  }
  auto all = sums[0];
  for (int i = 1; i < kChains; ++i) all = hn::Add(all, sums[i]);
  volatile float sink = hn::GetLane(all);
  (void)sink;
  return 2.0 * kChains * static_cast<double>(hn::Lanes(d)) * static_cast<double>(rounds);
}

}  // namespace keynest::bench::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <barrier>
#include <chrono>
#include <cstring>
#include <functional>
#include <numeric>
#include <thread>
#include <vector>

namespace keynest::bench {

HWY_EXPORT(run_fma);

double run_fma(std::int64_t rounds) { return HWY_DYNAMIC_DISPATCH(run_fma)(rounds); }

namespace {

using Clock = std::chrono::steady_clock;

/// Sum over threads of what each did per second, while all are at it. `work(thread)` says how much it did.
double rate_of_all(int threads, double seconds, const std::function<double(int)>& work) {
  std::vector<double> rates(static_cast<std::size_t>(threads));
  std::barrier start(threads);
  const auto run = [&](int thread) {
    work(thread);  // touches its memory
    start.arrive_and_wait();
    const auto started = Clock::now();
    double done = 0, spent = 0;
    while (spent < seconds) {
      done += work(thread);
      spent = std::chrono::duration<double>(Clock::now() - started).count();
    }
    rates[static_cast<std::size_t>(thread)] = done / spent;
  };
  {
    std::vector<std::jthread> others;
    for (int i = 1; i < threads; ++i) others.emplace_back(run, i);
    run(0);
  }
  return std::accumulate(rates.begin(), rates.end(), 0.0);
}

}  // namespace

Peak measure_peak(int threads, double seconds, std::size_t copied) {
  std::vector<std::vector<char>> buffers(static_cast<std::size_t>(threads));
  Peak peak;
  peak.flops = rate_of_all(threads, seconds, [](int) { return run_fma(1 << 16); });
  peak.copy_bytes = rate_of_all(threads, seconds, [&](int thread) {
    std::vector<char>& buffer = buffers[static_cast<std::size_t>(thread)];
    if (buffer.empty()) buffer.resize(2 * copied, 1);
    std::memcpy(buffer.data(), buffer.data() + copied, copied);
    return 2.0 * static_cast<double>(copied);
  });
  return peak;
}

}  // namespace keynest::bench
#endif  // HWY_ONCE
