// keynest run on a tiny model: text, input, statistics, endings.
#include <gtest/gtest.h>

#include <csignal>
#include <string>
#include <vector>

#include "cli/program.h"
#include "cli/tiny.h"

namespace keynest::test {
namespace {

using Json = nlohmann::json;
using Arguments = std::vector<std::string>;

class Run : public Tiny {};

// ------------------------------------------------------------------------------------------------- text

TEST_F(Run, PrintsTheTextAloneByteForByte) {
  const Outcome outcome = run_program(run_command({"-p", "one two", "-n", "40"}));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, continue_text(tokens("one two"), 40));
  for (const char* part :
       {"prompt ", "generated ", "40 tokens", "cache ", "policy ", "nestedkv", "budget 2048"}) {
    EXPECT_TRUE(holds(outcome.err, part)) << part << "\n" << outcome.err;
  }
}

TEST_F(Run, QuietSaysNothingElse) {
  const Outcome outcome = run_program(run_command({"-p", "one two", "-n", "5", "-q"}));
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.err, "");
  EXPECT_EQ(outcome.out, continue_text(tokens("one two"), 5));
}

TEST_F(Run, VerboseDescribesTheModel) {
  const Outcome outcome = run_program(run_command({"-p", "x", "-n", "1", "-v"}));
  EXPECT_TRUE(holds(outcome.err, "2 layers")) << outcome.err;
  EXPECT_TRUE(holds(outcome.err, "plain text")) << outcome.err;
}

TEST_F(Run, NoTokensIsNoText) {
  const Outcome outcome = run_program(run_command({"-p", "x", "-n", "0"}));
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.out, "");
}

TEST_F(Run, TheSameSeedGivesTheSameText) {
  const Arguments sampled{"-p", "x",       "-n", "30",      "-q", "--temp",
                          "2",  "--top-k", "0",  "--min-p", "0",  "--seed"};
  const auto with_seed = [&](const std::string& seed) {
    Arguments arguments = sampled;
    arguments.push_back(seed);
    return run_program(run_command(arguments)).out;
  };
  EXPECT_EQ(with_seed("7"), with_seed("7"));
  EXPECT_NE(with_seed("7"), with_seed("8"));
}

TEST_F(Run, StopStringsEndTheText) {
  const std::string all = continue_text(tokens("one two"), 40);
  const std::string stop = all.substr(all.size() / 2, 3);
  const Outcome outcome = run_program(
      run_command({"-p", "one two", "-n", "40", "-q", "--stop", "never met", "--stop", escaped(stop)}));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, all.substr(0, all.find(stop)));
}

TEST_F(Run, AStopInBracketsIsOneStop) {
  const Outcome outcome = run_program(run_command({"-p", "one two", "-n", "20", "-q", "--stop", "[a,b]"}));
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.out, continue_text(tokens("one two"), 20));
}

// ------------------------------------------------------------------------------------------------ input

TEST_F(Run, InputComesFromFilesThenThePromptOrStandardInput) {
  write("a.txt", "first\n");
  write("b.txt", "second");
  struct Case {
    Arguments arguments;
    std::string input, prompt;
  };
  const std::vector<Case> cases{
      {{"-p", "third"}, "unread", "third"},
      {{}, "piped\n", "piped\n"},
      {{"-f", "-"}, "piped", "piped"},
      {{"-f", file("a.txt")}, "unread", "first\n"},
      {{"-p", "third", "-f", file("a.txt")}, "", "first\nthird"},
      {{"-f", file("a.txt"), "-f", file("b.txt"), "-p", "third"}, "", "first\nsecond\nthird"},
      {{"-f", file("a.txt"), "-f", "-", "-p", "[x]"}, "piped", "first\npiped\n[x]"},
  };
  for (const Case& given : cases) {
    Arguments arguments{"-n", "8", "-q"};
    arguments.insert(arguments.end(), given.arguments.begin(), given.arguments.end());
    const Outcome outcome = run_program(run_command(arguments), given.input);
    EXPECT_EQ(outcome.code, 0) << given.prompt << outcome.err;
    EXPECT_EQ(outcome.out, continue_text(tokens(given.prompt), 8)) << given.prompt;
  }
}

TEST_F(Run, BytesThatAreNoTextAreTakenAsTheyAre) {
  const std::string bytes = "a\xFF\xC3(\xE2\x82 z\r\n";
  const Outcome outcome = run_program(run_command({"-n", "8", "-q"}), bytes);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, continue_text(tokens(bytes), 8));
}

TEST_F(Run, BeyondTheTrainedContextItWarnsAndWorks) {
  const std::string text(300, 'q');
  const auto length = tokens(text).size();
  ASSERT_GT(length, static_cast<std::size_t>(kTrainedContext));
  const Outcome outcome = run_program(run_command({"-p", text, "-n", "3", "--budget", "32"}));
  EXPECT_EQ(outcome.code, 0);
  EXPECT_TRUE(holds(outcome.err, "warning")) << outcome.err;
  EXPECT_TRUE(holds(outcome.err, std::to_string(length))) << outcome.err;
  EXPECT_TRUE(holds(outcome.err, std::to_string(kTrainedContext))) << outcome.err;
  EXPECT_FALSE(holds(run_program(run_command({"-p", "short", "-n", "3"})).err, "warning"));
}

TEST_F(Run, ChatTemplateWrapsThePrompt) {
  const auto rendered = model_->apply_chat_template({{"system", "sys"}, {"user", "hi"}}, true, "chatml");
  ASSERT_TRUE(rendered);
  const Outcome outcome =
      run_program(run_command({"-p", "hi", "--system", "sys", "--chat-template", "chatml", "-n", "8", "-q"}));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, continue_text(tokens(*rendered), 8));
}

TEST_F(Run, UnknownChatTemplatesListTheKnown) {
  const Outcome outcome = run_program(run_command({"-p", "hi", "--chat-template", "nonesuch", "-n", "1"}));
  EXPECT_EQ(outcome.code, 2) << outcome.err;
  EXPECT_TRUE(holds(outcome.err, "nonesuch")) << outcome.err;
  EXPECT_TRUE(holds(outcome.err, "chatml")) << outcome.err;
}

// ------------------------------------------------------------------------------------------- statistics

TEST_F(Run, StatisticsTellWhatHappened) {
  const std::string text(200, 'q');
  const auto length = static_cast<std::int64_t>(tokens(text).size());
  const Outcome outcome = run_program(run_command({"-p", text, "-n", "20", "-q", "--budget", "32", "--policy",
                                                   "keydiff:keep_last=8", "--stats", file("s.json")}));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const Json json = Json::parse(read("s.json"));
  EXPECT_EQ(json["model"], file("tiny.gguf"));
  EXPECT_EQ(json["policy"], "keydiff:keep_last=8");
  EXPECT_EQ(json["budget"], 32);
  EXPECT_EQ(json["block"], 16);
  EXPECT_EQ(json["prompt_tokens"], length);
  EXPECT_EQ(json["generated_tokens"], 20);
  EXPECT_GT(json["ttft_seconds"], 0.0);
  EXPECT_GT(json["prefill"]["tokens_per_second"], 0.0);
  EXPECT_GT(json["decode"]["tokens_per_second"], 0.0);
  EXPECT_GT(json["attention_seconds"], 0.0);
  EXPECT_GT(json["evict_seconds"], 0.0);
  EXPECT_GT(json["peak_rss_bytes"], 1 << 20);
  EXPECT_EQ(json["threads"], 1);
  EXPECT_FALSE(json["simd_target"].get<std::string>().empty());
  EXPECT_EQ(json["cache"]["seen"], length + 19);  // the last token has been printed, not processed
  EXPECT_LT(json["cache"]["bytes"], json["cache"]["full_bytes"]);
  ASSERT_EQ(json["cache"]["peak_entries_per_layer"].size(), 2u);
  for (const auto& entries : json["cache"]["peak_entries_per_layer"]) EXPECT_LE(entries, 2 * (32 + 16));
  for (const auto& entries : json["cache"]["entries_per_layer"]) EXPECT_LE(entries, 2 * (32 + 16));
}

TEST_F(Run, StatisticsHoldTheText) {
  const Arguments stopped{"-p", "one two", "-n", "20", "-q", "--stats", file("t.json")};
  const Outcome outcome = run_program(run_command(stopped));
  const Json expected = Json::parse(Json(outcome.out).dump(-1, ' ', false, Json::error_handler_t::replace));
  EXPECT_EQ(Json::parse(read("t.json"))["text"], expected);
}

TEST_F(Run, StatisticsGoToStandardErrorForADash) {
  const Outcome outcome = run_program(run_command({"-p", "x", "-n", "2", "-q", "--stats", "-"}));
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(Json::parse(outcome.err)["generated_tokens"], 2);
}

TEST_F(Run, AFullCacheKeepsAll) {
  const std::string text(200, 'q');
  const Outcome outcome =
      run_program(run_command({"-p", text, "-n", "5", "-q", "--policy", "full", "--stats", file("f.json")}));
  const Json json = Json::parse(read("f.json"));
  EXPECT_EQ(json["budget"], 0);
  EXPECT_EQ(json["cache"]["entries_per_layer"][0], 2 * json["cache"]["seen"].get<int>());
  EXPECT_EQ(outcome.out, continue_text(tokens(text), 5));
}

// --------------------------------------------------------------------------------------- refused values

struct Refusal {
  const char* name;
  Arguments arguments;
  int code;
  Arguments said;
};

void PrintTo(const Refusal& refusal, std::ostream* out) { *out << refusal.name; }

class Refusals : public Tiny, public testing::WithParamInterface<Refusal> {};

TEST_P(Refusals, AreNamedAndLoseNothing) {
  write("kept.json", "old");
  Arguments arguments{"-p", "hello", "-n", "4", "--stats", file("kept.json")};
  arguments.insert(arguments.end(), GetParam().arguments.begin(), GetParam().arguments.end());
  const Outcome outcome = run_program(run_command(arguments));
  EXPECT_EQ(outcome.code, GetParam().code) << outcome.err;
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(outcome.err.rfind("keynest: ", 0), 0u) << outcome.err;
  for (const std::string& part : GetParam().said) EXPECT_TRUE(holds(outcome.err, part)) << outcome.err;
  EXPECT_EQ(read("kept.json"), "old");
}

INSTANTIATE_TEST_SUITE_P(
    Run, Refusals,
    testing::Values(
        Refusal{"PinsAboveBudget", {"--policy", "sink:first=64", "--budget", "16"}, 2, {"64", "16"}},
        Refusal{"SharePinsAboveBudget",
                {"--policy", "keydiff:keep_first=60%,keep_last=60%", "--budget", "100"},
                2,
                {"100"}},
        Refusal{"BudgetLargerThanMemory", {"--budget", "1000000000"}, 1, {"1000000000", "available"}},
        Refusal{"BytesTooFew", {"--budget", "100B"}, 2, {"100"}},
        Refusal{"LimitTooSmall", {"--budget", "full", "--cache-limit", "1KiB"}, 1, {"limit"}}),
    [](const auto& one) { return std::string(one.param.name); });

TEST_F(Run, BlockAboveTheTrainedContextIsRefused) {
  const Outcome outcome = run_program(
      {"run", "-m", file("tiny.gguf"), "-p", "x", "--block", std::to_string(kTrainedContext + 1)});
  EXPECT_EQ(outcome.code, 2) << outcome.err;
  EXPECT_TRUE(holds(outcome.err, std::to_string(kTrainedContext))) << outcome.err;
}

// -------------------------------------------------------------------------------------------- endings

TEST_F(Run, EndsQuietlyWhenNobodyReads) {
  Program program(run_command({"-p", "x", "-n", "-1", "--budget", "32", "--stats", file("closed.json")}));
  while (program.out().size() < 100) ASSERT_TRUE(program.wait_more());
  program.close_output();
  EXPECT_EQ(program.finish(), 0);
  EXPECT_EQ(program.err(), "");
  EXPECT_GT(Json::parse(read("closed.json"))["generated_tokens"], 50);
}

TEST_F(Run, StopsReadingALongPromptWhenNobodyReads) {
  Program program(run_command({"-n", "1", "-q", "--budget", "32", "--stats", file("gone.json")}));
  program.close_output();
  program.write(std::string(1 << 20, 'q'));
  EXPECT_EQ(program.finish(), 0);
  EXPECT_LT(Json::parse(read("gone.json"))["prompt_tokens"], 1000);
}

TEST_F(Run, AFullDiskIsAnError) {
  Program program(Program::Options{run_command({"-p", "x", "-n", "5"}), false, "/dev/full"});
  EXPECT_EQ(program.finish(), 1);
  EXPECT_TRUE(holds(program.err(), "keynest: cannot write to standard output")) << program.err();
}

TEST_F(Run, AClosedStandardOutputIsAnError) {
  Program program(Program::Options{run_command({"-p", "x", "-n", "5"}), false, "closed"});
  EXPECT_EQ(program.finish(), 1);
  EXPECT_TRUE(holds(program.err(), "keynest: cannot write to standard output")) << program.err();
}

TEST_F(Run, CtrlCStopsTheTextAndSumsUp) {
  Program program(run_command({"-p", "x", "-n", "-1", "--budget", "32", "--stats", file("int.json")}));
  while (program.out().size() < 100) ASSERT_TRUE(program.wait_more());
  program.signal(SIGINT);
  EXPECT_EQ(program.finish(), 130);
  EXPECT_TRUE(holds(program.err(), "generated ")) << program.err();
  const Json json = Json::parse(read("int.json"));
  EXPECT_GT(json["generated_tokens"], 10);
}

TEST_F(Run, CtrlCStopsThePromptAtTheNextBlock) {
  Program program(
      Program::Options{run_command({"-n", "5", "--budget", "32", "--stats", file("p.json")}), true, {}});
  program.write(std::string(4 << 20, 'q'));
  program.close_input();
  ASSERT_TRUE(program.wait_error("t/s"));
  program.signal(SIGINT);
  EXPECT_EQ(program.finish(), 130);
  EXPECT_EQ(program.out(), "");
  EXPECT_TRUE(holds(program.err(), "generated  0 tokens")) << program.err();
  const Json json = Json::parse(read("p.json"));
  EXPECT_GT(json["prompt_tokens"], 0);
  EXPECT_EQ(json["prompt_tokens"].get<int>() % 16, 0);
}

TEST_F(Run, CtrlCWhileItWaitsForInput) {
  Program program(run_command({"-v"}));
  program.write("x");
  program.wait_reading();
  program.signal(SIGINT);
  EXPECT_EQ(program.wait(), 130);
}

// ------------------------------------------------------------------------------------------- progress

TEST_F(Run, ATerminalShowsProgress) {
  const std::string text(3000, 'q');
  Program program(Program::Options{run_command({"-n", "2", "--budget", "32", "-p", text}), true, {}});
  EXPECT_EQ(program.finish(), 0);
  for (const char* part : {"prompt ", "100%", "t/s", " left", "cache ", "\x1b[K", "policy "}) {
    EXPECT_TRUE(holds(program.err(), part)) << part << program.err();
  }
  EXPECT_FALSE(holds(program.out(), "%"));
}

TEST_F(Run, QuietShowsNoProgress) {
  const std::string text(3000, 'q');
  Program program(Program::Options{run_command({"-n", "2", "-q", "--budget", "32", "-p", text}), true, {}});
  EXPECT_EQ(program.finish(), 0);
  EXPECT_FALSE(holds(program.err(), "%")) << program.err();
}

}  // namespace
}  // namespace keynest::test
