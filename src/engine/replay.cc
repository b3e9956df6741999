#include "engine/replay.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>

#include "cache/sequence_cache.h"
#include "engine/workspace.h"
#include "kernels/attention.h"
#include "kernels/rows.h"
#include "policy/evictor.h"

namespace keynest {
namespace {

std::size_t size(std::int32_t n) { return static_cast<std::size_t>(n); }

// Keys are stored in multiples of this many dimensions; further ones are zeros, which change no product or
// norm.
std::int32_t stored_dim(KvType type, std::int32_t head_dim) {
  const std::int32_t unit = type == KvType::kQ8_0 ? 32 : 8;
  return (head_dim + unit - 1) / unit * unit;
}

// ------------------------------------------------------------------------------------------ checks

struct NamedTensor {
  const char* name;
  std::span<const float> data;
  std::int32_t heads;
};

Status check_size(const NamedTensor& tensor, const LayerTensors& all) {
  const std::size_t wanted = size(tensor.heads) * size(all.tokens) * size(all.head_dim);
  if (tensor.data.size() == wanted) return {};
  return invalid_argument(std::string(tensor.name) + " hold " + std::to_string(tensor.data.size()) +
                          " numbers, but [" + std::to_string(tensor.heads) + ", " +
                          std::to_string(all.tokens) + ", " + std::to_string(all.head_dim) + "] needs " +
                          std::to_string(wanted));
}

Status check_finite(const NamedTensor& tensor, const LayerTensors& all) {
  const auto bad =
      std::find_if(tensor.data.begin(), tensor.data.end(), [](float x) { return !std::isfinite(x); });
  if (bad == tensor.data.end()) return {};
  const auto index = static_cast<std::size_t>(bad - tensor.data.begin());
  const std::size_t row = index / size(all.head_dim);
  return Error{ErrorCode::kNonFinite,
               std::string(tensor.name) + " hold " + (std::isnan(*bad) ? "NaN" : "infinity") + " at head " +
                   std::to_string(row / size(all.tokens)) + ", position " +
                   std::to_string(row % size(all.tokens)) + ", dimension " +
                   std::to_string(index % size(all.head_dim)) + "; every number must be finite"};
}

Status check_tensors(const LayerTensors& t) {
  if (t.kv_heads < 1 || t.tokens < 1 || t.head_dim < 1) {
    return invalid_argument("keys of shape [" + std::to_string(t.kv_heads) + ", " + std::to_string(t.tokens) +
                            ", " + std::to_string(t.head_dim) +
                            "] hold nothing; give [KV heads, positions, head size]");
  }
  if (!t.queries.empty() && (t.query_heads < 1 || t.query_heads % t.kv_heads != 0)) {
    return invalid_argument(std::to_string(t.query_heads) + " query heads are no multiple of " +
                            std::to_string(t.kv_heads) +
                            " KV heads; every KV head serves the same number of them");
  }
  std::vector<NamedTensor> tensors{{"keys", t.keys, t.kv_heads}};
  if (!t.queries.empty()) tensors.push_back({"queries", t.queries, t.query_heads});
  if (!t.values.empty()) tensors.push_back({"values", t.values, t.kv_heads});
  for (const NamedTensor& tensor : tensors) {
    KEYNEST_TRY(check_size(tensor, t));
    KEYNEST_TRY(check_finite(tensor, t));
  }
  return {};
}

Status check_lengths(const std::vector<std::int32_t>& lengths, std::int32_t tokens) {
  std::int64_t sum = 0;
  for (std::int32_t length : lengths) {
    if (length < 1) {
      return invalid_argument("a step of " + std::to_string(length) + " tokens does nothing; give 1 or more");
    }
    sum += length;
  }
  if (sum <= tokens) return {};
  return invalid_argument("the steps take " + std::to_string(sum) + " tokens, but there are " +
                          std::to_string(tokens));
}

// ------------------------------------------------------------------------------------------ one layer

// The numbers of a tensor with `to` instead of `from` per row, padded with zeros.
std::vector<float> padded(std::span<const float> data, std::int32_t from, std::int32_t to) {
  std::vector<float> out(data.size() / size(from) * size(to), 0.0f);
  for (std::size_t row = 0; row < data.size() / size(from); ++row) {
    std::copy_n(data.data() + row * size(from), size(from), out.data() + row * size(to));
  }
  return out;
}

class Layer {
 public:
  Layer(std::shared_ptr<const Evictor> evictor, const LayerTensors& tensors, const ReplayOptions& options)
      : evictor_(std::move(evictor)),
        tensors_(tensors),
        options_(options),
        dim_(stored_dim(options.type, tensors.head_dim)),
        pool_(std::make_shared<PagePool>(PageLayout::make(options.type, dim_, evictor_->needs().row_state),
                                         std::numeric_limits<std::size_t>::max())),
        cache_(pool_, 1, tensors.kv_heads),
        state_(evictor_->new_state()) {
    if (evictor_->needs().unit_key_sum) cache_.keep_unit_sum(0);
    keys_ = padded(tensors.keys, tensors.head_dim, dim_);
    queries_ = padded(tensors.queries, tensors.head_dim, dim_);
    values_ = tensors.values.empty() ? std::vector<float>(keys_.size(), 0.0f)
                                     : padded(tensors.values, tensors.head_dim, dim_);
  }

  // Appends the next tokens, attends and lets the policy see them; with `evict`, cuts back to the budget.
  Status step(std::int32_t tokens, bool evict, ReplayResult& result);

  // Scores of everything present, by position, without evicting. Call after step().
  Status scores(HeadPositions& positions, std::vector<std::vector<float>>& scores);

  HeadPositions held() const;
  std::size_t peak_bytes() const { return pool_->peak_bytes(); }

 private:
  void append(std::int32_t tokens);
  void attend(std::int32_t tokens);
  Result<LayerPlan> plan(HeadPositions& positions, std::vector<std::vector<float>>& scores);
  Status score_heads(std::vector<std::vector<float>>& scores);
  LayerStep layer_step() const;
  void sort_by_position(HeadPositions& positions, std::vector<std::vector<float>>& scores) const;
  int group() const { return tensors_.queries.empty() ? 1 : tensors_.query_heads / tensors_.kv_heads; }

  std::shared_ptr<const Evictor> evictor_;
  const LayerTensors& tensors_;
  const ReplayOptions& options_;
  std::int32_t dim_;
  std::shared_ptr<PagePool> pool_;
  SequenceCache cache_;
  LayerState state_;
  std::vector<float> keys_, queries_, values_;

  std::int32_t seen_ = 0, appended_ = 0;
  std::vector<HeadRows> rows_;
  std::vector<Position> positions_;
  std::vector<QueryBlock> blocks_;
  std::vector<float> row_max_, row_sum_;
  AlignedBuffer scratch_;
};

void Layer::append(std::int32_t tokens) {
  appended_ = tokens;
  positions_.clear();
  for (std::int32_t t = 0; t < tokens; ++t) positions_.push_back(Position{seen_ + t});
  rows_.clear();
  std::int32_t widest = 0;
  for (int h = 0; h < tensors_.kv_heads; ++h) {
    rows_.push_back(cache_.rows(0, h));
    const std::size_t first = (size(h) * size(tensors_.tokens) + size(seen_)) * size(dim_);
    write_rows(rows_.back(), Row{cache_.head(0, h).rows()}, tokens, keys_.data() + first, size(dim_),
               values_.data() + first, size(dim_), positions_.data());
    widest = std::max(widest, rows_.back().rows);
  }
  seen_ += tokens;
  scratch_.grow(std::max(attention_scratch_bytes(cache_.layout(), group()),
                         evictor_scratch_bytes(*evictor_, cache_.layout(), widest)));
}

// The statistics that attention leaves behind for the policy; its output is not needed here.
void Layer::attend(std::int32_t tokens) {
  blocks_.clear();
  if (evictor_->needs().attention == AttentionNeed::kNone) return;
  const std::size_t per_head = size(tokens) * size(group());
  row_max_.resize(per_head * size(tensors_.kv_heads));
  row_sum_.resize(per_head * size(tensors_.kv_heads));
  for (int h = 0; h < tensors_.kv_heads; ++h) {
    QueryBlock block;
    block.token_stride = size(dim_);
    block.head_stride = size(tensors_.tokens) * size(dim_);
    block.queries =
        queries_.data() + size(h * group()) * block.head_stride + size(seen_ - tokens) * size(dim_);
    block.tokens = tokens;
    block.group = group();
    block.positions = positions_.data();
    block.scale = 1.0f / std::sqrt(static_cast<float>(tensors_.head_dim));
    block.row_max = row_max_.data() + size(h) * per_head;
    block.row_sum = row_sum_.data() + size(h) * per_head;
    blocks_.push_back(block);
    attention_statistics(rows_[size(h)], block, 0, tokens, scratch_.data());
  }
}

LayerStep Layer::layer_step() const {
  LayerStep step;
  step.heads = rows_;
  step.queries = blocks_;
  step.appended = appended_;
  step.seen = seen_;
  step.announced = options_.announced > 0 ? options_.announced : tensors_.tokens;
  step.budget = options_.budget;
  step.layer = options_.layer;
  step.protected_ranges = options_.protected_ranges;
  return step;
}

Status Layer::score_heads(std::vector<std::vector<float>>& scores) {
  const LayerStep step = layer_step();
  scores.resize(rows_.size());
  for (int h = 0; h < tensors_.kv_heads; ++h) {
    KEYNEST_TRY(evictor_->score(state_, step, h, scores[size(h)], scratch_.data()));
  }
  return {};
}

Result<LayerPlan> Layer::plan(HeadPositions& positions, std::vector<std::vector<float>>& scores) {
  KEYNEST_TRY(score_heads(scores));
  LayerPlan plan;
  KEYNEST_TRY(evictor_->plan(layer_step(), scores, plan));
  sort_by_position(positions, scores);
  return plan;
}

Status Layer::step(std::int32_t tokens, bool evict, ReplayResult& result) {
  KEYNEST_TRY(cache_.reserve(tokens, evictor_->needs().writes_rows()));
  append(tokens);
  attend(tokens);
  const LayerStep step = layer_step();
  for (int h = 0; h < tensors_.kv_heads; ++h) evictor_->observe(state_, step, h, scratch_.data());
  result.peak_entries = std::max(result.peak_entries, cache_.entries(0));
  if (!evict || !evictor_->over_budget(step)) {
    cache_.commit();
    return {};
  }
  const auto kept = plan(result.scored, result.scores);
  if (!kept) return kept.error();
  LayerEviction eviction;
  cache_.plan(0, kept->kept, eviction);
  LayerEviction* evictions[] = {&eviction};
  KEYNEST_TRY(cache_.prepare(evictions));
  cache_.commit();
  for (int h = 0; h < tensors_.kv_heads; ++h) cache_.apply(eviction, h);
  return {};
}

Status Layer::scores(HeadPositions& positions, std::vector<std::vector<float>>& scores) {
  KEYNEST_TRY(score_heads(scores));
  sort_by_position(positions, scores);
  return {};
}

void Layer::sort_by_position(HeadPositions& positions, std::vector<std::vector<float>>& scores) const {
  evictor_->publish(layer_step(), scores);
  positions.resize(rows_.size());
  for (std::size_t h = 0; h < rows_.size(); ++h) {
    std::vector<std::pair<Position, float>> entries;
    for (std::int32_t row = 0; row < rows_[h].rows; ++row) {
      entries.emplace_back(rows_[h].position(Row{row}), scores[h][size(row)]);
    }
    std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    positions[h].clear();
    for (std::size_t i = 0; i < entries.size(); ++i) {
      positions[h].push_back(entries[i].first);
      scores[h][i] = entries[i].second;
    }
  }
}

HeadPositions Layer::held() const {
  HeadPositions held(size(tensors_.kv_heads));
  for (int h = 0; h < tensors_.kv_heads; ++h) {
    const HeadRows rows = cache_.rows(0, h);
    for (std::int32_t row = 0; row < rows.rows; ++row) held[size(h)].push_back(rows.position(Row{row}));
    std::sort(held[size(h)].begin(), held[size(h)].end());
  }
  return held;
}

Result<std::shared_ptr<const Evictor>> checked_evictor(const PolicySpec& spec, const LayerTensors& tensors,
                                                       const ReplayOptions& options) {
  KEYNEST_TRY(check_tensors(tensors));
  KEYNEST_TRY(check_lengths(options.lengths, tensors.tokens));
  const int group = tensors.queries.empty() ? 1 : tensors.query_heads / tensors.kv_heads;
  if (spec.positions == Positions::kCache) {
    return invalid_argument(
        "policy option positions=cache rotates keys when entries move, which needs a model; "
        "leave it out where keys are given");
  }
  auto evictor = Evictor::create(
      spec, {options.layer + 1, tensors.kv_heads, group, stored_dim(options.type, tensors.head_dim)});
  if (!evictor) return evictor;
  if ((*evictor)->needs().attention != AttentionNeed::kNone && tensors.queries.empty()) {
    return invalid_argument("policy " + spec.method +
                            " looks at attention, but no queries are given; give them, or use "
                            "a policy that looks at keys only, such as keydiff");
  }
  return evictor;
}

Status check_budget(const Evictor& evictor, const LayerTensors& tensors, const ReplayOptions& options) {
  if (!options.protected_ranges.empty()) {
    KEYNEST_TRY(evictor.check_pins(options.budget, options.protected_ranges, tensors.tokens));
  }
  if (!evictor.evicts() || options.budget > 0) return {};
  return invalid_argument("a budget of " + std::to_string(options.budget) +
                          " entries keeps nothing; give 1 or more");
}

}  // namespace

Result<ReplayResult> replay(const PolicySpec& spec, const LayerTensors& tensors,
                            const ReplayOptions& options) {
  const auto evictor = checked_evictor(spec, tensors, options);
  if (!evictor) return evictor.error();
  KEYNEST_TRY(check_budget(**evictor, tensors, options));
  Layer layer(*evictor, tensors, options);
  std::vector<std::int32_t> lengths = options.lengths;
  if (lengths.empty()) lengths.push_back(tensors.tokens);
  ReplayResult result;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    const bool evict = spec.schedule == Schedule::kBlock || i + 1 == lengths.size();
    KEYNEST_TRY(layer.step(lengths[i], evict, result));
    if (options.trace) result.trace.push_back(layer.held());
  }
  result.kept = layer.held();
  result.peak_bytes = layer.peak_bytes();
  return result;
}

Result<std::vector<std::vector<float>>> one_shot_scores(const PolicySpec& spec, const LayerTensors& tensors,
                                                        const ReplayOptions& options) {
  const auto evictor = checked_evictor(spec, tensors, options);
  if (!evictor) return evictor.error();
  Layer layer(*evictor, tensors, options);
  ReplayResult unused;
  KEYNEST_TRY(layer.step(tensors.tokens, false, unused));
  std::vector<std::vector<float>> scores;
  KEYNEST_TRY(layer.scores(unused.scored, scores));
  return scores;
}

}  // namespace keynest
