// Other programs: how they end, what they say, and that none is left behind.
#include "bench/process.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>

namespace keynest::bench {
namespace {

constexpr double kLong = 60;

bool never() { return false; }

Result<ProcessEnd> shell(const std::string& script, double limit = kLong,
                         const std::function<bool()>& stopped = never) {
  return run_process({"/bin/sh", "-c", script}, limit, stopped);
}

TEST(Process, TellsOutputErrorsAndExitCode) {
  const auto end = shell("echo out; echo err >&2; exit 3");
  ASSERT_TRUE(end) << end.error().message;
  EXPECT_EQ(end->exit_code, 3);
  EXPECT_EQ(end->out, "out\n");
  EXPECT_EQ(end->err, "err\n");
  EXPECT_FALSE(end->timed_out);
}

TEST(Process, ArgumentsAreNoShellWords) {
  const auto end = run_process({"/bin/echo", "a b", "$HOME", "'"}, kLong, never);
  ASSERT_TRUE(end);
  EXPECT_EQ(end->out, "a b $HOME '\n");
}

TEST(Process, ThatIsNotThereIsAnErrorThatNamesIt) {
  const auto end = run_process({"/no/such/program"}, kLong, never);
  ASSERT_FALSE(end);
  EXPECT_EQ(end.error().code, ErrorCode::kIo);
  EXPECT_NE(end.error().message.find("/no/such/program"), std::string::npos);
}

TEST(Process, ReadsNothing) {
  const auto end = shell("cat; echo done");
  ASSERT_TRUE(end);
  EXPECT_EQ(end->out, "done\n");
}

TEST(Process, MuchOutputDoesNotBlock) {
  const auto end = shell("head -c 3000000 /dev/zero; head -c 3000000 /dev/zero >&2; echo last >&2");
  ASSERT_TRUE(end);
  EXPECT_EQ(end->exit_code, 0);
  EXPECT_EQ(end->out.size(), 1u << 20);
  EXPECT_EQ(end->err.substr(end->err.size() - 5), "last\n");
}

TEST(Process, ThatHangsIsKilledWithItsChildren) {
  const auto end = shell("sleep 1000 & echo $!; wait", 0.2);
  ASSERT_TRUE(end);
  EXPECT_TRUE(end->timed_out);
  EXPECT_EQ(end->exit_code, 128 + SIGKILL);
  const pid_t grandchild = std::atoi(end->out.c_str());
  ASSERT_GT(grandchild, 0);
  // Gone, or a zombie that nobody has collected yet.
  const auto state = shell("ps -o stat= -p " + std::to_string(grandchild) + " | grep -v Z");
  ASSERT_TRUE(state);
  EXPECT_EQ(state->out, "");
}

TEST(Process, LeavesNothingBehindWhenItEnds) {
  const auto end = shell("sleep 1000 & echo $!");
  ASSERT_TRUE(end);
  EXPECT_EQ(end->exit_code, 0);
  // A process that was killed takes a moment to go.
  const std::string alive =
      "ps -o stat= -p " + std::string(end->out, 0, end->out.find('\n')) + " | grep -v Z";
  const auto state = shell("for i in $(seq 100); do " + alive + " || exit 0; sleep 0.05; done; exit 1");
  ASSERT_TRUE(state);
  EXPECT_EQ(state->exit_code, 0) << "still there: " << state->out;
}

TEST(Process, StopsWhenAsked) {
  int asked = 0;
  const auto end = shell("sleep 1000", kLong, [&] { return ++asked > 2; });
  ASSERT_FALSE(end);
  EXPECT_EQ(end.error().code, ErrorCode::kCancelled);
}

}  // namespace
}  // namespace keynest::bench
