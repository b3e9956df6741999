// A model's greedy answer to a prompt inside a budget.
#pragma once

#include <memory>
#include <string>

#include "keynest/model.h"
#include "keynest/result.h"
#include "keynest/session.h"

namespace keynest::eval {

struct Answer {
  std::string text;
  Stats stats;
};

/// `prompt` becomes the user's message in `chat_template` (see Model::apply_chat_template). The answer ends
/// where the model ends it, after `most` tokens at the latest. Errors: those of the template and of Session.
Result<Answer> answer(const std::shared_ptr<const Model>& model, const std::string& prompt,
                      const std::string& chat_template, const SessionOptions& options, int most);

}  // namespace keynest::eval
