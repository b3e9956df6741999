// What one step (a block of the prompt, or one generated token) works on, shared by the operations inside the
// graph.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "cache/sequence_cache.h"
#include "keynest/result.h"
#include "policy/evictor.h"

namespace keynest {

/// Entries of a layer at its last eviction by score, and their scores as published; any order.
struct LayerRecord {
  std::vector<std::vector<Position>> positions;  ///< [kv_heads]
  std::vector<std::vector<float>> scores;        ///< [kv_heads]
};

/// One sequence: its cache, what its policy remembers, and how far it is.
struct Sequence {
  SequenceCache cache;
  std::vector<LayerState> states;     ///< [layers]
  std::vector<std::int32_t> budgets;  ///< [layers] N of each layer; empty = unbounded
  std::int32_t seen = 0;              ///< tokens seen = next position
  std::int32_t announced = 0;         ///< prompt length announced at the start; 0 = unknown
  std::int32_t last_eviction = 0;     ///< `seen` after the last step that evicted
  std::vector<LayerRecord> records;   ///< [layers]; empty unless asked for
  std::int32_t shift = 0;             ///< positions=cache: position minus rank of the newest token; else 0
  std::vector<PositionRange> protected_ranges;  ///< kept whatever their score
};

/// Input of one step.
struct StepInput {
  Sequence* sequence = nullptr;
  std::span<const Token> tokens;
  std::int32_t outputs = 0;  ///< logits of this many last tokens
  bool evict = false;        ///< cut layers that are over budget back after attending
};

/// Wall time and counts of a step, as seen by its first thread.
struct StepTimes {
  double attention_seconds = 0, evict_seconds = 0;
  std::size_t evictions = 0;
};

}  // namespace keynest
