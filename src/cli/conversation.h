// The turns of a conversation as text for one growing sequence: each turn gives only what is new.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "keynest/model.h"
#include "keynest/result.h"

namespace keynest::cli {

class Conversation {
 public:
  /// `chat_template`: for Model::apply_chat_template. `system`: may be empty.
  Conversation(const Model& model, std::string chat_template, std::string system);

  /// The text that follows what the sequence holds: on the first turn the whole rendered conversation, later
  /// the end of the last reply as the template writes it, the user's message and the start of the next reply.
  /// Errors: the template cannot be rendered; the conversation stays as it was.
  Result<std::string> add_user(std::string text);

  void add_reply(std::string text);

  bool empty() const;
  void reset();

 private:
  const Model& model_;
  std::string template_;
  std::string system_;
  std::vector<ChatMessage> messages_;
};

}  // namespace keynest::cli
