// Threads that do the parts of a work at the same time, as the engine's do: they wait for it spinning, for a
// while, so that waking them is no part of what is measured.
#pragma once

#include <atomic>
#include <functional>
#include <thread>
#include <vector>

namespace keynest::bench {

class Team {
 public:
  using Part = std::function<void(int thread)>;

  /// The caller of run() is thread 0.
  explicit Team(int threads);
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  int threads() const { return threads_; }
  /// Calls part(0), ..., part(threads - 1) at once; returns when all have.
  void run(const Part& part);

 private:
  void serve(int thread);

  const int threads_;
  const Part* part_ = nullptr;  // null: no more work
  std::atomic<int> turn_{0}, finished_{0};
  std::vector<std::jthread> others_;
};

}  // namespace keynest::bench
