// Threads that do a work together.
#include "bench/team.h"

#include <gtest/gtest.h>

namespace keynest::bench {
namespace {

TEST(Team, EveryThreadDoesItsPartOnceAndTheCallerWaitsForAll) {
  for (const int threads : {1, 3}) {
    Team team(threads);
    std::vector<int> done(static_cast<std::size_t>(threads), 0);  // each touched by one thread alone
    for (int run = 1; run <= 200; ++run) {
      team.run([&](int thread) { ++done[static_cast<std::size_t>(thread)]; });
      ASSERT_EQ(done, std::vector<int>(static_cast<std::size_t>(threads), run));
    }
  }
}

TEST(Team, EndsWithoutHavingDoneAnything) { Team team(4); }

}  // namespace
}  // namespace keynest::bench
