// A model's greedy answers to prompts inside a budget.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>

#include "keynest/model.h"
#include "keynest/result.h"
#include "keynest/session.h"

namespace keynest::eval {

struct Answer {
  std::string text;
  std::int64_t prompt_tokens = 0;
};

struct AnswerOptions {
  SessionOptions session;
  std::string chat_template;  ///< see Model::apply_chat_template
  int most = 24;              ///< tokens; the answer ends where the model ends it, here at the latest
};

/// Gets every answer, in order, as it is made. An error stops the rest.
using AnswerSink = std::function<Status(std::size_t prompt, const Answer& answer)>;

/// Answers each prompt as the user's message. What prompts begin with alike is read once, in whole blocks,
/// and forked; prompts that share more with the next than with later ones should stand next to each other.
/// Every answer is the one its prompt alone would get, with one exception: what depends on the prompt's
/// length (a budget that is a share, layers=pyramid, an episode) goes by the first one's. Errors: those of
/// the template and of Session.
Status answer_all(const std::shared_ptr<const Model>& model, std::span<const std::string> prompts,
                  const AnswerOptions& options, const AnswerSink& sink);

}  // namespace keynest::eval
