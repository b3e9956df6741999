#include "model/chat_template.h"

#include <llama.h>

#include <algorithm>

namespace keynest {
namespace {

std::string builtin_names() {
  std::vector<const char*> names(static_cast<std::size_t>(llama_chat_builtin_templates(nullptr, 0)));
  llama_chat_builtin_templates(names.data(), names.size());
  std::string list;
  for (const char* name : names) list += (list.empty() ? "" : ", ") + std::string(name);
  return list;
}

Error unknown_template(const std::string& chat_template) {
  const std::string shown =
      chat_template.size() <= 40 ? "'" + chat_template + "'" : "'" + chat_template.substr(0, 40) + "...'";
  return invalid_argument(
      "chat template " + shown +
      " is neither a known template text nor a built-in name; give one of: " + builtin_names());
}

Status check_texts(const std::vector<ChatMessage>& messages, const std::string& chat_template) {
  const auto has_zero = [](const std::string& text) { return text.find('\0') != std::string::npos; };
  if (has_zero(chat_template)) return invalid_argument("the chat template contains a zero byte");
  for (const ChatMessage& message : messages) {
    if (!has_zero(message.role) && !has_zero(message.content)) continue;
    return invalid_argument(
        "a chat message contains a zero byte; remove it, or give the text without a template");
  }
  return {};
}

}  // namespace

Result<std::string> render_chat(const std::vector<ChatMessage>& messages, bool add_assistant,
                                const std::string& chat_template) {
  KEYNEST_TRY(check_texts(messages, chat_template));
  std::vector<llama_chat_message> chat;
  std::size_t bytes = 256;
  for (const ChatMessage& message : messages) {
    chat.push_back({message.role.c_str(), message.content.c_str()});
    bytes += message.role.size() + message.content.size() + 64;
  }
  std::string text(bytes, '\0');
  for (int attempt = 0; attempt < 2; ++attempt) {
    const std::int32_t length =
        llama_chat_apply_template(chat_template.c_str(), chat.data(), chat.size(), add_assistant, text.data(),
                                  static_cast<std::int32_t>(text.size()));
    if (length < 0) return unknown_template(chat_template);
    const bool complete = static_cast<std::size_t>(length) <= text.size();
    text.resize(static_cast<std::size_t>(length));
    if (complete) return text;
  }
  return Error{ErrorCode::kInternal, "a chat template's length changed between two renderings"};
}

}  // namespace keynest
