#include "cli/conversation.h"

#include <algorithm>
#include <utility>

namespace keynest::cli {
namespace {

/// A text that no message contains, to be found again in the rendering.
std::string unused_text(const std::vector<ChatMessage>& messages) {
  std::string text = "KeynestReply";
  const auto used = [&text](const ChatMessage& message) {
    return message.content.find(text) != std::string::npos;
  };
  while (std::any_of(messages.begin(), messages.end(), used)) text += 'Y';
  return text;
}

}  // namespace

Conversation::Conversation(const Model& model, std::string chat_template, std::string system)
    : model_(model), template_(std::move(chat_template)), system_(std::move(system)) {
  reset();
}

void Conversation::reset() {
  messages_.clear();
  if (!system_.empty()) messages_.push_back({"system", system_});
}

bool Conversation::empty() const { return messages_.size() == (system_.empty() ? 0 : 1); }

Result<std::string> Conversation::add_user(std::string text) {
  const bool first = empty();
  std::vector<ChatMessage> shown = messages_;
  shown.push_back({"user", std::move(text)});
  // Templates may trim or rewrite replies, the cache holds them as generated: so a stand-in takes the place
  // of the last one, and the new text is whatever the template writes after it.
  const std::string stand_in = unused_text(shown);
  if (!first) shown[shown.size() - 2].content = stand_in;
  auto whole = model_.apply_chat_template(shown, true, template_);
  if (!whole) return whole.error();
  const std::size_t at = first ? 0 : whole->find(stand_in);
  if (at == std::string::npos) {
    return Error{ErrorCode::kUnsupported,
                 "the chat template leaves replies out, so a conversation cannot go on; choose another with "
                 "--chat-template, such as chatml"};
  }
  messages_.push_back(std::move(shown.back()));
  return first ? *whole : whole->substr(at + stand_in.size());
}

void Conversation::add_reply(std::string text) { messages_.push_back({"assistant", std::move(text)}); }

}  // namespace keynest::cli
