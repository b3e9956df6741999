// From input to prompt, with a model that only renders and counts.
#include "cli/prompt.h"

#include <gtest/gtest.h>

#include "cli/conversation.h"

namespace keynest::cli {
namespace {

/// One token per byte, a start token 256, and a template in the manner of ChatML that trims replies.
class FakeModel : public Model {
 public:
  const ModelInfo& info() const override { return info_; }
  std::vector<Token> tokenize(std::string_view text, bool add_special, bool) const override {
    std::vector<Token> tokens;
    if (add_special) tokens.push_back(256);
    for (std::size_t i = 0; i < text.size(); ++i) {
      const bool start = text.substr(i, 3) == "<s>";
      tokens.push_back(start ? 256 : static_cast<unsigned char>(text[i]));
      if (start) i += 2;
    }
    return tokens;
  }
  std::string piece(Token token, bool) const override { return std::string(1, static_cast<char>(token)); }
  bool is_end(Token) const override { return false; }
  std::string chat_template() const override { return "fake"; }
  Result<std::string> apply_chat_template(const std::vector<ChatMessage>& messages, bool add_assistant,
                                          const std::string& chat_template) const override {
    if (chat_template == "broken") return invalid_argument("no such template");
    std::string text;
    for (const ChatMessage& message : messages) {
      const bool hidden = chat_template == "forgetful" && message.role == "assistant";
      if (!hidden) text += "[" + message.role + "]" + trimmed(message.content) + "[end]";
    }
    return text + (add_assistant ? "[assistant]" : "");
  }

 private:
  static std::string trimmed(const std::string& text) {
    const auto first = text.find_first_not_of(" \n");
    return first == std::string::npos ? "" : text.substr(first, text.find_last_not_of(" \n") - first + 1);
  }

  ModelInfo info_;
};

TEST(JoinParts, KeepsBytesAndSeparatesLines) {
  EXPECT_EQ(join_parts({"file\n", "question"}), "file\nquestion");
  EXPECT_EQ(join_parts({"file", "question"}), "file\nquestion");
  EXPECT_EQ(join_parts({"", "question"}), "question");
  EXPECT_EQ(join_parts({"file", ""}), "file");
  EXPECT_EQ(join_parts({"a\xFF\r\n\n", "b\n"}), "a\xFF\r\n\nb\n");
}

TEST(ReadInput, EmptyAndMissing) {
  const auto empty = read_input({{}, ""});
  ASSERT_FALSE(empty);
  EXPECT_EQ(empty.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(empty.error().message.find("empty"), std::string::npos);
  EXPECT_FALSE(read_input({{"/no/such/file"}, "text"}));
  EXPECT_FALSE(read_input({{"-", "-"}, {}}));
  EXPECT_EQ(*read_input({{}, "text"}), "text");
}

TEST(WantsChat, Rule) {
  ModelInfo base, tuned, file;
  base.name = "Gemma 3 270M";
  base.path = "models/gemma-3-270m.Q4_K_M.gguf";
  tuned.name = "Qwen2.5 Coder 0.5B Instruct";
  file.path = "/models/gemma-3-270m-it.gguf";
  TemplateFlags none, chat, no_chat, system, named;
  chat.chat = true;
  no_chat.no_chat = true;
  system.system = "be brief";
  named.chat_template = "chatml";
  EXPECT_FALSE(wants_chat(none, base, false));
  EXPECT_TRUE(wants_chat(none, base, true));
  EXPECT_TRUE(wants_chat(none, tuned, false));
  EXPECT_TRUE(wants_chat(none, file, false));
  EXPECT_TRUE(wants_chat(chat, base, false));
  EXPECT_FALSE(wants_chat(no_chat, tuned, true));
  EXPECT_TRUE(wants_chat(system, base, false));
  EXPECT_TRUE(wants_chat(named, base, false));
}

TEST(FallbackTemplate, ByFamily) {
  ModelInfo gemma, qwen;
  gemma.architecture = "gemma3";
  qwen.architecture = "qwen2";
  EXPECT_EQ(fallback_template(gemma, false), "gemma");
  EXPECT_EQ(fallback_template(qwen, false), "chatml");
  EXPECT_EQ(fallback_template(gemma, true), "");
}

TEST(ResolveTemplate, NamesFilesAndMistakes) {
  EXPECT_EQ(*resolve_template("chatml"), "chatml");
  EXPECT_EQ(*resolve_template(""), "");
  EXPECT_EQ(*resolve_template("{{ messages[0].content }}"), "{{ messages[0].content }}");
  EXPECT_FALSE(resolve_template("no/such/file.jinja"));
}

TEST(PromptTokens, StartTokenOnce) {
  const FakeModel model;
  EXPECT_EQ(prompt_tokens(model, "a"), (std::vector<Token>{256, 'a'}));
  EXPECT_EQ(prompt_tokens(model, "<s>a"), (std::vector<Token>{256, 'a'}));
}

TEST(Conversation, FirstTurnIsTheWholePrompt) {
  const FakeModel model;
  Conversation talk(model, "", "be brief");
  EXPECT_TRUE(talk.empty());
  EXPECT_EQ(*talk.add_user("hi"), "[system]be brief[end][user]hi[end][assistant]");
  EXPECT_FALSE(talk.empty());
}

TEST(Conversation, LaterTurnsAddOnlyWhatIsNew) {
  const FakeModel model;
  Conversation talk(model, "", "");
  std::string all = *talk.add_user("hi");
  all += " hello \n";  // generated text, as it is in the cache; the template would trim it
  talk.add_reply(" hello \n");
  const std::string more = *talk.add_user("and?");
  EXPECT_EQ(more, "[end][user]and?[end][assistant]");
  talk.add_reply("");
  EXPECT_EQ(*talk.add_user("KeynestReply"), "[end][user]KeynestReply[end][assistant]");
}

TEST(Conversation, AFailedTurnLeavesItAsItWas) {
  const FakeModel model;
  Conversation broken(model, "broken", "");
  EXPECT_FALSE(broken.add_user("hi"));
  EXPECT_TRUE(broken.empty());
  Conversation forgetful(model, "forgetful", "");
  EXPECT_TRUE(forgetful.add_user("hi"));
  forgetful.add_reply("hello");
  EXPECT_FALSE(forgetful.add_user("and?"));
}

TEST(Conversation, ResetKeepsTheSystemMessage) {
  const FakeModel model;
  Conversation talk(model, "", "sys");
  EXPECT_TRUE(talk.add_user("hi"));
  talk.reset();
  EXPECT_TRUE(talk.empty());
  EXPECT_EQ(*talk.add_user("x"), "[system]sys[end][user]x[end][assistant]");
}

}  // namespace
}  // namespace keynest::cli
