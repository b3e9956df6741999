// Conversations to prompts, through libllama's built-in chat templates.
#pragma once

#include <string>
#include <vector>

#include "keynest/model.h"

namespace keynest {

/// `chat_template` is a template's text or the name of a built-in one. Errors: kInvalidArgument, naming what
/// there is.
Result<std::string> render_chat(const std::vector<ChatMessage>& messages, bool add_assistant,
                                const std::string& chat_template);

}  // namespace keynest
