// The one seam of a method: a pure score for every entry of a head. Knows nothing of models, ggml or files.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "keynest/policy.h"
#include "kernels/page.h"

namespace keynest {

/// What a policy looks at besides keys, values and positions.
enum class AttentionNeed {
  kNone,         ///< key-only (or position-only)
  kLastQuery,    ///< weights of the newest query (TOVA)
  kWindow,       ///< mean weights of the last `window` queries (SnapKV)
  kAccumulated,  ///< sum over all queries since the entry arrived (H2O)
};

struct PolicyNeeds {
  AttentionNeed attention = AttentionNeed::kNone;
  int window = 0;             ///< queries, for kWindow
  bool whole_layer = false;   ///< attention averaged over all query heads of the layer, not the group
  int row_state = 0;          ///< floats per entry, stored in the pages (evicted, forked, saved with them)
  int head_state = 0;         ///< doubles per head, stored in the sequence
};

/// One KV head as a policy sees it: the entries present (in storage order, which has no meaning; use positions).
struct HeadView {
  HeadRows rows;
  std::int32_t budget = 0;     ///< N of this layer
  std::int32_t seen = 0;       ///< tokens seen by the sequence, the current block included
  std::int32_t appended = 0;   ///< how many of `rows` arrived with the current block: the last rows
  std::int32_t announced = 0;  ///< prompt length announced at the start; 0 = unknown
  std::span<const float> attention;  ///< [rows], what needs().attention asks for, averaged over the query group
  std::span<double> state;           ///< [needs().head_state]
};

class Policy {
 public:
  virtual ~Policy() = default;

  virtual PolicyNeeds needs() const = 0;

  /// Called once per head after every block, before any eviction: updates declared state for the new entries.
  virtual void observe(const HeadView&) const {}

  /// Scores every row; higher = keep. Pure: no state of its own, no I/O. May write +inf for its own pins.
  /// Errors: kNonFinite when keys or attention hold NaN or infinity.
  virtual Status score(const HeadView& head, std::span<float> scores) const = 0;

  /// The most recent entries this method always keeps (TOVA 1, SnapKV its window), besides spec.keep_last.
  virtual std::int32_t recent_pins(std::int32_t budget) const { return (void)budget, 0; }
};

}  // namespace keynest
