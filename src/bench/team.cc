#include "bench/team.h"

#include "hwy/cache_control.h"

namespace keynest::bench {
namespace {

/// Returns when `value` is no longer `old`.
void wait_for_change(const std::atomic<int>& value, int old) {
  constexpr int kSpins = 1 << 14;  // some tenths of a millisecond, then asleep
  for (int spin = 0; spin < kSpins; ++spin) {
    if (value.load(std::memory_order_acquire) != old) return;
    hwy::Pause();
  }
  value.wait(old, std::memory_order_acquire);
}

}  // namespace

Team::Team(int threads) : threads_(threads) {
  for (int thread = 1; thread < threads; ++thread) others_.emplace_back([this, thread] { serve(thread); });
}

Team::~Team() {
  part_ = nullptr;
  turn_.fetch_add(1, std::memory_order_release);
  turn_.notify_all();
}

void Team::run(const Part& part) {
  part_ = &part;
  finished_.store(0, std::memory_order_relaxed);
  turn_.fetch_add(1, std::memory_order_release);
  turn_.notify_all();
  part(0);
  for (int done; (done = finished_.load(std::memory_order_acquire)) < threads_ - 1;)
    wait_for_change(finished_, done);
}

void Team::serve(int thread) {
  for (int turn = 0;; ++turn) {
    wait_for_change(turn_, turn);
    if (part_ == nullptr) return;
    (*part_)(thread);
    finished_.fetch_add(1, std::memory_order_release);
    finished_.notify_one();
  }
}

}  // namespace keynest::bench
