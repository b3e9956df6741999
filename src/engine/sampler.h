// Picking tokens, with libllama's samplers.
#pragma once

#include <llama.h>

#include <memory>
#include <span>
#include <vector>

#include "keynest/session.h"

namespace keynest {

class Sampler {
 public:
  Token sample(std::span<const float> logits, const SamplingOptions& options);

 private:
  struct Deleter {
    void operator()(llama_sampler* p) const { llama_sampler_free(p); }
  };

  void rebuild(const SamplingOptions& options, std::int32_t vocabulary);

  SamplingOptions options_;
  std::unique_ptr<llama_sampler, Deleter> chain_;
  std::vector<llama_token_data> candidates_;
};

}  // namespace keynest
