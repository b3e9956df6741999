// Rows are shared out completely, each once, in streams of their own, and by whoever is there.
#include "model/row_shares.h"

#include <gtest/gtest.h>

#include <barrier>
#include <thread>
#include <utility>
#include <vector>

namespace keynest::test {
namespace {

/// What one thread was given when it alone came, then all the others with nothing left for them.
std::vector<std::pair<int, int>> given_to(int thread, int threads, int rows, int unit) {
  RowShares shares;
  std::vector<std::pair<int, int>> given;
  shares.share(thread, threads, rows, unit, [&](int first, int count) { given.emplace_back(first, count); });
  for (int other = 0; other < threads; ++other) {
    if (other == thread) continue;
    shares.share(other, threads, rows, unit, [](int, int) { ADD_FAILURE() << "a row was given twice"; });
  }
  return given;
}

TEST(RowShares, OneThreadTakesOverWhatTheOthersLeave) {
  for (const int threads : {1, 2, 3, 8, 100}) {
    for (const int rows : {1, 16, 17, 128, 1000}) {
      std::vector<int> times(static_cast<std::size_t>(rows));
      for (const auto& [first, count] : given_to(threads - 1, threads, rows, 16)) {
        ASSERT_EQ(first % 16, 0);
        ASSERT_TRUE(count > 0 && count <= 16 && first + count <= rows);
        for (int row = first; row < first + count; ++row) ++times[static_cast<std::size_t>(row)];
      }
      EXPECT_EQ(times, std::vector<int>(static_cast<std::size_t>(rows), 1)) << threads << " threads";
    }
  }
}

TEST(RowShares, AThreadBeginsWithAnUnbrokenRangeOfItsOwn) {
  const auto given = given_to(1, 4, 128, 16);
  ASSERT_EQ(given.size(), 8u);
  const std::vector<int> firsts{32, 48, 64, 80, 96, 112, 0, 16};  // its own, then the ones after it
  for (std::size_t i = 0; i < given.size(); ++i) EXPECT_EQ(given[i].first, firsts[i]);
}

TEST(RowShares, MatricesFollowEachOther) {
  constexpr int kThreads = 3, kMatrices = 200;
  RowShares shares;
  std::vector<std::vector<std::atomic<int>>> times(kMatrices);
  for (int m = 0; m < kMatrices; ++m) times[m] = std::vector<std::atomic<int>>(50 + m);
  std::barrier between(kThreads);
  std::vector<std::jthread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (auto& matrix : times) {
        shares.share(t, kThreads, static_cast<int>(matrix.size()), 16, [&](int first, int count) {
          for (int row = first; row < first + count; ++row) ++matrix[static_cast<std::size_t>(row)];
        });
        between.arrive_and_wait();
      }
    });
  }
  threads.clear();
  for (const auto& matrix : times) {
    for (const auto& count : matrix) ASSERT_EQ(count, 1);
  }
}

}  // namespace
}  // namespace keynest::test
