// A policy with its allocation and pins, run over one layer: observe, score, plan. It never changes a cache;
// the plan is applied by the store. Used by the engine inside the model graph and by `keynest score`.
//
// Order of a block, in prefill and in decode: append, attend, observe (all heads), and when the schedule asks
// for an eviction and over_budget(): score (all heads), plan, apply. observe runs after every block, evicted
// or not. Where heads_apart(), the plan can be made head by head.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernels/attention.h"
#include "kernels/page.h"
#include "keynest/policy.h"
#include "policy/policy.h"

namespace keynest {

/// What one layer remembers between blocks, beside its pages. A value: copying it is what a fork does.
struct LayerState {
  std::vector<std::vector<double>> heads;  ///< [kv_heads][needs.head_state]
  /// AttentionNeed::kWindow: the last queries, [kv_heads, window, group, head_dim], token p at p % window.
  std::vector<float> query_ring;
};

/// One layer after a block was appended and attended.
struct LayerStep {
  std::span<const HeadRows> heads;  ///< [kv_heads]
  /// [kv_heads]; row_max/row_sum filled. May be empty when needs().attention is kNone.
  std::span<const QueryBlock> queries;
  std::int32_t appended = 0;   ///< tokens of this block
  std::int32_t seen = 0;       ///< tokens seen, this block included
  std::int32_t announced = 0;  ///< announced prompt length; 0 = unknown
  std::int32_t budget = 0;     ///< N of this layer, per head on average
  int layer = 0;
  std::span<const PositionRange> protected_ranges;  ///< kept whatever their score, counted in the budget
};

/// The rows every head of a layer keeps, ascending. Computed before anything is changed.
struct LayerPlan {
  std::vector<std::vector<Row>> kept;  ///< [kv_heads]
};

/// Immutable and shared by all sequences; every call is thread-safe for distinct heads of one LayerState.
class Evictor {
 public:
  /// Errors: options that do not fit together (e.g. tova:group=layer with heads=adaptive), unknown method or
  /// option in a spec that was not parsed.
  static Result<std::shared_ptr<const Evictor>> create(const PolicySpec& spec, const CacheShape& shape);
  virtual ~Evictor() = default;

  virtual const PolicySpec& spec() const = 0;
  virtual const CacheShape& shape() const = 0;
  virtual const PolicyNeeds& needs() const = 0;
  /// False for `full`: nothing is ever evicted.
  virtual bool evicts() const = 0;

  /// N of every layer for an average budget `n`, [layers]; `length` is the prompt length, 0 = unknown
  /// (pyramid). Errors: a budget that cannot hold the pins (see check_pins).
  virtual Result<std::vector<std::int32_t>> layer_budgets(std::int32_t n, std::int32_t length) const = 0;

  /// Errors: ranges that are empty, overlap or, with `length` known, exceed it; first + most recent +
  /// protected positions that do not fit a budget of `n`. Call before the prompt; plan() checks again.
  virtual Status check_pins(std::int32_t n, std::span<const PositionRange> protected_ranges,
                            std::int32_t length) const = 0;

  virtual LayerState new_state() const = 0;

  /// After every block, for every head (parallel over heads): policy state, accumulated attention, query
  /// ring.
  virtual void observe(LayerState& state, const LayerStep& step, int head, void* scratch) const = 0;

  /// True when the layer holds more than its budget (adaptive: in total; uniform: any head).
  virtual bool over_budget(const LayerStep& step) const = 0;

  /// Scores of one head, [rows]. Errors: kNonFinite, naming layer, head and position.
  virtual Status score(LayerState& state, const LayerStep& step, int head, std::vector<float>& scores,
                       void* scratch) const = 0;

  /// plan = which rows stay, from the scores of all heads; its memory is reused. A layer that is not over its
  /// budget keeps all. Errors: pins above the budget; kInternal, where a method keeps one set for the layer
  /// and its heads hold different entries.
  virtual Status plan(const LayerStep& step, std::span<const std::vector<float>> scores,
                      LayerPlan& plan) const = 0;

  /// True when what a head keeps does not depend on the other heads' scores, so that plan_head() can follow
  /// a head's score() at once.
  virtual bool heads_apart() const = 0;
  /// What plan() does for one head of a layer that is over its budget; `kept` = its rows that stay,
  /// ascending. Only where heads_apart(). Errors: pins above the budget.
  virtual Status plan_head(const LayerStep& step, int head, std::span<const float> scores,
                           std::vector<Row>& kept) const = 0;

  /// Turns the scores of score() into the ones to show: averaged over the layer where the method does so,
  /// entries the method keeps for being recent raised to 1 above the layer's best, as the published code
  /// reports them.
  virtual void publish(const LayerStep& step, std::span<std::vector<float>> scores) const = 0;

  /// See evictor_scratch_bytes.
  virtual std::size_t scratch_bytes(const PageLayout& layout, std::int32_t rows) const = 0;
};

/// Scratch bytes one thread needs for observe and score at up to `rows` rows; 64-byte aligned.
std::size_t evictor_scratch_bytes(const Evictor& evictor, const PageLayout& layout, std::int32_t rows);

}  // namespace keynest
