// keynest chat on a tiny model, over pipes.
#include <gtest/gtest.h>

#include <csignal>
#include <string>
#include <vector>

#include "cli/conversation.h"
#include "cli/program.h"
#include "cli/prompt.h"
#include "cli/tiny.h"

namespace keynest::test {
namespace {

using Arguments = std::vector<std::string>;

class Chat : public Tiny {
 protected:
  static Arguments chat_command(Arguments more, const std::string& reply_tokens = "12") {
    Arguments all = command("chat", {"--chat-template", "chatml", "-n", reply_tokens});
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
};

/// What the program should print for these messages: one session that is fed only what is new.
class Expected {
 public:
  explicit Expected(const std::shared_ptr<const Model>& model, const std::string& system = {})
      : model_(model), conversation_(*model, "chatml", system) {
    SessionOptions options;
    options.threads = 1;
    options.block = 16;
    session_ = Session::create(model, options).value();
  }

  std::string turn(const std::string& message) {
    const bool first = conversation_.empty();
    const std::string text = *conversation_.add_user(message);
    EXPECT_TRUE(
        session_->prefill(first ? cli::prompt_tokens(*model_, text) : model_->tokenize(text, false, true)));
    std::string reply;
    for (int i = 0; i < 12; ++i) {
      const Token token = session_->sample({});
      reply += model_->piece(token);
      EXPECT_TRUE(session_->decode(token));
    }
    conversation_.add_reply(reply);
    return reply + "\n";
  }

  std::int64_t seen() const { return session_->seen(); }

 private:
  std::shared_ptr<const Model> model_;
  std::unique_ptr<Session> session_;
  cli::Conversation conversation_;
};

TEST_F(Chat, TurnsGoOnInOneCache) {
  Expected expected(model_);
  std::string text = expected.turn("one");
  text += expected.turn("two");
  text += expected.turn("three");
  const Outcome outcome = run_program(chat_command({}), "one\ntwo\n\nthree\n");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, text);
  EXPECT_TRUE(holds(outcome.err, "all " + std::to_string(expected.seen()) + " tokens")) << outcome.err;
  EXPECT_TRUE(holds(outcome.err, "generated  36 tokens")) << outcome.err;
}

TEST_F(Chat, SystemDocumentAndContinuedLines) {
  write("book.txt", "a book");
  Expected expected(model_, "be brief");
  std::string text = expected.turn("a book\none\ntwo");
  text += expected.turn("three");
  const Outcome outcome =
      run_program(chat_command({"-q", "--system", "be brief", "-f", file("book.txt")}), "one\\\ntwo\nthree");
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.out, text);
}

TEST_F(Chat, QuietSaysNothing) {
  const Outcome outcome = run_program(chat_command({"-q"}), "one\n");
  EXPECT_EQ(outcome.err, "");
}

TEST_F(Chat, WarnsOnceBeyondTheTrainedContext) {
  const std::string err = run_program(chat_command({"-q"}), "one\ntwo\nthree\nfour\nfive\n").err;
  const std::string warning = "warning: the conversation has";
  EXPECT_TRUE(holds(err, warning)) << err;
  EXPECT_EQ(err.find(warning), err.rfind(warning)) << err;
}

TEST_F(Chat, CommandsAreNoMessages) {
  Expected expected(model_);
  const std::string text = expected.turn("one");
  const Outcome outcome = run_program(chat_command({"-q"}), "/help\none\n/stats\n/nonsense\n/exit\ntwo\n");
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.out, text);
  EXPECT_TRUE(holds(outcome.err, "/reset")) << outcome.err;
  EXPECT_TRUE(holds(outcome.err, "all " + std::to_string(expected.seen()) + " tokens")) << outcome.err;
  EXPECT_TRUE(holds(outcome.err, "/nonsense")) << outcome.err;
}

TEST_F(Chat, PathsAreMessages) {
  const Outcome outcome = run_program(chat_command({"-q"}), "/usr/bin what is it?\n");
  EXPECT_EQ(outcome.out, Expected(model_).turn("/usr/bin what is it?"));
}

TEST_F(Chat, ResetForgets) {
  const std::string text = Expected(model_).turn("one");
  const Outcome outcome = run_program(chat_command({"-q"}), "one\n/reset\none\n");
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.out, text + text);
}

TEST_F(Chat, StaysWithinTheBudget) {
  std::string messages;
  for (int i = 0; i < 20; ++i) messages += "tell me more about it\n";
  const Outcome outcome = run_program(chat_command({"--budget", "32", "--policy", "sink"}), messages);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  // Two layers of two heads, each at most N + B = 48 entries: one page of 64 rows, 4.5 KiB.
  const std::string one_page_each = "cache      18.0 KiB now, 18.0 KiB peak";
  EXPECT_TRUE(holds(outcome.err, one_page_each)) << outcome.err;
}

TEST_F(Chat, EmptyInputEndsAtOnce) {
  const Outcome outcome = run_program(chat_command({"-q"}), "");
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.out, "");
}

TEST_F(Chat, StandardInputIsNoDocument) {
  const Outcome outcome = run_program(chat_command({"-f", "-"}), "x\n");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_TRUE(holds(outcome.err, "standard input")) << outcome.err;
}

TEST_F(Chat, CtrlCEndsAScriptedConversation) {
  Program program(chat_command({"--budget", "32"}, "-1"));
  program.write("one\n");
  while (program.out().size() < 100) ASSERT_TRUE(program.wait_more());
  program.signal(SIGINT);
  EXPECT_EQ(program.wait(), 130);
}

TEST_F(Chat, CtrlCWhileItWaits) {
  Program program(chat_command({}));
  program.write("one\n");
  ASSERT_TRUE(program.wait_output("\n"));
  program.signal(SIGINT);
  EXPECT_EQ(program.wait(), 130);
}

/// How the program asks for a message after a turn, in whose place the progress bar was.
constexpr const char* kNextMessage = "\x1b[K> ";

TEST_F(Chat, OnATerminalCtrlCEndsTheReplyOnly) {
  const Program::Options options{chat_command({"--budget", "32"}, "-1"), true, {}, true};
  Program program(options);
  ASSERT_TRUE(program.wait_error("> "));
  program.write("one\n");
  while (program.out().size() < 100) ASSERT_TRUE(program.wait_more());
  program.signal(SIGINT);
  ASSERT_TRUE(program.wait_error(kNextMessage));
  program.drain_output();
  const std::size_t first = program.out().size();
  program.write("two\\\n");
  ASSERT_TRUE(program.wait_error("| "));
  program.write("three\n");
  while (program.out().size() < first + 100) ASSERT_TRUE(program.wait_more());
  program.signal(SIGINT);
  ASSERT_TRUE(program.wait_error(kNextMessage, 2));
  program.write("/exit\n");
  EXPECT_EQ(program.wait(), 0);
  EXPECT_TRUE(holds(program.err(), "policy ")) << program.err();
}

TEST_F(Chat, OnATerminalCtrlCAtThePromptLeaves) {
  const Program::Options options{chat_command({}), true, {}, true};
  Program program(options);
  ASSERT_TRUE(program.wait_error("> "));
  program.signal(SIGINT);
  EXPECT_EQ(program.wait(), 130);
}

TEST_F(Chat, OnATerminalCtrlCInALongPromptLosesNothing) {
  const std::string book(100000, 'q');
  write("long.txt", book);
  cli::Conversation conversation(*model_, "chatml", "");
  std::size_t total = cli::prompt_tokens(*model_, *conversation.add_user(book + "\none")).size();
  conversation.add_reply("");
  total += model_->tokenize(*conversation.add_user("two"), false, true).size();

  const Arguments arguments = chat_command({"--budget", "32", "-f", file("long.txt")}, "1");
  Program program(Program::Options{arguments, true, {}, true});
  ASSERT_TRUE(program.wait_error("> "));
  program.write("one\n");
  ASSERT_TRUE(program.wait_error("t/s"));
  program.signal(SIGINT);
  ASSERT_TRUE(program.wait_error(kNextMessage));
  program.write("two\n");  // goes on with the prompt where it stopped
  ASSERT_TRUE(program.wait_error(kNextMessage, 2));
  program.write("/exit\n");
  EXPECT_EQ(program.wait(), 0);
  EXPECT_TRUE(holds(program.err(), "prompt     " + std::to_string(total) + " tokens"))
      << total << program.err();
}

TEST_F(Chat, EndsQuietlyWhenNobodyReads) {
  Program program(chat_command({"--budget", "32"}, "-1"));
  program.write("one\ntwo\n");
  while (program.out().size() < 100) ASSERT_TRUE(program.wait_more());
  program.close_output();
  EXPECT_EQ(program.finish(), 0);
  EXPECT_EQ(program.err(), "");
}

}  // namespace
}  // namespace keynest::test
