#include "engine/sampler.h"

#include <algorithm>

namespace keynest {
namespace {

bool is_greedy(const SamplingOptions& options) {
  return options.temperature <= 0.0f && options.repeat_penalty == 1.0f;
}

}  // namespace

void Sampler::rebuild(const SamplingOptions& options, std::int32_t vocabulary) {
  options_ = options;
  chain_.reset(llama_sampler_chain_init(llama_sampler_chain_default_params()));
  const auto add = [&](llama_sampler* sampler) { llama_sampler_chain_add(chain_.get(), sampler); };
  if (options.repeat_penalty != 1.0f) {
    add(llama_sampler_init_penalties(vocabulary, options.repeat_last, options.repeat_penalty, 0.0f, 0.0f));
  }
  if (options.temperature <= 0.0f) {
    add(llama_sampler_init_greedy());
    return;
  }
  if (options.top_k > 0) add(llama_sampler_init_top_k(options.top_k));
  if (options.top_p < 1.0f) add(llama_sampler_init_top_p(options.top_p, 1));
  if (options.min_p > 0.0f) add(llama_sampler_init_min_p(options.min_p, 1));
  add(llama_sampler_init_temp(options.temperature));
  add(llama_sampler_init_dist(options.seed));
}

Token Sampler::sample(std::span<const float> logits, const SamplingOptions& options) {
  if (is_greedy(options)) {
    return static_cast<Token>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  }
  if (!chain_ || options != options_) rebuild(options, static_cast<std::int32_t>(logits.size()));
  candidates_.resize(logits.size());
  for (std::size_t i = 0; i < logits.size(); ++i) candidates_[i] = {static_cast<Token>(i), logits[i], 0.0f};
  llama_token_data_array array{candidates_.data(), candidates_.size(), -1, false};
  llama_sampler_apply(chain_.get(), &array);
  const Token token = array.data[array.selected].id;
  llama_sampler_accept(chain_.get(), token);
  return token;
}

}  // namespace keynest
