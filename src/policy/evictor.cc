#include "policy/evictor.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>
#include <limits>
#include <string>

#include "policy/attention_needs.h"
#include "policy/head_allocation.h"
#include "policy/layer_allocation.h"
#include "policy/pins.h"
#include "policy/registry.h"
#include "policy/scratch.h"

namespace keynest {
namespace {

std::size_t index(int i) { return static_cast<std::size_t>(i); }

// Row of the first score that is not finite, or -1.
std::int32_t first_non_finite(std::span<const float> scores) {
  constexpr std::uint32_t kExponent = 0x7f800000u;  // all ones: NaN or infinity
  std::uint32_t found = 0;                          // one branch for the whole head
  for (float score : scores) found |= (std::bit_cast<std::uint32_t>(score) & kExponent) == kExponent ? 1 : 0;
  if (found == 0) return -1;
  const auto bad = std::find_if(scores.begin(), scores.end(), [](float s) { return !std::isfinite(s); });
  return static_cast<std::int32_t>(bad - scores.begin());
}

bool same_positions(const HeadRows& a, const HeadRows& b) {
  if (a.rows != b.rows) return false;
  for (int page = 0; page < a.page_count(); ++page) {
    if (!std::equal(a.positions(page), a.positions(page) + a.rows_in_page(page), b.positions(page)))
      return false;
  }
  return true;
}

bool heads_agree(std::span<const HeadRows> heads) {
  return std::all_of(heads.begin(), heads.end(),
                     [&](const HeadRows& head) { return same_positions(head, heads.front()); });
}

// Unlike assign, keeps room for more.
void copy_scores(std::span<const float> scores, std::vector<float>& copy) {
  copy.resize(scores.size());
  std::copy(scores.begin(), scores.end(), copy.begin());
}

// Every head's scores become the mean over the heads.
void average_over(std::span<std::vector<float>> heads) {
  for (std::size_t row = 0; row < heads[0].size(); ++row) {
    double sum = 0;
    for (const std::vector<float>& scores : heads) sum += scores[row];
    const auto mean = static_cast<float>(sum / static_cast<double>(heads.size()));
    for (std::vector<float>& scores : heads) scores[row] = mean;
  }
}

// Errors: more pins in the head than the budget holds.
Status raise_pins(const Pins& pins, const LayerStep& step, const HeadRows& head, std::span<float> scores) {
  const std::int32_t pinned = pins.raise(head, scores);
  if (pinned <= step.budget) return {};
  return pins_above_budget(pinned, step.budget, pins.first, step.seen - pins.recent_from);
}

class LayerEvictor final : public Evictor {
 public:
  LayerEvictor(PolicySpec spec, const CacheShape& shape, std::unique_ptr<Policy> policy)
      : spec_(std::move(spec)), shape_(shape), policy_(std::move(policy)) {
    if (policy_) needs_ = policy_->needs();
  }

  const PolicySpec& spec() const override { return spec_; }
  const CacheShape& shape() const override { return shape_; }
  const PolicyNeeds& needs() const override { return needs_; }
  bool evicts() const override { return policy_ != nullptr; }

  Result<std::vector<std::int32_t>> layer_budgets(std::int32_t n, std::int32_t length) const override;
  Status check_pins(std::int32_t n, std::span<const PositionRange> ranges,
                    std::int32_t length) const override {
    return keynest::check_pins(spec_, policy_.get(), n, ranges, length);
  }
  LayerState new_state() const override;
  void observe(LayerState& state, const LayerStep& step, int head, void* scratch) const override;
  bool over_budget(const LayerStep& step) const override;
  Status score(LayerState& state, const LayerStep& step, int head, std::vector<float>& scores,
               void* scratch) const override;
  Status plan(const LayerStep& step, std::span<const std::vector<float>> scores,
              LayerPlan& plan) const override;
  bool heads_apart() const override { return spec_.heads == HeadAllocation::kUniform && !needs_.whole_layer; }
  Status plan_head(const LayerStep& step, int head, std::span<const float> scores,
                   std::vector<Row>& kept) const override;
  void publish(const LayerStep& step, std::span<std::vector<float>> scores) const override;
  std::size_t scratch_bytes(const PageLayout& layout, std::int32_t rows) const override;

 private:
  HeadView view(LayerState& state, const LayerStep& step, int head) const;
  QueryRing ring(LayerState& state, int head) const;
  std::span<const float> attention(LayerState& state, const LayerStep& step, int head,
                                   Scratch& scratch) const;
  Status share_scores(const LayerStep& step, std::vector<std::vector<float>>& scores) const;
  Pins pins(const LayerStep& step) const;
  Status plan_together(const LayerStep& step, std::span<const std::vector<float>> scores,
                       LayerPlan& plan) const;
  std::int32_t secured(std::int32_t budget) const;

  PolicySpec spec_;
  CacheShape shape_;
  std::unique_ptr<Policy> policy_;  // null: full
  PolicyNeeds needs_;
};

Result<std::vector<std::int32_t>> LayerEvictor::layer_budgets(std::int32_t n, std::int32_t length) const {
  std::vector<std::int32_t> budgets(index(shape_.layers), n);
  if (!evicts()) return budgets;
  KEYNEST_TRY(check_pins(n, {}, 0));
  if (spec_.layers == LayerAllocation::kUniform) return budgets;
  const double window = std::max(1, policy_->recent_pins(n));
  const PyramidShape pyramid{shape_.layers, static_cast<double>(length), static_cast<double>(n), window,
                             spec_.beta};
  for (int layer = 0; layer < shape_.layers; ++layer) budgets[index(layer)] = pyramid_budget(pyramid, layer);
  KEYNEST_TRY(check_pins(*std::min_element(budgets.begin(), budgets.end()), {}, 0));
  return budgets;
}

LayerState LayerEvictor::new_state() const {
  LayerState state;
  state.heads.assign(index(shape_.kv_heads), std::vector<double>(index(needs_.head_state), 0.0));
  if (needs_.attention == AttentionNeed::kWindow) {
    state.query_ring.assign(
        index(shape_.kv_heads) * index(needs_.window) * index(shape_.group) * index(shape_.head_dim), 0.0f);
  }
  return state;
}

HeadView LayerEvictor::view(LayerState& state, const LayerStep& step, int head) const {
  HeadView view;
  view.rows = step.heads[index(head)];
  view.layer = step.layer;
  view.head = head;
  view.budget = step.budget;
  view.seen = step.seen;
  view.appended = step.appended;
  view.announced = step.announced;
  view.state = state.heads[index(head)];
  return view;
}

QueryRing LayerEvictor::ring(LayerState& state, int head) const {
  if (state.query_ring.empty()) return {};
  const std::size_t size = state.query_ring.size() / index(shape_.kv_heads);
  return {std::span(state.query_ring).subspan(index(head) * size, size), needs_.window};
}

std::span<const float> LayerEvictor::attention(LayerState& state, const LayerStep& step, int head,
                                               Scratch& scratch) const {
  assert(step.queries.size() == step.heads.size() && "this policy looks at attention");
  return collect_attention(needs_, step.heads[index(head)], step.queries[index(head)], ring(state, head),
                           step.seen, scratch);
}

void LayerEvictor::observe(LayerState& state, const LayerStep& step, int head, void* scratch) const {
  if (!evicts()) return;
  Scratch room(static_cast<std::byte*>(scratch));
  HeadView head_view = view(state, step, head);
  if (needs_.attention == AttentionNeed::kWindow) {
    remember_queries(ring(state, head), step.queries[index(head)], shape_.head_dim, step.seen);
  }
  if (needs_.attention == AttentionNeed::kAccumulated)
    head_view.attention = attention(state, step, head, room);
  head_view.scratch = room.rest();
  policy_->observe(head_view);
}

bool LayerEvictor::over_budget(const LayerStep& step) const {
  if (!evicts()) return false;
  std::int64_t total = 0;
  std::int32_t most = 0;
  for (const HeadRows& head : step.heads) {
    total += head.rows;
    most = std::max(most, head.rows);
  }
  if (spec_.heads == HeadAllocation::kUniform) return most > step.budget;
  return total > static_cast<std::int64_t>(step.heads.size()) * step.budget;
}

Status LayerEvictor::score(LayerState& state, const LayerStep& step, int head, std::vector<float>& scores,
                           void* scratch) const {
  Scratch room(static_cast<std::byte*>(scratch));
  HeadView head_view = view(state, step, head);
  scores.resize(index(head_view.rows.rows));
  if (!evicts()) {
    std::fill(scores.begin(), scores.end(), 0.0f);
    return {};
  }
  const bool now =
      needs_.attention == AttentionNeed::kLastQuery || needs_.attention == AttentionNeed::kWindow;
  if (now) head_view.attention = attention(state, step, head, room);
  head_view.scratch = room.rest();
  policy_->score(head_view, scores);
  const std::int32_t bad = first_non_finite(scores);
  if (bad < 0) return {};
  return Error{ErrorCode::kNonFinite,
               "policy " + spec_.method + ": the score of position " +
                   std::to_string(to_int(head_view.rows.position(Row{bad}))) + " (layer " +
                   std::to_string(step.layer) + ", KV head " + std::to_string(head) +
                   ") is not a finite number; the keys or queries hold NaN, infinity or numbers too large"};
}

std::int32_t LayerEvictor::secured(std::int32_t budget) const {
  return std::max(policy_->least_secured(), static_cast<std::int32_t>(spec_.safeguard * budget));
}

// One set for all heads: they hold the same entries in the same rows, so scores are averaged row by row.
Status LayerEvictor::share_scores(const LayerStep& step, std::vector<std::vector<float>>& scores) const {
  if (!heads_agree(step.heads)) {
    return Error{ErrorCode::kInternal, spec_.method + ": the heads of a layer hold different entries"};
  }
  average_over(scores);
  return {};
}

Pins LayerEvictor::pins(const LayerStep& step) const {
  return make_pins(spec_, *policy_, step.budget, step.seen, step.protected_ranges);
}

Status LayerEvictor::plan_head(const LayerStep& step, int head, std::span<const float> scores,
                               std::vector<Row>& kept) const {
  thread_local std::vector<float> raised;
  const HeadRows& rows = step.heads[index(head)];
  const Pins held = pins(step);
  if (rows.rows > step.budget && held.any(step.seen)) {
    copy_scores(scores, raised);
    KEYNEST_TRY(raise_pins(held, step, rows, raised));
    scores = raised;
  }
  keep_best({scores, rows}, step.budget, kept);
  return {};
}

// Heads that compete, or that keep one set.
Status LayerEvictor::plan_together(const LayerStep& step, std::span<const std::vector<float>> scores,
                                   LayerPlan& plan) const {
  thread_local std::vector<std::vector<float>> raised;
  thread_local std::vector<ScoredRows> heads;
  raised.resize(scores.size());
  for (std::size_t h = 0; h < scores.size(); ++h) copy_scores(scores[h], raised[h]);
  if (needs_.whole_layer) KEYNEST_TRY(share_scores(step, raised));
  const Pins held = pins(step);
  heads.clear();
  for (std::size_t h = 0; h < scores.size(); ++h) {
    KEYNEST_TRY(raise_pins(held, step, step.heads[h], raised[h]));
    heads.push_back({raised[h], step.heads[h]});
  }
  if (spec_.heads == HeadAllocation::kAdaptive) {
    keep_across_heads(heads, step.budget, secured(step.budget), plan.kept);
    return {};
  }
  for (std::size_t h = 0; h < heads.size(); ++h) keep_best(heads[h], step.budget, plan.kept[h]);
  return {};
}

Status LayerEvictor::plan(const LayerStep& step, std::span<const std::vector<float>> scores,
                          LayerPlan& plan) const {
  plan.kept.resize(scores.size());
  const bool over = over_budget(step);
  if (over && !heads_apart()) return plan_together(step, scores, plan);
  for (std::size_t h = 0; h < scores.size(); ++h) {
    if (over) {
      KEYNEST_TRY(plan_head(step, static_cast<int>(h), scores[h], plan.kept[h]));
    } else {
      keep_best({scores[h], step.heads[h]}, step.heads[h].rows, plan.kept[h]);
    }
  }
  return {};
}

void LayerEvictor::publish(const LayerStep& step, std::span<std::vector<float>> scores) const {
  if (!evicts()) return;
  if (needs_.whole_layer) average_over(scores);
  const Pins recent{0, std::max(0, step.seen - policy_->recent_pins(step.budget)), {}, 0};
  const auto is_recent = [&](std::size_t h, std::size_t row) {
    return recent.hold(step.heads[h].position(Row{static_cast<std::int32_t>(row)}));
  };
  float best = -std::numeric_limits<float>::infinity();
  for (std::size_t h = 0; h < scores.size(); ++h) {
    for (std::size_t row = 0; row < scores[h].size(); ++row) {
      if (!is_recent(h, row)) best = std::max(best, scores[h][row]);
    }
  }
  if (!std::isfinite(best)) best = 0;  // nothing but recent entries
  for (std::size_t h = 0; h < scores.size(); ++h) {
    for (std::size_t row = 0; row < scores[h].size(); ++row) {
      if (is_recent(h, row)) scores[h][row] = best + 1;
    }
  }
}

std::size_t LayerEvictor::scratch_bytes(const PageLayout& layout, std::int32_t rows) const {
  if (!evicts()) return 0;
  return attention_needs_bytes(needs_, layout, shape_.group, rows) + policy_->scratch_bytes(rows);
}

}  // namespace

Result<std::shared_ptr<const Evictor>> Evictor::create(const PolicySpec& given, const CacheShape& shape) {
  Result<PolicySpec> spec = PolicySpec::parse(given.print());  // a spec may be built by hand
  if (!spec) return spec.error();
  const MethodRow& method = *find_method(spec->method);
  std::unique_ptr<Policy> policy;
  if (method.make) policy = method.make(OptionValues(method.options, *spec), *spec, shape);
  return std::shared_ptr<const Evictor>(std::make_shared<LayerEvictor>(*spec, shape, std::move(policy)));
}

std::size_t evictor_scratch_bytes(const Evictor& evictor, const PageLayout& layout, std::int32_t rows) {
  return evictor.scratch_bytes(layout, rows);
}

}  // namespace keynest
