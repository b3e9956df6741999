// What a session did, as numbers; the --stats JSON is printed from this.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace keynest {

struct CacheStats {
  std::size_t bytes = 0;       ///< pages in use x page size, now
  std::size_t peak_bytes = 0;  ///< the most there ever were
  std::size_t full_bytes = 0;  ///< what an unbounded cache of the same type would hold for the tokens seen
  std::size_t page_bytes = 0;
  std::vector<std::int64_t> entries_per_layer;  ///< entries of all KV heads, now
  std::vector<std::int64_t> peak_entries_per_layer;
  std::int64_t seen = 0;  ///< tokens seen = next position
};

struct Stats {
  std::string policy;       ///< printed spec
  std::int32_t budget = 0;  ///< N, entries per (layer, KV head) on average; 0 = unbounded
  std::int32_t block = 0;   ///< B
  std::int64_t prompt_tokens = 0;
  std::int64_t generated_tokens = 0;
  double ttft_seconds = 0;  ///< from the start of the (last) prompt to its first logits
  double prefill_seconds = 0;
  double decode_seconds = 0;
  double evict_seconds =
      0;  ///< observing, scoring, planning, moving; wall time of all layers, prefill and decode
  double attention_seconds = 0;  ///< append and attend; wall time of all layers
  std::size_t evictions = 0;     ///< layer evictions applied
  CacheStats cache;
  std::string simd_target;
  std::string gemm;  ///< who multiplied blocks of tokens: "native" or "ggml"
  int threads = 0;
};

}  // namespace keynest
