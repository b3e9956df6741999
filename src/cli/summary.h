// The closing summary on standard error, and what -v tells at the start.
#pragma once

#include <cstdint>
#include <string>

#include "keynest/model.h"
#include "keynest/stats.h"

namespace keynest::cli {

/// Four lines: prompt, generated, cache, policy.
std::string summary_text(const Stats& stats, std::int64_t generated_tokens);

/// "SmolLM2 (llama): 30 layers, 9 heads over 3 KV heads of size 64, ...".
std::string describe(const ModelInfo& info);

/// Warns when `subject` ("prompt") has more tokens than the model was trained on; true if so.
bool warn_if_beyond(const ModelInfo& info, const char* subject, std::int64_t tokens);

}  // namespace keynest::cli
