// What libllama itself computes from a file: the reference for logits and tokens.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "keynest/types.h"

namespace keynest::test {

/// Logits [sequence.size(), vocabulary] with a full F32 cache and without flash attention; empty when
/// libllama cannot load the file.
std::vector<float> libllama_logits(const std::string& path, std::span<const Token> sequence, int threads = 1);

/// Logits [sequence.size() - prompt + 1, vocabulary] after the first `prompt` tokens and after every further
/// one, as an engine computes them that reads the prompt in one batch and then one token at a time; F16
/// cache.
std::vector<float> libllama_step_logits(const std::string& path, std::span<const Token> sequence,
                                        std::size_t prompt, bool flash_attention, int threads);

/// Largest |a - b| over the largest |b|.
double relative_difference(std::span<const float> a, std::span<const float> b);

}  // namespace keynest::test
