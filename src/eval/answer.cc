#include "eval/answer.h"

namespace keynest::eval {

Result<Answer> answer(const std::shared_ptr<const Model>& model, const std::string& prompt,
                      const std::string& chat_template, const SessionOptions& options, int most) {
  const auto text = model->apply_chat_template({{"user", prompt}}, true, chat_template);
  if (!text) return text.error();
  auto session = Session::create(model, options);
  if (!session) return session.error();
  KEYNEST_TRY((*session)->prefill(model->tokenize(*text, true, true)));
  Answer answer;
  for (int i = 0; i < most; ++i) {
    const Token token = (*session)->sample({});
    if (model->is_end(token)) break;
    answer.text += model->piece(token);
    if (i + 1 < most) KEYNEST_TRY((*session)->decode(token));
  }
  answer.stats = (*session)->stats();
  return answer;
}

}  // namespace keynest::eval
