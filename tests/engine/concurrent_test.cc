// Sessions and forks on different threads: each gives what it gives alone. Runs under the thread sanitizer
// too.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "keynest/session.h"
#include "support/tiny_gguf.h"

namespace keynest::test {
namespace {

constexpr int kRuns = 3;
constexpr int kGenerated = 24;

/// A model in a file that lives as long as this does.
class ConcurrentSessions : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string path = directory_.file("tiny.gguf");
    ASSERT_TRUE(write_tiny_gguf(path, tiny_model("llama")));
    auto model = Model::load(path);
    ASSERT_TRUE(model) << model.error().message;
    model_ = *model;
  }

  std::unique_ptr<Session> session() const {
    SessionOptions options;
    options.policy = *PolicySpec::parse("keydiff");
    options.budget = *Budget::parse("24");
    options.block = 16;
    options.threads = 2;
    auto created = Session::create(model_, options);
    EXPECT_TRUE(created) << created.error().message;
    return std::move(*created);
  }

  TemporaryDirectory directory_;
  std::shared_ptr<const Model> model_;
};

std::vector<Token> prompt(int run) {
  std::vector<Token> tokens;
  for (int i = 0; i < 90 + 7 * run; ++i) tokens.push_back(3 + (i * (run + 5) + i / 9) % 200);
  return tokens;
}

/// Greedy tokens after what the session has seen.
std::vector<Token> generate(Session& session) {
  std::vector<Token> tokens;
  for (int i = 0; i < kGenerated; ++i) {
    tokens.push_back(session.sample({}));
    if (!session.decode(tokens.back())) return {};
  }
  return tokens;
}

/// `body(run)` for every run, all at once.
void all_at_once(const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int run = 0; run < kRuns; ++run) threads.emplace_back(body, run);
  for (std::thread& thread : threads) thread.join();
}

TEST_F(ConcurrentSessions, OfOneModelGiveWhatTheyGiveAlone) {
  std::vector<std::vector<Token>> alone(kRuns), together(kRuns);
  for (int run = 0; run < kRuns; ++run) {
    auto one = session();
    ASSERT_TRUE(one->prefill(prompt(run)));
    alone[run] = generate(*one);
    ASSERT_EQ(alone[run].size(), kGenerated);
  }
  ASSERT_NE(alone[0], alone[1]);
  all_at_once([&](int run) {
    auto one = session();
    if (one->prefill(prompt(run))) together[run] = generate(*one);
  });
  EXPECT_EQ(together, alone);
}

TEST_F(ConcurrentSessions, ForksThatDivergeGiveWhatTheyGiveAlone) {
  auto parent = session();
  ASSERT_TRUE(parent->prefill(prompt(0)));
  const auto continued = [&](int run) {
    auto fork = parent->fork();
    if (!fork || !(*fork)->decode(3 + run)) return std::vector<Token>{};
    return generate(**fork);
  };
  std::vector<std::vector<Token>> alone(kRuns), together(kRuns);
  for (int run = 0; run < kRuns; ++run) alone[run] = continued(run);
  ASSERT_EQ(alone[0].size(), kGenerated);

  // The forks are made here, as a session belongs to one thread at a time; then each runs on its own.
  std::vector<std::unique_ptr<Session>> forks;
  for (int run = 0; run < kRuns; ++run) forks.push_back(parent->fork().value());
  all_at_once([&](int run) {
    if (forks[run]->decode(3 + run)) together[run] = generate(*forks[run]);
  });
  EXPECT_EQ(together, alone);
}

}  // namespace
}  // namespace keynest::test
