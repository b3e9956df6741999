// Rows of a matrix, or whatever else a node of a graph consists of, shared out among its threads.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>

namespace keynest {

/// Every thread walks a range of its own from start to end and then helps where others are not done: a CPU
/// fetches ahead what lies behind what it has just read, so two that walk one range in turns fetch what the
/// other one reads; and what one reads twice is in its own cache. One object serves all nodes of a graph that
/// come one after another.
class RowShares {
 public:
  /// Calls work(first_row, rows) for every row of `rows` once among all threads, `unit` rows at a time. To be
  /// called by each of them, with the same numbers; all have to return before the next call for other rows.
  template <class Work>
  void share(int thread, int threads, int rows, int unit, const Work& work) {
    const std::int64_t units = (rows + unit - 1) / unit;
    const int shares = std::min(threads, kMostShares);
    for (int i = 0; i < shares; ++i) {
      const int share = (thread + i) % shares;
      const auto begin = static_cast<int>(units * share / shares),
                 end = static_cast<int>(units * (share + 1) / shares);
      std::atomic<int>& taken = shares_[static_cast<std::size_t>(share)].taken;
      for (int at; (at = begin + taken.fetch_add(1, std::memory_order_relaxed)) < end;) {
        work(at * unit, std::min(unit, rows - at * unit));
      }
    }
    leave(threads, shares);
  }

 private:
  static constexpr int kMostShares = 64;  // more threads than that have one together
  struct alignas(64) Share {
    std::atomic<int> taken{0};  // units
  };

  /// The last one to leave makes the counters ready for the next rows.
  void leave(int threads, int shares) {
    if (left_.fetch_add(1, std::memory_order_acq_rel) + 1 < threads) return;
    for (int i = 0; i < shares; ++i) {
      shares_[static_cast<std::size_t>(i)].taken.store(0, std::memory_order_relaxed);
    }
    left_.store(0, std::memory_order_relaxed);
  }

  std::array<Share, kMostShares> shares_;
  alignas(64) std::atomic<int> left_{0};
};

}  // namespace keynest
