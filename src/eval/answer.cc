#include "eval/answer.h"

#include <algorithm>
#include <vector>

namespace keynest::eval {
namespace {

using Tokens = std::vector<Token>;

Result<std::vector<Tokens>> tokenize(const Model& model, std::span<const std::string> prompts,
                                     const std::string& chat_template) {
  std::vector<Tokens> all;
  for (const std::string& prompt : prompts) {
    const auto text = model.apply_chat_template({{"user", prompt}}, true, chat_template);
    if (!text) return text.error();
    all.push_back(model.tokenize(*text, true, true));
  }
  return all;
}

std::size_t common_start(const Tokens& a, const Tokens& b) {
  const auto differ = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  return static_cast<std::size_t>(differ.first - a.begin());
}

/// Tokens of prompts[0] that all others begin with too: whole blocks, and not the last token, whose logits
/// are wanted.
std::size_t shared_start(std::span<const Tokens> prompts, std::int32_t block) {
  std::size_t shared = std::max<std::size_t>(prompts[0].size(), 1) - 1;
  for (const Tokens& other : prompts.subspan(1)) shared = std::min(shared, common_start(prompts[0], other));
  return shared - shared % static_cast<std::size_t>(block);
}

/// Reads on to token `end` of a prompt. All of it is announced, since policies may look at its length.
Status read_to(Session& session, const Tokens& prompt, std::size_t end) {
  const auto seen = static_cast<std::size_t>(session.seen());
  if (seen >= end) return {};
  const Status status = session.prefill(
      std::span(prompt).subspan(seen),
      [&](std::int64_t done, std::int64_t) { return seen + static_cast<std::size_t>(done) < end; });
  return status || status.error().code == ErrorCode::kCancelled ? Status{} : status;
}

Result<Answer> answer(const Model& model, Session& session, const Tokens& prompt, int most) {
  KEYNEST_TRY(read_to(session, prompt, prompt.size()));
  Answer answer;
  answer.prompt_tokens = static_cast<std::int64_t>(prompt.size());
  for (int i = 0; i < most; ++i) {
    const Token token = session.sample({});
    if (model.is_end(token)) break;
    answer.text += model.piece(token);
    if (i + 1 < most) KEYNEST_TRY(session.decode(token));
  }
  return answer;
}

}  // namespace

Status answer_all(const std::shared_ptr<const Model>& model, std::span<const std::string> prompts,
                  const AnswerOptions& options, const AnswerSink& sink) {
  const auto all = tokenize(*model, prompts, options.chat_template);
  if (!all) return all.error();
  auto trunk = Session::create(model, options.session);
  if (!trunk) return trunk.error();
  for (std::size_t i = 0; i < all->size(); ++i) {
    const Tokens& prompt = (*all)[i];
    KEYNEST_TRY(read_to(**trunk, prompt, shared_start(std::span(*all).subspan(i), options.session.block)));
    auto branch = (*trunk)->fork();
    if (!branch) return branch.error();
    const auto made = answer(*model, **branch, prompt, options.most);
    if (!made) return made.error();
    KEYNEST_TRY(sink(i, *made));
  }
  return {};
}

}  // namespace keynest::eval
