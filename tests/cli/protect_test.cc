// --protect: words, the tokens of a system message, and what the program makes of both.
#include "cli/protect.h"

#include <gtest/gtest.h>

#include "cli/program.h"
#include "cli/prompt.h"
#include "cli/tiny.h"

namespace keynest::test {
namespace {

using cli::parse_protection;
using cli::system_range;

class Protect : public Tiny {};

TEST_F(Protect, WordsAreRangesOrTheSystemMessage) {
  const auto protection = parse_protection({"0:4", "system", "10:200"}, true);
  ASSERT_TRUE(protection.ok());
  EXPECT_TRUE(protection->system);
  ASSERT_EQ(protection->ranges.size(), 2u);
  EXPECT_EQ(protection->ranges[1], (PositionRange{Position{10}, Position{200}}));
  for (const char* word : {"", "4", "4:", ":4", "4:4", "5:4", "-1:4", "a:b", "1:2:3", "1: 2", "System"}) {
    const auto refused = parse_protection({word}, true);
    ASSERT_FALSE(refused.ok()) << word;
    EXPECT_TRUE(holds(refused.error().message, "FIRST:LAST")) << refused.error().message;
  }
  const auto refused = parse_protection({"system"}, false);
  ASSERT_FALSE(refused.ok());
  EXPECT_TRUE(holds(refused.error().message, "--system TEXT"));
}

/// Text of the tokens that a system message protects in a prompt of this template.
std::string protected_text(const Model& model, const std::string& chat_template, const std::string& system) {
  const std::string text =
      *model.apply_chat_template({{"system", system}, {"user", "one two"}}, true, chat_template);
  const std::vector<Token> tokens = cli::prompt_tokens(model, text);
  const auto range = system_range(model, {system, chat_template, text, tokens});
  EXPECT_TRUE(range.ok());
  EXPECT_EQ(range->first, Position{0});
  std::string held;
  for (int i = 0; i < to_int(range->last); ++i)
    held += model.piece(tokens[static_cast<std::size_t>(i)], true);
  return held;
}

TEST_F(Protect, ASystemMessageEndsWhereTheTemplateEndsIt) {
  const std::string chatml = protected_text(*model_, "chatml", "be kind");
  EXPECT_TRUE(holds(chatml, "be kind<|im_end|>")) << chatml;
  EXPECT_FALSE(holds(chatml, "user")) << chatml;
  // Gemma's template puts it into the first message of the user.
  const std::string gemma = protected_text(*model_, "gemma", "be kind");
  EXPECT_TRUE(gemma.ends_with("be kind") || gemma.ends_with("be kind\n")) << gemma;
}

TEST_F(Protect, ATemplateWithoutSystemMessagesIsAnError) {
  const std::vector<Token> tokens = this->tokens("something else");
  const auto refused = system_range(*model_, {"be kind", "chatml", "something else", tokens});
  ASSERT_FALSE(refused.ok());
  EXPECT_TRUE(holds(refused.error().message, "leaves the system message out"));
}

TEST_F(Protect, RunKeepsWhatIsProtected) {
  std::string text;
  for (int i = 0; i < 60; ++i) text += "one two ";
  const std::vector<std::string> arguments{"-p",       text, "--no-chat", "-n",   "12",        "-q",
                                           "--budget", "24", "--policy",  "sink", "--protect", "20:30"};
  const Outcome outcome = run_program(run_command(arguments));
  ASSERT_EQ(outcome.code, 0) << outcome.err;

  SessionOptions options;
  options.policy = *PolicySpec::parse("sink");
  options.budget = *Budget::parse("24");
  options.block = 16;
  options.threads = 1;
  auto session = Session::create(model_, options).value();
  ASSERT_TRUE(session->protect({Position{20}, Position{30}}).ok());
  ASSERT_TRUE(session->prefill(tokens(text)).ok());
  std::string expected;
  for (int i = 0; i < 12; ++i) {
    const Token token = session->sample({});
    expected += model_->piece(token);
    ASSERT_TRUE(session->decode(token).ok());
  }
  EXPECT_EQ(outcome.out, expected);
}

TEST_F(Protect, MistakesAreUsageErrors) {
  const Outcome word = run_program(run_command({"-p", "x", "--protect", "all"}));
  EXPECT_EQ(word.code, 2);
  EXPECT_TRUE(holds(word.err, "FIRST:LAST")) << word.err;
  const Outcome system = run_program(run_command({"-p", "x", "--protect", "system"}));
  EXPECT_EQ(system.code, 2);
  EXPECT_TRUE(holds(system.err, "--system TEXT")) << system.err;
  const Outcome beyond = run_program(run_command({"-p", "x", "--no-chat", "--protect", "0:500"}));
  EXPECT_EQ(beyond.code, 2);
  EXPECT_TRUE(holds(beyond.err, "ends after the prompt")) << beyond.err;
}

TEST_F(Protect, ChatProtectsItsSystemMessage) {
  std::string words;
  for (int i = 0; i < 12; ++i) words += "one two ";
  const std::vector<std::string> small{"--chat-template", "chatml", "--system", words, "-n", "4", "-q",
                                       "--budget",        "40",     "--policy", "sink"};
  std::vector<std::string> arguments = small;
  arguments.insert(arguments.end(), {"--protect", "system"});
  const Outcome refused = run_program(command("chat", arguments), "hello\n");
  const auto chatml = protected_text(*model_, "chatml", words);
  EXPECT_EQ(refused.code, 2) << "the message has more than 40 tokens: " << tokens(chatml).size();
  EXPECT_TRUE(holds(refused.err, "protected")) << refused.err;
  EXPECT_EQ(run_program(command("chat", small), "hello\n").code, 0) << "unprotected it fits";
  arguments.insert(arguments.end(), {"--budget", "400"});
  arguments.erase(arguments.begin() + 7, arguments.begin() + 9);
  const Outcome kept = run_program(command("chat", arguments), "hello\nagain\n");
  EXPECT_EQ(kept.code, 0) << kept.err;
}

TEST_F(Protect, InspectKeepsWhatIsProtectedUnderEveryPolicy) {
  std::string text;
  for (int i = 0; i < 60; ++i) text += "one two ";
  const std::string said = "be kind";
  const std::vector<std::string> arguments{
      "inspect",         "-m",      file("tiny.gguf"), "-t",   "1",         "--block", "16",        "-q",
      "--json",          "-",       "--system",        said,   "-p",        text,      "--budget",  "100",
      "--policy",        "keydiff", "--policy",        "sink", "--protect", "system",  "--protect", "120:130",
      "--chat-template", "chatml"};
  const Outcome outcome = run_program(arguments);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const std::string prompt = *model_->apply_chat_template({{"system", said}, {"user", text}}, true, "chatml");
  const auto system = system_range(*model_, {said, "chatml", prompt, cli::prompt_tokens(*model_, prompt)});
  ASSERT_TRUE(system.ok());
  const auto json = nlohmann::json::parse(outcome.out);
  ASSERT_EQ(json["runs"].size(), 2u);
  for (const auto& run : json["runs"]) {
    EXPECT_GT(run["evictions"], 0);
    for (int p = 0; p < to_int(system->last); ++p) EXPECT_EQ(run["kept_share"][p], 1.0) << p;
    for (int p = 120; p < 130; ++p) EXPECT_EQ(run["kept_share"][p], 1.0) << p;
  }
  EXPECT_LT(json["runs"][1]["kept_share"][131], 1.0) << "sink keeps what is protected of the middle only";
}

TEST_F(Protect, InspectRefusesAsRunDoes) {
  const auto inspect = [](const std::vector<std::string>& more) {
    std::vector<std::string> all{"inspect", "-m", file("tiny.gguf"), "-t", "1",
                                 "--block", "16", "--no-chat",       "-p", "one two"};
    all.insert(all.end(), more.begin(), more.end());
    return run_program(all);
  };
  const Outcome system = inspect({"--protect", "system", "--html", file("never.html")});
  EXPECT_EQ(system.code, 2);
  EXPECT_TRUE(holds(system.err, "--system TEXT")) << system.err;
  const Outcome beyond = inspect({"--protect", "0:500", "--html", file("never.html")});
  EXPECT_EQ(beyond.code, 2);
  EXPECT_TRUE(holds(beyond.err, "ends after the prompt")) << beyond.err;
}

}  // namespace
}  // namespace keynest::test
