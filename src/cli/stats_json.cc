#include "cli/stats_json.h"

#include <sys/resource.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cli/format.h"

namespace keynest::cli {
namespace {

using Json = nlohmann::ordered_json;

Json cache_json(const CacheStats& cache) {
  return {{"bytes", cache.bytes},
          {"peak_bytes", cache.peak_bytes},
          {"full_bytes", cache.full_bytes},
          {"peak_entries_per_layer", cache.peak_entries_per_layer},
          {"entries_per_layer", cache.entries_per_layer},
          {"seen", cache.seen}};
}

}  // namespace

std::size_t peak_rss_bytes() {
  // VmHWM first: getrusage also counts what the parent held before exec.
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("VmHWM:", 0) == 0) return std::strtoull(line.c_str() + 6, nullptr, 10) * 1024;
  }
  rusage usage{};
  if (::getrusage(RUSAGE_SELF, &usage) != 0) return 0;
#ifdef __APPLE__
  return static_cast<std::size_t>(usage.ru_maxrss);
#else
  return static_cast<std::size_t>(usage.ru_maxrss) * 1024;
#endif
}

std::string stats_json(const Stats& stats, const RunRecord& record) {
  const auto prompt = static_cast<double>(stats.prompt_tokens);
  const auto decoded = static_cast<double>(stats.generated_tokens);
  const Json json{
      {"model", record.model},
      {"policy", stats.policy},
      {"budget", stats.budget},
      {"block", stats.block},
      {"prompt_tokens", stats.prompt_tokens},
      {"generated_tokens", record.generated_tokens},
      {"ttft_seconds", stats.ttft_seconds},
      {"prefill", {{"tokens_per_second", rate(prompt, stats.prefill_seconds)}}},
      {"decode", {{"tokens_per_second", rate(decoded, stats.decode_seconds)}}},
      {"evict_seconds", stats.evict_seconds},
      {"attention_seconds", stats.attention_seconds},
      {"cache", cache_json(stats.cache)},
      {"peak_rss_bytes", peak_rss_bytes()},
      {"simd_target", stats.simd_target},
      {"gemm", stats.gemm},
      {"threads", stats.threads},
      {"text", record.text},
  };
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace keynest::cli
