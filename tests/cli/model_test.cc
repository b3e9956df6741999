// A real small model, where there is one: answers make sense, in one turn and in two.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

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

}  // namespace
}  // namespace keynest::test
