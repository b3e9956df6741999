// A real small model, where there is one: answers make sense, in one turn and in two.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/program.h"
#include "cli/tiny.h"

namespace keynest::test {
namespace {

std::string model_path() {
  const char* folder = std::getenv("KEYNEST_MODELS_DIR");
  const std::string path =
      std::string(folder != nullptr ? folder : "models") + "/SmolLM2-135M-Instruct.Q4_1.gguf";
  return std::filesystem::exists(path) ? path : "";
}

TEST(RealModel, AnswersInItsChatTemplate) {
  const std::string model = model_path();
  if (model.empty()) GTEST_SKIP() << "scripts/get-model smollm2 fetches the model";
  const Outcome outcome = run_program(
      {"run", "-m", model, "-p", "What is the capital of France?", "-n", "24", "--budget", "64", "-v"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_TRUE(holds(outcome.out, "Paris")) << outcome.out;
  EXPECT_TRUE(holds(outcome.err, "chat template")) << outcome.err;
}

TEST(RealModel, ContinuesPlainText) {
  const std::string model = model_path();
  if (model.empty()) GTEST_SKIP() << "scripts/get-model smollm2 fetches the model";
  const Outcome outcome =
      run_program({"run", "-m", model, "--no-chat", "-p", "One, two, three, four,", "-n", "3", "-q"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_TRUE(holds(outcome.out, "five")) << outcome.out;
}

TEST(RealModel, RemembersTheTurnBefore) {
  const std::string model = model_path();
  if (model.empty()) GTEST_SKIP() << "scripts/get-model smollm2 fetches the model";
  const Outcome outcome = run_program({"chat", "-m", model, "-n", "32", "-q"},
                                      "The capital of France is Paris.\nWhat is the capital of France?\n");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  const std::string second = outcome.out.substr(outcome.out.find('\n') + 1);
  EXPECT_TRUE(holds(second, "Paris")) << outcome.out;
}

/// "1, 2, ..., last,"
std::string numbers_up_to(int last) {
  std::string text;
  for (int i = 1; i <= last; ++i) text += std::to_string(i) + (i < last ? ", " : ",");
  return text;
}

// The cache holds a sixth of the tokens, their keys turned to where they lie in it.
TEST(RealModel, CountsOnWithCachePositions) {
  const std::string model = model_path();
  if (model.empty()) GTEST_SKIP() << "scripts/get-model smollm2 fetches the model";
  const Outcome outcome =
      run_program({"run", "-m", model, "-t", "1", "--no-chat", "-p", numbers_up_to(140), "-n", "10", "-q",
                   "--budget", "96", "--block", "32", "--policy", "sink:positions=cache"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_TRUE(holds(outcome.out, "141, 142")) << outcome.out;
}

TEST(RealModel, ProtectsItsSystemMessageInEveryHead) {
  const std::string model = model_path();
  if (model.empty()) GTEST_SKIP() << "scripts/get-model smollm2 fetches the model";
  const std::vector<std::string> prompt{"-m",       model,
                                        "-t",       "1",
                                        "--system", "You are Captain Marrow, a pirate of few words.",
                                        "-p",       numbers_up_to(60) + " What is your name?",
                                        "-q",       "--budget",
                                        "64",       "--block",
                                        "32",       "--policy",
                                        "keydiff"};
  const auto protected_shares = [&](bool protect) {
    std::vector<std::string> arguments{"inspect", "--json", "-"};
    arguments.insert(arguments.end(), prompt.begin(), prompt.end());
    if (protect) arguments.insert(arguments.end(), {"--protect", "system"});
    const Outcome outcome = run_program(arguments);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    const auto shares =
        nlohmann::json::parse(outcome.out)["runs"][0]["kept_share"].get<std::vector<double>>();
    return std::vector<double>(shares.begin(), shares.begin() + 16);  // the message and more than its start
  };
  EXPECT_EQ(protected_shares(true), std::vector<double>(16, 1.0));
  EXPECT_NE(protected_shares(false), std::vector<double>(16, 1.0));

  std::vector<std::string> run{"run", "-n", "16", "--protect", "system"};
  run.insert(run.end(), prompt.begin(), prompt.end());
  const Outcome outcome = run_program(run);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_FALSE(outcome.out.empty());
}

TEST(RealModel, BadInputIsAClearUsageError) {
  const std::string model = model_path();
  if (model.empty()) GTEST_SKIP() << "scripts/get-model smollm2 fetches the model";
  struct Case {
    std::vector<std::string> flags;
    const char* said;
  };
  const std::vector<Case> cases{
      {{"--policy", "snapkv:window=64", "--budget", "32"}, "cannot hold 64 pinned"},
      {{"--policy", "keydiff:keep_first=20,keep_last=20", "--budget", "32"}, "cannot hold 40 pinned"},
      {{"--protect", "0:8", "--protect", "6:12"}, "overlap"},
      {{"--protect", "0:1000"}, "ends after the prompt"},
      {{"--protect", "0:40", "--budget", "32"}, "cannot hold 40 pinned"},
      {{"--policy", "nestedkv:episode=0"}, "a whole number from 1"},
      {{"--policy", "snapkv:window=0"}, "a whole number from 1"},
      {{"--policy", "nestedkv:positions=cache"}, "heads=uniform"},
  };
  for (const Case& given : cases) {
    std::vector<std::string> arguments{"run", "-m", model, "-t", "1", "--no-chat", "-p", numbers_up_to(30),
                                       "-n",  "1"};
    arguments.insert(arguments.end(), given.flags.begin(), given.flags.end());
    const Outcome outcome = run_program(arguments);
    EXPECT_EQ(outcome.code, 2) << given.said << ": " << outcome.err;
    EXPECT_TRUE(holds(outcome.err, given.said)) << outcome.err;
    EXPECT_EQ(outcome.out, "");
  }
}

}  // namespace
}  // namespace keynest::test
