// What the program says about itself, and mistakes on the command line: no model is needed to be told about
// them.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "cli/program.h"

namespace keynest::test {
namespace {

namespace fs = std::filesystem;
using Arguments = std::vector<std::string>;

Arguments run_with(Arguments more) {
  Arguments all{"run", "-m", "/no/such/model.gguf", "-p", "hello"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

bool holds(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(Usage, VersionNamesProgramAndSimdTarget) {
  const Outcome outcome = run_program({"--version"});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_TRUE(holds(outcome.out, "keynest")) << outcome.out;
  EXPECT_EQ(outcome.err, "");
}

TEST(Usage, HelpTeaches) {
  const Outcome outcome = run_program({"--help"});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.err, "");
  for (const char* part : {"KV-cache budget", "Examples:", "keynest run -m", "keynest chat -m",
                           "keynest score", "Exit status"}) {
    EXPECT_TRUE(holds(outcome.out, part)) << part;
  }
}

TEST(Usage, EveryCommandHasHelpWithExamples) {
  for (const std::string command : {"run", "chat", "score", "bench"}) {
    const Outcome outcome = run_program({command, "--help"});
    EXPECT_EQ(outcome.code, 0) << command;
    EXPECT_TRUE(holds(outcome.out, "Examples:")) << command;
    EXPECT_TRUE(holds(outcome.out, "keynest " + command)) << command;
    EXPECT_EQ(outcome.err, "") << command;
  }
}

TEST(Usage, HelpOfRunListsThePoliciesAndEveryFlag) {
  const std::string help = run_program({"run", "--help"}).out;
  for (const char* part :
       {"keydiff",      "knorm",     "sink",      "random",           "anchor=",  "--model",
        "--file",       "--prompt",  "--chat",    "--no-chat",        "--system", "--chat-template",
        "--policy",     "--budget",  "--block",   "--decode-block",   "-n",       "--temp",
        "--top-k",      "--top-p",   "--min-p",   "--repeat-penalty", "--seed",   "--stop",
        "--ignore-eos", "--threads", "--kv-type", "--cache-limit",    "--stats",  "--quiet",
        "--verbose"}) {
    EXPECT_TRUE(holds(help, part)) << part;
  }
}

struct Mistake {
  const char* name;
  Arguments arguments;
  Arguments said;  ///< parts of the message
};

void PrintTo(const Mistake& mistake, std::ostream* out) { *out << mistake.name; }

class Mistakes : public testing::TestWithParam<Mistake> {};

TEST_P(Mistakes, AreUsageErrorsThatSayWhatToDo) {
  const Outcome outcome = run_program(GetParam().arguments);
  EXPECT_EQ(outcome.code, 2) << outcome.err;
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(outcome.err.rfind("keynest: ", 0), 0u) << outcome.err;
  for (const std::string& part : GetParam().said) EXPECT_TRUE(holds(outcome.err, part)) << outcome.err;
}

INSTANTIATE_TEST_SUITE_P(
    Usage, Mistakes,
    testing::Values(
        Mistake{"NoCommand", {}, {"--help"}}, Mistake{"UnknownCommand", {"jump"}, {"jump", "run", "chat"}},
        Mistake{"NoModel", {"run", "-p", "x"}, {"--model", "keynest run --help"}},
        Mistake{"UnknownFlag", run_with({"--budgett", "1"}), {"--budgett"}},
        Mistake{"ChatAndNoChat", run_with({"--chat", "--no-chat"}), {"--chat"}},
        Mistake{"SystemWithoutChat", run_with({"--system", "x", "--no-chat"}), {"--no-chat"}},
        Mistake{"UnknownPolicy", run_with({"--policy", "lru"}), {"lru", "keydiff", "knorm"}},
        Mistake{"UnknownPolicyOption", run_with({"--policy", "keydiff:anchr=mean"}), {"anchr", "anchor"}},
        Mistake{"UnknownPolicyValue", run_with({"--policy", "keydiff:anchor=mode"}), {"mode", "median"}},
        Mistake{"BadBudget", run_with({"--budget", "many"}), {"many", "MiB"}},
        Mistake{"NegativeBudget", run_with({"--budget", "-5"}), {"-5"}},
        Mistake{"BadKvType", run_with({"--kv-type", "f8"}), {"f8", "f32, f16, bf16, q8_0"}},
        Mistake{"BadCacheLimit", run_with({"--cache-limit", "100"}), {"--cache-limit", "512MiB"}},
        Mistake{"BlockIsNoNumber", run_with({"--block", "big"}), {"--block", "whole number"}},
        Mistake{"BlockZero", run_with({"--block", "0"}), {"--block", "from 1 up"}},
        Mistake{"BadDecodeBlock", run_with({"--decode-block", "-1"}), {"--decode-block"}},
        Mistake{"BadMaxTokens", run_with({"-n", "-2"}), {"--max-tokens", "no limit"}},
        Mistake{"BadTopK", run_with({"--top-k", "1.5"}), {"--top-k", "whole number"}},
        Mistake{"BadTemperature", run_with({"--temp", "nan"}), {"--temp", "0 (greedy)"}},
        Mistake{"BadTopP", run_with({"--top-p", "1.5"}), {"--top-p", "0 to 1"}},
        Mistake{"BadPenalty", run_with({"--repeat-penalty", "0"}), {"--repeat-penalty", "above 0"}},
        Mistake{"BadSeed", run_with({"--seed", "-1"}), {"--seed", "4294967295"}},
        Mistake{"BadThreads", run_with({"--threads", "-2"}), {"--threads", "512"}},
        Mistake{"EmptyStop", run_with({"--stop", ""}), {"--stop"}},
        Mistake{"BadEscape", run_with({"--stop", "\\q"}), {"\\q", "\\n"}},
        Mistake{"EmptyPrompt", {"run", "-m", "/no/model", "-p", ""}, {"prompt is empty", "-f FILE"}},
        Mistake{"QuietAndVerbose", run_with({"-q", "-v"}), {"--verbose"}}),
    [](const auto& one) { return std::string(one.param.name); });

TEST(Usage, EmptyStandardInputIsAnEmptyPrompt) {
  const Outcome outcome = run_program({"run", "-m", "/no/model"}, "");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_TRUE(holds(outcome.err, "prompt is empty"));
}

TEST(Usage, StandardInputCannotBeReadTwice) {
  const Outcome outcome = run_program({"run", "-m", "/no/model", "-f", "-", "-f", "-"}, "x");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_TRUE(holds(outcome.err, "once")) << outcome.err;
}

struct Failure {
  const char* name;
  Arguments arguments;
  Arguments said;
};

void PrintTo(const Failure& failure, std::ostream* out) { *out << failure.name; }

class Failures : public testing::TestWithParam<Failure> {};

TEST_P(Failures, AreNamed) {
  const Outcome outcome = run_program(GetParam().arguments);
  EXPECT_EQ(outcome.code, 1) << outcome.err;
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(outcome.err.rfind("keynest: ", 0), 0u) << outcome.err;
  for (const std::string& part : GetParam().said) EXPECT_TRUE(holds(outcome.err, part)) << outcome.err;
}

INSTANTIATE_TEST_SUITE_P(
    Usage, Failures,
    testing::Values(
        Failure{"NoSuchModel", run_with({}), {"/no/such/model.gguf"}},
        Failure{"ModelIsAFolder", {"run", "-m", "/", "-p", "x"}, {"directory"}},
        Failure{"NoSuchInput", {"run", "-m", "/no/model", "-f", "/no/input.txt"}, {"/no/input.txt"}},
        Failure{"InputIsAFolder", {"run", "-m", "/no/model", "-f", "/"}, {"directory"}},
        Failure{"NoSuchTemplate", run_with({"--chat-template", "/no/t.jinja"}), {"/no/t.jinja"}},
        Failure{"StatsFolderMissing", run_with({"--stats", "/no/such/stats.json"}), {"/no/such/stats.json"}},
        Failure{"StatsIsAFolder", run_with({"--stats", "/"}), {"\"/\"", "directory"}},
        Failure{"ChatNoSuchModel", {"chat", "-m", "/no/model.gguf"}, {"/no/model.gguf"}},
        Failure{"ChatNoSuchFile", {"chat", "-m", "/no/m", "-f", "/no/book.txt"}, {"/no/book.txt"}}),
    [](const auto& one) { return std::string(one.param.name); });

/// Statistics that cannot be written are found out before the model is even looked at.
TEST(Usage, StatsAreCheckedBeforeTheModel) {
  const Outcome outcome = run_program(run_with({"--stats", "/no/such/stats.json"}));
  EXPECT_TRUE(holds(outcome.err, "stats.json"));
  EXPECT_FALSE(holds(outcome.err, "model.gguf"));
}

TEST(Usage, DamagedModelsAreNamed) {
  const fs::path file = fs::temp_directory_path() / "keynest-damaged.gguf";
  for (const std::string& content :
       {std::string(), std::string("GGUF"), std::string("no model at all, but text")}) {
    std::ofstream(file, std::ios::binary) << content;
    const Outcome outcome = run_program({"run", "-m", file.string(), "-p", "x"});
    EXPECT_EQ(outcome.code, 1);
    EXPECT_TRUE(holds(outcome.err, "keynest-damaged.gguf")) << outcome.err;
  }
  fs::remove(file);
}

}  // namespace
}  // namespace keynest::test
