#include "support/libllama_logits.h"

#include <llama.h>

#include <cmath>
#include <limits>
#include <memory>

namespace keynest::test {

std::vector<float> libllama_logits(const std::string& path, std::span<const Token> sequence, int threads) {
  const std::unique_ptr<llama_model, decltype(&llama_model_free)> model(
      llama_model_load_from_file(path.c_str(), llama_model_default_params()), llama_model_free);
  if (!model) return {};
  const auto tokens = static_cast<std::int32_t>(sequence.size());
  llama_context_params params = llama_context_default_params();
  params.n_ctx = params.n_batch = params.n_ubatch = static_cast<std::uint32_t>(tokens);
  params.n_threads = params.n_threads_batch = threads;
  params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
  params.type_k = params.type_v = GGML_TYPE_F32;
  const std::unique_ptr<llama_context, decltype(&llama_free)> context(
      llama_init_from_model(model.get(), params), llama_free);
  if (!context) return {};
  llama_batch batch = llama_batch_init(tokens, 0, 1);
  batch.n_tokens = tokens;
  for (std::int32_t i = 0; i < tokens; ++i) {
    batch.token[i] = sequence[static_cast<std::size_t>(i)];
    batch.pos[i] = i;
    batch.n_seq_id[i] = 1;
    batch.seq_id[i][0] = 0;
    batch.logits[i] = 1;
  }
  const bool ok = llama_decode(context.get(), batch) == 0;
  llama_batch_free(batch);
  if (!ok) return {};
  const float* logits = llama_get_logits(context.get());
  const std::int32_t vocabulary = llama_vocab_n_tokens(llama_model_get_vocab(model.get()));
  return std::vector<float>(logits, logits + std::int64_t{tokens} * vocabulary);
}

std::vector<float> libllama_step_logits(const std::string& path, std::span<const Token> sequence,
                                        std::size_t prompt, bool flash_attention, int threads) {
  const std::unique_ptr<llama_model, decltype(&llama_model_free)> model(
      llama_model_load_from_file(path.c_str(), llama_model_default_params()), llama_model_free);
  if (!model) return {};
  llama_context_params params = llama_context_default_params();
  params.n_ctx = params.n_batch = params.n_ubatch = static_cast<std::uint32_t>(sequence.size());
  params.n_threads = params.n_threads_batch = threads;
  params.flash_attn_type = flash_attention ? LLAMA_FLASH_ATTN_TYPE_ENABLED : LLAMA_FLASH_ATTN_TYPE_DISABLED;
  const std::unique_ptr<llama_context, decltype(&llama_free)> context(
      llama_init_from_model(model.get(), params), llama_free);
  if (!context) return {};
  const auto vocabulary = static_cast<std::size_t>(llama_vocab_n_tokens(llama_model_get_vocab(model.get())));
  std::vector<Token> tokens(sequence.begin(), sequence.end());
  std::vector<float> all;
  for (std::size_t done = 0; done < tokens.size();) {
    const std::size_t count = done == 0 ? prompt : 1;
    if (llama_decode(context.get(),
                     llama_batch_get_one(tokens.data() + done, static_cast<std::int32_t>(count))) != 0) {
      return {};
    }
    const float* logits = llama_get_logits_ith(context.get(), -1);
    all.insert(all.end(), logits, logits + vocabulary);
    done += count;
  }
  return all;
}

double relative_difference(std::span<const float> a, std::span<const float> b) {
  if (a.size() != b.size() || a.empty()) return std::numeric_limits<double>::infinity();
  double difference = 0, largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double here = std::abs(double{a[i]} - double{b[i]});
    if (!(here <= difference)) difference = here;  // a NaN stays
    largest = std::max(largest, std::abs(double{b[i]}));
  }
  return difference / largest;
}

}  // namespace keynest::test
