// A policy with its allocation and pins, run over one layer: observe, score, plan. It never changes a cache;
// the plan is applied by the store. Used by the engine inside the model graph and by `keynest score`.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "keynest/policy.h"
#include "kernels/attention.h"
#include "kernels/page.h"
#include "policy/policy.h"

namespace keynest {

/// What a cache looks like to a policy.
struct CacheShape {
  int layers = 1;
  int kv_heads = 1;
  int group = 1;      ///< query heads per KV head
  int head_dim = 0;
};

/// What one layer remembers between blocks, beside its pages. A value: copying it is what a fork does.
struct LayerState {
  std::vector<std::vector<double>> heads;   ///< [kv_heads][needs.head_state]
  std::vector<float> query_ring;            ///< last queries of every query head, for AttentionNeed::kWindow
};

/// One layer after a block was appended and attended.
struct LayerStep {
  std::span<const HeadRows> heads;       ///< [kv_heads]
  std::span<const QueryBlock> queries;   ///< [kv_heads]; row_max/row_sum filled. Empty when needs().attention is kNone
  std::int32_t appended = 0;             ///< tokens of this block
  std::int32_t seen = 0;                 ///< tokens seen, this block included
  std::int32_t announced = 0;            ///< announced prompt length; 0 = unknown
  std::int32_t budget = 0;               ///< N of this layer, per head on average
};

/// The rows every head of a layer keeps, ascending. Computed before anything is changed.
struct LayerPlan {
  std::vector<std::vector<Row>> kept;    ///< [kv_heads]
};

/// Immutable and shared by all sequences; every call is thread-safe for distinct heads of one LayerState.
class Evictor {
 public:
  /// Errors: options that do not fit together or the shape (e.g. tova:group=layer with heads=adaptive).
  static Result<std::shared_ptr<const Evictor>> create(const PolicySpec& spec, const CacheShape& shape);
  virtual ~Evictor() = default;

  virtual const PolicySpec& spec() const = 0;
  virtual const PolicyNeeds& needs() const = 0;
  /// False for `full`: nothing is ever evicted.
  virtual bool evicts() const = 0;

  /// N of every layer for an average budget `n`, [layers]; `length` is the prompt length when known (pyramid).
  /// Errors: a budget that cannot hold the pins.
  virtual Result<std::vector<std::int32_t>> layer_budgets(std::int32_t n, std::int32_t length) const = 0;

  virtual LayerState new_state() const = 0;

  /// After every block, for every head (parallel over heads): policy state, accumulated attention, query ring.
  virtual void observe(LayerState& state, const LayerStep& step, int head, void* scratch) const = 0;

  /// True when the layer holds more than its budget (adaptive: in total; uniform: any head).
  virtual bool over_budget(const LayerStep& step) const = 0;

  /// Scores of one head, [rows]. Errors: kNonFinite.
  virtual Status score(LayerState& state, const LayerStep& step, int head, std::vector<float>& scores,
                       void* scratch) const = 0;

  /// Which rows stay, from the scores of all heads. `protected_ranges`: positions kept whatever their score.
  /// Errors: pins above the budget.
  virtual Result<LayerPlan> plan(const LayerStep& step, std::span<const std::vector<float>> scores) const = 0;
};

/// Scratch bytes one thread needs for observe and score at up to `rows` rows.
std::size_t evictor_scratch_bytes(const Evictor& evictor, const PageLayout& layout, std::int32_t rows);

}  // namespace keynest
