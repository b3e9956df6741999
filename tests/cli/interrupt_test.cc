// Ctrl-C: once is a wish, twice is the end.
#include "cli/interrupt.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>

namespace keynest::cli {
namespace {

TEST(Interrupt, TheFirstRaisesAFlagUntilArmedAgain) {
  arm_interrupt();
  EXPECT_FALSE(interrupted());
  std::raise(SIGINT);
  EXPECT_TRUE(interrupted());
  arm_interrupt();
  EXPECT_FALSE(interrupted());
  std::raise(SIGINT);
  EXPECT_TRUE(interrupted());
  std::signal(SIGINT, SIG_DFL);
}

TEST(InterruptDeathTest, TheSecondKills) {
  const auto twice = [] {
    arm_interrupt();
    std::raise(SIGINT);
    if (!interrupted()) std::exit(3);
    std::raise(SIGINT);
  };
  EXPECT_EXIT(twice(), testing::KilledBySignal(SIGINT), "");
}

TEST(Interrupt, WaitingEndsWithInputOrCtrlC) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  arm_interrupt();
  ASSERT_EQ(::write(ends[1], "x", 1), 1);
  EXPECT_TRUE(wait_readable(ends[0]));
  std::raise(SIGINT);
  EXPECT_FALSE(wait_readable(ends[0]));
  arm_interrupt();
  EXPECT_TRUE(wait_readable(ends[0]));
  std::signal(SIGINT, SIG_DFL);
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST(Interrupt, AClosedPipeIsNoSignal) {
  arm_interrupt();
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ::close(ends[0]);
  EXPECT_EQ(::write(ends[1], "x", 1), -1);
  ::close(ends[1]);
  std::signal(SIGINT, SIG_DFL);
}

}  // namespace
}  // namespace keynest::cli
