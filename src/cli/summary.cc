#include "cli/summary.h"

#include "cli/format.h"
#include "cli/report.h"

namespace keynest::cli {
namespace {

std::string prompt_line(const Stats& stats) {
  const auto tokens = static_cast<double>(stats.prompt_tokens);
  return "prompt     " + format_tokens(stats.prompt_tokens) + ", first token after " +
         format_seconds(stats.ttft_seconds) + ", " + format_rate(tokens, stats.prefill_seconds) + "\n";
}

std::string generated_line(const Stats& stats, std::int64_t tokens) {
  return "generated  " + format_tokens(tokens) + ", " +
         format_rate(static_cast<double>(stats.generated_tokens), stats.decode_seconds) + "\n";
}

std::string cache_line(const CacheStats& cache) {
  return "cache      " + format_bytes(cache.bytes) + " now, " + format_bytes(cache.peak_bytes) +
         " peak; all " + format_tokens(cache.seen) + " would take " + format_bytes(cache.full_bytes) + "\n";
}

std::string policy_line(const Stats& stats) {
  const std::string budget = stats.budget > 0 ? std::to_string(stats.budget) : "full";
  return "policy     " + stats.policy + ", budget " + budget + ", block " + std::to_string(stats.block) +
         "\n";
}

}  // namespace

std::string summary_text(const Stats& stats, std::int64_t generated_tokens) {
  return prompt_line(stats) + generated_line(stats, generated_tokens) + cache_line(stats.cache) +
         policy_line(stats);
}

std::string describe(const ModelInfo& info) {
  return info.name + " (" + info.architecture + "): " + std::to_string(info.layers) + " layers, " +
         std::to_string(info.heads) + " heads over " + std::to_string(info.kv_heads) + " KV heads of size " +
         std::to_string(info.head_dim) + ", weights " + format_bytes(info.weight_bytes) + ", trained on " +
         format_tokens(info.trained_context);
}

bool warn_if_beyond(const ModelInfo& info, const char* subject, std::int64_t tokens) {
  if (info.trained_context <= 0 || tokens <= info.trained_context) return false;
  warn("the " + std::string(subject) + " has " + format_tokens(tokens) +
       ", the model was trained on texts of " + std::to_string(info.trained_context) +
       "; it goes on, but answers may get worse");
  return true;
}

}  // namespace keynest::cli
