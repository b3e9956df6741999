#include <gtest/gtest.h>

#include "support/models.h"
#include "support/tiny_gguf.h"

namespace keynest::test {
namespace {

const std::vector<ChatMessage> kChat{{"system", "Be brief."}, {"user", "Hi"}};

class ChatTemplate : public testing::Test {
 protected:
  std::shared_ptr<const GraphModel> load(const std::string& own_template) {
    TinyModel tiny = tiny_model("llama");
    tiny.chat_template = own_template;
    const std::string path = directory_.file("tiny.gguf");
    EXPECT_TRUE(write_tiny_gguf(path, tiny));
    return load_model(path);
  }

  TemporaryDirectory directory_;
};

TEST_F(ChatTemplate, DefaultsToChatml) {
  const auto model = load("");
  EXPECT_EQ(model->chat_template(), "");
  const auto text = model->apply_chat_template(kChat, true);
  ASSERT_TRUE(text.ok());
  EXPECT_EQ(
      *text,
      "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
}

TEST_F(ChatTemplate, TakesTheFilesOwn) {
  const std::string own = "{% for m in messages %}<start_of_turn>{{ m.role }}{% endfor %}";
  const auto model = load(own);
  EXPECT_EQ(model->chat_template(), own);
  const auto text = model->apply_chat_template({{"user", "Hi"}}, false);
  ASSERT_TRUE(text.ok());
  EXPECT_EQ(*text, "<start_of_turn>user\nHi<end_of_turn>\n");
}

TEST_F(ChatTemplate, TakesNamesOfBuiltInOnes) {
  const auto model = load("");
  const auto text = model->apply_chat_template({{"user", "Hi"}}, true, "llama3");
  ASSERT_TRUE(text.ok());
  EXPECT_NE(text->find("<|start_header_id|>user<|end_header_id|>"), std::string::npos);
}

TEST_F(ChatTemplate, LongConversationsAreComplete) {
  const auto model = load("");
  const std::vector<ChatMessage> chat(500, {"user", std::string(1000, 'x')});
  const auto text = model->apply_chat_template(chat, false);
  ASSERT_TRUE(text.ok());
  EXPECT_EQ(text->size(), 500 * (1000 + std::string("<|im_start|>user\n<|im_end|>\n").size()));
}

TEST_F(ChatTemplate, UnknownOnesListTheBuiltIns) {
  const auto model = load("");
  for (const std::string wrong : {"no such template", "{{ nothing known }}"}) {
    const auto text = model->apply_chat_template(kChat, true, wrong);
    ASSERT_FALSE(text.ok());
    EXPECT_EQ(text.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(text.error().message.find(wrong), std::string::npos);
    EXPECT_NE(text.error().message.find("chatml"), std::string::npos);
  }
}

TEST_F(ChatTemplate, RefusesZeroBytes) {
  const auto model = load("");
  EXPECT_FALSE(model->apply_chat_template({{"user", std::string("a\0b", 3)}}, true).ok());
}

}  // namespace
}  // namespace keynest::test
