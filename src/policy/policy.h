// The one seam of a method: a pure score for every entry of a head. Knows nothing of models, ggml or files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "kernels/page.h"
#include "keynest/policy.h"
#include "keynest/result.h"

namespace keynest {

/// What a cache looks like to a policy.
struct CacheShape {
  int layers = 1;
  int kv_heads = 1;
  int group = 1;  ///< query heads per KV head
  int head_dim = 0;
};

/// What a policy looks at besides keys, values and positions.
enum class AttentionNeed {
  kNone,         ///< key-only (or position-only)
  kLastQuery,    ///< weights of the newest query (TOVA)
  kWindow,       ///< mean weights of the last `window` queries (SnapKV)
  kAccumulated,  ///< sum over the queries of each block; the policy adds it up in its row state (H2O)
};

struct PolicyNeeds {
  AttentionNeed attention = AttentionNeed::kNone;
  int window = 0;            ///< queries, for kWindow
  bool whole_layer = false;  ///< attention averaged over all query heads of the layer: one set for all heads
  bool per_query_head = false;  ///< attention of each query head apart instead of the mean of the group
  bool unit_key_sum = false;    ///< the store maintains the sum of k / |k|, see HeadRows::unit_sum
  int row_state = 0;            ///< floats per entry, in the pages: evicted, forked, saved with them
  int head_state = 0;           ///< doubles per head, stored in the sequence

  /// True when observe() writes into pages (fork: copy before; see SequenceCache::reserve).
  bool writes_rows() const { return row_state > 0; }
  /// True when the state is a function of the entries present, so that dropping the newest tokens after the
  /// last eviction takes nothing else back.
  bool stateless() const { return row_state == 0 && head_state == 0 && attention != AttentionNeed::kWindow; }
};

/// One KV head as a policy sees it: the entries present (in storage order, which has no meaning; use
/// positions). Only the rows of the current block are known to be the last ones, with ascending positions.
struct HeadView {
  HeadRows rows;
  int layer = 0, head = 0;
  std::int32_t budget = 0;     ///< N of this layer
  std::int32_t seen = 0;       ///< tokens seen by the sequence, the current block included
  std::int32_t appended = 0;   ///< how many of `rows` arrived with the current block: the last rows
  std::int32_t announced = 0;  ///< prompt length announced at the start; 0 = unknown
  /// What needs().attention asks for: [rows], mean over the query group, or [group, rows] with
  /// per_query_head. kAccumulated: in observe the sums of the current block's queries; empty in score.
  std::span<const float> attention;
  std::span<double> state;       ///< [needs().head_state]
  std::byte* scratch = nullptr;  ///< scratch_bytes(rows) bytes, 64-byte aligned, content undefined
};

class Policy {
 public:
  virtual ~Policy() = default;

  virtual PolicyNeeds needs() const = 0;

  /// Called once per head after every block, before any eviction: updates declared state for the new entries.
  virtual void observe(const HeadView&) const {}

  /// Scores every row; higher = keep. Pure: no state of its own, no I/O. Non-finite input gives non-finite
  /// scores, which the evictor turns into an error.
  virtual void score(const HeadView& head, std::span<float> scores) const = 0;

  /// The first positions this method wants kept (sinks), inside any budget: a smaller one keeps some of them.
  virtual std::int32_t first_pins() const { return 0; }

  /// The most recent positions this method always keeps (TOVA 1, SnapKV its window), besides spec.keep_last.
  virtual std::int32_t recent_pins(std::int32_t budget) const { return (void)budget, 0; }

  /// With heads=adaptive, the least a head secures for itself (AdaKV: 1).
  virtual std::int32_t least_secured() const { return 1; }

  /// Scratch bytes for observe and score of a head with `rows` rows.
  virtual std::size_t scratch_bytes(std::int32_t rows) const { return (void)rows, 0; }
};

}  // namespace keynest
