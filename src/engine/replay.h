// A policy run over given keys, queries and values of one layer, without a model: the same cache, the same
// evictor and the same order of steps as in a session. Used by `keynest score`, the golden tests and `keynest
// inspect`.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "keynest/policy.h"
#include "keynest/result.h"
#include "keynest/types.h"

namespace keynest {

/// Tensors of one layer, C order, after rotary embedding. Query head h reads KV head h / (query_heads /
/// kv_heads).
struct LayerTensors {
  std::span<const float> keys;     ///< [kv_heads, tokens, head_dim]
  std::span<const float> queries;  ///< [query_heads, tokens, head_dim]; empty: none (key-only policies)
  std::span<const float> values;   ///< [kv_heads, tokens, head_dim]; empty: zeros, no policy looks at them
  std::int32_t kv_heads = 0, query_heads = 0, tokens = 0, head_dim = 0;
};

struct ReplayOptions {
  std::int32_t budget = 0;  ///< N of this layer
  std::vector<std::int32_t>
      lengths;  ///< tokens of every step, summing to at most the tokens; empty: one step of all
  std::int32_t announced = 0;  ///< announced prompt length; 0 = all tokens
  KvType type = KvType::kF32;
  int layer = 0;
  std::vector<PositionRange> protected_ranges;
  bool trace = false;  ///< keep what the cache holds after every step
};

using HeadPositions = std::vector<std::vector<Position>>;  ///< [kv_heads], ascending

struct ReplayResult {
  HeadPositions kept;                ///< at the end
  std::vector<HeadPositions> trace;  ///< [steps]
  std::int64_t peak_entries = 0;     ///< most entries the layer ever held
  std::size_t peak_bytes = 0;        ///< of its pages
  /// The entries present at the latest eviction and their scores as published (Evictor::publish), by
  /// position. Empty when nothing was evicted.
  HeadPositions scored;
  std::vector<std::vector<float>> scores;  ///< [kv_heads]
};

/// Feeds the tensors in steps. With schedule=prefill entries are dropped once, after the last step.
/// Errors: shapes that do not fit together, keys, queries or values that are not finite (naming head and
/// position), a policy that needs queries where there are none, lengths that are not positive or too many,
/// pins above the budget, kNonFinite scores.
Result<ReplayResult> replay(const PolicySpec& spec, const LayerTensors& tensors,
                            const ReplayOptions& options);

/// The scores of the one-shot form: all tokens in one step, nothing evicted. [kv_heads][tokens], by position.
Result<std::vector<std::vector<float>>> one_shot_scores(const PolicySpec& spec, const LayerTensors& tensors,
                                                        const ReplayOptions& options);

}  // namespace keynest
