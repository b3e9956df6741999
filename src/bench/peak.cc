#include "bench/peak.h"

#include "kernels/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bench/peak.cc"
#include "hwy/cache_control.h"
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

/// A few lines at a time, others asked for some way ahead.
void read_memory(const char* memory, std::size_t bytes) {
  constexpr std::size_t kStreams = 8, kAhead = 2048;
  const hn::ScalableTag<std::uint8_t> d;
  const std::size_t step = hn::Lanes(d);
  hn::Vec<decltype(d)> all[kStreams];
  HWY_UNROLL(8)
  for (auto& some : all) some = hn::Zero(d);
  const auto* at = reinterpret_cast<const std::uint8_t*>(memory);
  for (const auto* end = at + bytes; at + kStreams * step <= end; at += kStreams * step) {
    HWY_UNROLL(8)
    for (std::size_t i = 0; i < kStreams; ++i) hwy::Prefetch(at + kAhead + i * step);
    HWY_UNROLL(8)
    for (std::size_t i = 0; i < kStreams; ++i) all[i] = hn::Xor(all[i], hn::LoadU(d, at + i * step));
  }
  for (std::size_t i = 1; i < kStreams; ++i) all[0] = hn::Xor(all[0], all[i]);
  volatile std::uint8_t sink = hn::GetLane(all[0]);
  (void)sink;
}

}  // namespace keynest::bench::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <chrono>
#include <cstring>
#include <functional>

namespace keynest::bench {

HWY_EXPORT(run_fma);
HWY_EXPORT(read_memory);

double run_fma(std::int64_t rounds) { return HWY_DYNAMIC_DISPATCH(run_fma)(rounds); }

namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t kOutsideCaches = std::size_t{64} << 20, kInLastCache = std::size_t{4} << 20;

/// Amount per second of a work that does `amount` each time.
double rate_of(double amount, double seconds, const std::function<void()>& work) {
  work();  // touches its memory
  const auto started = Clock::now();
  double done = 0, spent = 0;
  while (spent < seconds) {
    work();
    done += amount;
    spent = std::chrono::duration<double>(Clock::now() - started).count();
  }
  return done / spent;
}

}  // namespace

Traffic::Traffic(Team& team, Source source)
    : team_(team),
      bytes_(source == Source::kMemory ? kOutsideCaches
                                       : kInLastCache / static_cast<std::size_t>(team.threads())),
      buffers_(static_cast<std::size_t>(team.threads())) {
  team_.run([this](int thread) { buffers_[static_cast<std::size_t>(thread)].resize(2 * bytes_, 1); });
}

void Traffic::copy() {
  team_.run([this](int thread) {
    char* buffer = buffers_[static_cast<std::size_t>(thread)].data();
    std::memcpy(buffer, buffer + bytes_, bytes_);
  });
}

void Traffic::read() {
  team_.run([this](int thread) {
    HWY_DYNAMIC_DISPATCH(read_memory)(buffers_[static_cast<std::size_t>(thread)].data(), 2 * bytes_);
  });
}

double Traffic::copied_bytes() const { return 2.0 * static_cast<double>(bytes_ * buffers_.size()); }

double Traffic::read_bytes() const { return copied_bytes(); }

Peak measure_peak(Team& team, double seconds) {
  constexpr std::int64_t kRounds = 1 << 16;
  const double flops = run_fma(1) * kRounds * team.threads();
  Traffic memory(team, Source::kMemory), cache(team, Source::kCache);
  const auto rate = [&](Traffic& traffic, void (Traffic::*work)()) {
    return rate_of(traffic.copied_bytes(), seconds, [&] { (traffic.*work)(); });
  };
  Peak peak;
  peak.flops = rate_of(flops, seconds, [&] { team.run([](int) { run_fma(kRounds); }); });
  peak.copy_bytes = rate(memory, &Traffic::copy);
  peak.read_bytes = rate(memory, &Traffic::read);
  peak.cached_copy_bytes = rate(cache, &Traffic::copy);
  peak.cached_read_bytes = rate(cache, &Traffic::read);
  return peak;
}

}  // namespace keynest::bench
#endif  // HWY_ONCE
