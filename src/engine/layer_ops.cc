#include "engine/layer_ops.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cassert>
#include <chrono>

#include "kernels/rows.h"

namespace keynest {
namespace {

constexpr int kAppendTokens = 32;   // tokens per append task
constexpr int kDecodeQueries = 16;  // up to this many query rows per KV head, attention is bound by memory

/// Adds the time of its life to `sum` when it belongs to the first thread.
class Stopwatch {
 public:
  Stopwatch(int thread, double& sum) : sum_(thread == 0 ? &sum : nullptr) {
    if (sum_ != nullptr) start_ = std::chrono::steady_clock::now();
  }
  ~Stopwatch() {
    if (sum_ != nullptr)
      *sum_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  double* sum_;
  std::chrono::steady_clock::time_point start_;
};

/// A node whose only purpose is its effect: one float of output.
ggml_tensor* effect_node(ggml_context* context, std::span<ggml_tensor*> args, ggml_custom_op_t op, int tasks,
                         void* data) {
  return ggml_custom_4d(context, GGML_TYPE_F32, 1, 1, 1, 1, args.data(), static_cast<int>(args.size()), op,
                        tasks, data);
}

}  // namespace

struct LayerOps::Layer {
  LayerOps* ops = nullptr;
  int index = 0;
  int window = 0;

  // Set when a step begins.
  std::vector<HeadRows> rows;  // [kv_heads], the reserved ones included
  std::atomic<int> evicted_heads{0};
  std::unique_ptr<std::atomic<int>[]> finished_splits;  // [kv_heads]

  std::vector<std::vector<float>> scores;  // [kv_heads][rows]
  std::vector<Status> head_status;         // [kv_heads]
  Status status;
  LayerPlan plan;
  LayerEviction eviction;
  bool planned = false;

  void reset(int kv_heads) {
    evicted_heads = 0;
    for (int h = 0; h < kv_heads; ++h) finished_splits[static_cast<std::size_t>(h)] = 0;
    std::fill(head_status.begin(), head_status.end(), Status{});
    status = {};
    planned = false;
  }
};

LayerOps::LayerOps(const GraphModel& model, std::shared_ptr<const Evictor> evictor, int threads)
    : hparams_(model.hparams()), evictor_(std::move(evictor)), threads_(threads) {
  const auto heads = static_cast<std::size_t>(hparams_.kv_heads);
  for (int i = 0; i < hparams_.layers; ++i) {
    if (evictor_->spec().positions == Positions::kCache) rotations_.push_back(model.rope_rotation(i));
    auto layer = std::make_unique<Layer>();
    layer->ops = this;
    layer->index = i;
    layer->window = hparams_.layer_windows[static_cast<std::size_t>(i)];
    layer->finished_splits = std::make_unique<std::atomic<int>[]>(heads);
    layer->rows.resize(heads);
    layer->scores.resize(heads);
    layer->head_status.resize(heads);
    layers_.push_back(std::move(layer));
  }
  scratch_.resize(static_cast<std::size_t>(threads));
}

LayerOps::~LayerOps() = default;

// ---------------------------------------------------------------------------------------- graph nodes

ggml_tensor* LayerOps::append_and_attend(ggml_context* context, int layer, ggml_tensor* q, ggml_tensor* k,
                                         ggml_tensor* v) {
  void* data = layers_[static_cast<std::size_t>(layer)].get();
  std::array<ggml_tensor*, 2> rows{k, v};
  ggml_tensor* appended = effect_node(context, rows, append_op, GGML_N_TASKS_MAX, data);
  std::array<ggml_tensor*, 2> args{q, appended};
  ggml_tensor* attended = ggml_custom_4d(context, GGML_TYPE_F32, q->ne[0] * q->ne[1], q->ne[2], 1, 1,
                                         args.data(), 2, attend_op, GGML_N_TASKS_MAX, data);
  return attended;
}

ggml_tensor* LayerOps::evict(ggml_context* context, int layer, ggml_tensor* attended) {
  // The queries stay alive until here: attention-based policies read them a second time.
  std::array<ggml_tensor*, 2> args{attended, attended->src[0]};
  return effect_node(context, args, evict_op, GGML_N_TASKS_MAX,
                     layers_[static_cast<std::size_t>(layer)].get());
}

std::vector<ggml_tensor*> LayerOps::commit(ggml_context* context) {
  ggml_tensor* prepared = effect_node(context, {}, prepare_op, 1, this);
  std::array<ggml_tensor*, 1> args{prepared};
  return {prepared, effect_node(context, args, apply_op, GGML_N_TASKS_MAX, this)};
}

void LayerOps::append_op(ggml_tensor* dst, int thread, int threads, void* data) {
  auto& layer = *static_cast<Layer*>(data);
  const Stopwatch watch(thread, layer.ops->times_.attention_seconds);
  layer.ops->append(layer, dst->src[0], dst->src[1], {thread, threads});
}

void LayerOps::attend_op(ggml_tensor* dst, int thread, int threads, void* data) {
  auto& layer = *static_cast<Layer*>(data);
  LayerOps& ops = *layer.ops;
  const Stopwatch watch(thread, ops.times_.attention_seconds);
  if (ops.decode_shaped()) {
    ops.attend_split(layer, dst->src[0], dst, {thread, threads});
  } else {
    ops.attend_tiles(layer, dst->src[0], dst, {thread, threads});
  }
}

void LayerOps::evict_op(ggml_tensor* dst, int thread, int threads, void* data) {
  auto& layer = *static_cast<Layer*>(data);
  const Stopwatch watch(thread, layer.ops->times_.evict_seconds);
  layer.ops->evict(layer, dst->src[1], {thread, threads});
}

void LayerOps::prepare_op(ggml_tensor* /*dst*/, int thread, int /*threads*/, void* data) {
  auto& ops = *static_cast<LayerOps*>(data);
  if (thread != 0) return;
  const Stopwatch watch(thread, ops.times_.evict_seconds);
  ops.status_ = ops.prepare();
}

void LayerOps::apply_op(ggml_tensor* /*dst*/, int thread, int threads, void* data) {
  auto& ops = *static_cast<LayerOps*>(data);
  const Stopwatch watch(thread, ops.times_.evict_seconds);
  if (ops.committed_) ops.apply({thread, threads});
}

// ---------------------------------------------------------------------------------------- a step

void LayerOps::begin(const StepInput& input, std::span<const Position> positions) {
  input_ = input;
  positions_.assign(positions.begin(), positions.end());
  times_ = {};
  status_ = {};
  committed_ = false;
  evictions_.clear();

  const SequenceCache& cache = input.sequence->cache;
  std::int32_t rows = 0;
  for (auto& layer : layers_) {
    layer->reset(hparams_.kv_heads);
    if (input.evict) begin_plan(*layer);
    for (int h = 0; h < hparams_.kv_heads; ++h) {
      HeadRows& head = layer->rows[static_cast<std::size_t>(h)];
      head = cache.rows(layer->index, h);
      rows = std::max(rows, head.rows);
    }
  }
  const std::size_t scratch = std::max(attention_scratch_bytes(cache.layout(), group()),
                                       evictor_scratch_bytes(*evictor_, cache.layout(), rows));
  for (AlignedBuffer& buffer : scratch_) buffer.grow(scratch);

  const std::size_t query_rows = static_cast<std::size_t>(hparams_.heads) * positions.size();
  row_max_.grow(query_rows * sizeof(float));
  row_sum_.grow(query_rows * sizeof(float));
  if (decode_shaped()) {
    const SplitPlan plan{SplitPlan::kMostSplits, tokens() * group(), hparams_.head_dim};
    partials_.grow(static_cast<std::size_t>(hparams_.kv_heads * plan.splits) * plan.floats_per_partial() *
                   sizeof(float));
  }
}

Status LayerOps::finish() {
  if (!input_.evict || committed_) return status_;
  for (auto& layer : layers_) input_.sequence->cache.take_back(layer->eviction);
  return status_;
}

bool LayerOps::decode_shaped() const { return tokens() * group() <= kDecodeQueries; }

bool LayerOps::windowed(const Layer& layer) const { return layer.window > 0; }

void LayerOps::append(Layer& layer, const ggml_tensor* k, const ggml_tensor* v, Worker worker) {
  const SequenceCache& cache = input_.sequence->cache;
  const int chunks = (tokens() + kAppendTokens - 1) / kAppendTokens;
  const std::size_t stride =
      static_cast<std::size_t>(hparams_.head_dim) * static_cast<std::size_t>(hparams_.kv_heads);
  shares_.share(worker.thread, worker.threads, hparams_.kv_heads * chunks, 1, [&](int task, int) {
    const int head = task / chunks;
    const int first = task % chunks * kAppendTokens;
    const int count = std::min(kAppendTokens, tokens() - first);
    const std::size_t offset = static_cast<std::size_t>(first) * stride +
                               static_cast<std::size_t>(head) * static_cast<std::size_t>(hparams_.head_dim);
    write_rows(layer.rows[static_cast<std::size_t>(head)], Row{cache.head(layer.index, head).rows() + first},
               count, static_cast<const float*>(k->data) + offset, stride,
               static_cast<const float*>(v->data) + offset, stride, positions_.data() + first);
  });
}

QueryBlock LayerOps::query_block(const Layer& layer, const ggml_tensor* q, ggml_tensor* out,
                                 int kv_head) const {
  const auto head_dim = static_cast<std::size_t>(hparams_.head_dim);
  const std::size_t offset = static_cast<std::size_t>(kv_head * group()) * head_dim;
  QueryBlock block;
  block.queries = static_cast<const float*>(q->data) + offset;
  block.token_stride = head_dim * static_cast<std::size_t>(hparams_.heads);
  block.head_stride = head_dim;
  block.tokens = tokens();
  block.group = group();
  block.positions = positions_.data();
  block.scale = hparams_.attention_scale;
  block.window = layer.window;
  if (out != nullptr) block.out = static_cast<float*>(out->data) + offset;
  block.out_token_stride = block.token_stride;
  block.out_head_stride = block.head_stride;
  if (evictor_->needs().attention != AttentionNeed::kNone) {
    const std::size_t row = static_cast<std::size_t>(kv_head * group()) * positions_.size();
    block.row_max = row_max_.floats() + row;
    block.row_sum = row_sum_.floats() + row;
  }
  return block;
}

void LayerOps::attend_tiles(const Layer& layer, const ggml_tensor* q, ggml_tensor* out, Worker worker) {
  const int tile = attention_tile_tokens(group());
  const int tiles = (tokens() + tile - 1) / tile;
  void* scratch = scratch_[static_cast<std::size_t>(worker.thread)].data();
  // Head by head, so that a thread finds keys and values in its cache. The last tiles see the most keys:
  // start with them, so that no thread ends with a long one.
  shares_.share(worker.thread, worker.threads, hparams_.kv_heads * tiles, 1, [&](int task, int) {
    const int head = task / tiles;
    const int first = (tiles - 1 - task % tiles) * tile;
    attend(layer.rows[static_cast<std::size_t>(head)], query_block(layer, q, out, head), first,
           std::min(first + tile, tokens()), scratch);
  });
}

SplitPlan LayerOps::split_plan(const Layer& layer) const {
  int pages = 1;
  for (const HeadRows& head : layer.rows) pages = std::max(pages, head.page_count());
  return SplitPlan::of(pages, tokens() * group(), hparams_.head_dim);
}

void LayerOps::attend_split(Layer& layer, const ggml_tensor* q, ggml_tensor* out, Worker worker) {
  const SplitPlan plan = split_plan(layer);
  void* scratch = scratch_[static_cast<std::size_t>(worker.thread)].data();
  shares_.share(worker.thread, worker.threads, hparams_.kv_heads * plan.splits, 1, [&](int task, int) {
    const int head = task / plan.splits;
    const int split = task % plan.splits;
    const HeadRows rows = layer.rows[static_cast<std::size_t>(head)];
    const QueryBlock block = query_block(layer, q, out, head);
    attend_pages(rows, block, plan.first_page(split, rows.page_count()),
                 plan.first_page(split + 1, rows.page_count()), plan.partial(partials_.floats(), head, split),
                 scratch);
    auto& finished = layer.finished_splits[static_cast<std::size_t>(head)];
    if (finished.fetch_add(1, std::memory_order_acq_rel) + 1 < plan.splits) return;
    std::array<PartialAttention, SplitPlan::kMostSplits> partials;
    for (int s = 0; s < plan.splits; ++s) {
      partials[static_cast<std::size_t>(s)] = plan.partial(partials_.floats(), head, s);
    }
    merge_partials(block, hparams_.head_dim, partials.data(), plan.splits);
  });
}

// ---------------------------------------------------------------------------------------- eviction

LayerStep LayerOps::layer_step(const Layer& layer, const ggml_tensor* q,
                               std::vector<QueryBlock>& queries) const {
  const Sequence& sequence = *input_.sequence;
  queries.clear();
  const bool attention = evictor_->needs().attention != AttentionNeed::kNone;
  for (int h = 0; attention && h < hparams_.kv_heads; ++h) {
    queries.push_back(query_block(layer, q, nullptr, h));
  }
  LayerStep step;
  step.heads = layer.rows;
  step.queries = queries;
  step.appended = tokens();
  step.seen = sequence.seen + tokens();
  step.announced = sequence.announced;
  step.layer = layer.index;
  step.protected_ranges = sequence.protected_ranges;
  if (!sequence.budgets.empty()) step.budget = sequence.budgets[static_cast<std::size_t>(layer.index)];
  return step;
}

void LayerOps::evict(Layer& layer, const ggml_tensor* q, Worker worker) {
  if (windowed(layer)) {
    if (input_.evict && worker.thread == 0) plan_window(layer);
    return;
  }
  if (!evictor_->evicts() || input_.sequence->budgets.empty()) return;
  thread_local std::vector<QueryBlock> queries;
  const LayerStep step = layer_step(layer, q, queries);
  const bool due = input_.evict && evictor_->over_budget(step);
  LayerState& state = input_.sequence->states[static_cast<std::size_t>(layer.index)];
  void* scratch = scratch_[static_cast<std::size_t>(worker.thread)].data();
  // Shared as attention is, so that keys are still where they were read last.
  shares_.share(worker.thread, worker.threads, hparams_.kv_heads, 1, [&](int head, int) {
    const auto h = static_cast<std::size_t>(head);
    evictor_->observe(state, step, head, scratch);
    if (due) layer.head_status[h] = choose(layer, step, head, scratch);
    const int done = layer.evicted_heads.fetch_add(1, std::memory_order_acq_rel) + 1;
    if (!due || done < hparams_.kv_heads) return;
    layer.status = finish_plan(layer, step);
    layer.planned = layer.status.ok();
  });
}

/// The scores of a head, and what it keeps where that takes no other head.
Status LayerOps::choose(Layer& layer, const LayerStep& step, int head, void* scratch) {
  const auto h = static_cast<std::size_t>(head);
  LayerState& state = input_.sequence->states[static_cast<std::size_t>(layer.index)];
  KEYNEST_TRY(evictor_->score(state, step, head, layer.scores[h], scratch));
  if (!evictor_->heads_apart()) return {};
  KEYNEST_TRY(evictor_->plan_head(step, head, layer.scores[h], layer.plan.kept[h]));
  plan_moves(layer, head);
  return {};
}

/// For the thread that is done last.
Status LayerOps::finish_plan(Layer& layer, const LayerStep& step) {
  for (const Status& status : layer.head_status) KEYNEST_TRY(status);
  if (evictor_->heads_apart()) return {};
  KEYNEST_TRY(evictor_->plan(step, layer.scores, layer.plan));
  for (int h = 0; h < hparams_.kv_heads; ++h) plan_moves(layer, h);
  return {};
}

/// Rows move here, while attention has left them in the caches; only records are made from where they were.
void LayerOps::plan_moves(Layer& layer, int head) {
  SequenceCache& cache = input_.sequence->cache;
  cache.plan_head(head, layer.plan.kept[static_cast<std::size_t>(head)], layer.eviction);
  if (input_.sequence->records.empty()) cache.arrange(layer.eviction, head);
}

void LayerOps::begin_plan(Layer& layer) const {
  const KeyRotation turned = rotation(layer);
  layer.plan.kept.resize(static_cast<std::size_t>(hparams_.kv_heads));
  input_.sequence->cache.begin_plan(layer.index, layer.eviction, rotations_.empty() ? nullptr : &turned);
}

KeyRotation LayerOps::rotation(const Layer& layer) const {
  if (rotations_.empty()) return {};
  const RopeRotation& rotation = rotations_[static_cast<std::size_t>(layer.index)];
  return {rotation.frequencies, rotation.adjacent_pairs};
}

/// A sliding-window layer keeps what its next query can see, no more than its budget, and no policy widens
/// that.
void LayerOps::plan_window(Layer& layer) {
  const Sequence& sequence = *input_.sequence;
  std::int32_t keep = layer.window;
  if (!sequence.budgets.empty())
    keep = std::min(keep, sequence.budgets[static_cast<std::size_t>(layer.index)]);
  const std::int32_t oldest = sequence.seen + tokens() - keep;
  layer.plan.kept.resize(static_cast<std::size_t>(hparams_.kv_heads));
  for (int h = 0; h < hparams_.kv_heads; ++h) {
    const HeadRows& rows = layer.rows[static_cast<std::size_t>(h)];
    std::vector<Row>& kept = layer.plan.kept[static_cast<std::size_t>(h)];
    kept.clear();
    for (std::int32_t r = 0; r < rows.rows; ++r) {
      if (to_int(rows.position(Row{r})) >= oldest) kept.push_back(Row{r});
    }
    layer.planned |= static_cast<std::int32_t>(kept.size()) < rows.rows;
  }
  if (layer.planned) sequence.cache.plan(layer.index, layer.plan.kept, layer.eviction);
}

/// Called between commit and apply, when rows are still where they were scored.
void LayerOps::record(Layer& layer) {
  const Sequence& sequence = *input_.sequence;
  LayerRecord& record = input_.sequence->records[static_cast<std::size_t>(layer.index)];
  std::vector<HeadRows> rows;
  record.positions.clear();
  for (int h = 0; h < hparams_.kv_heads; ++h) {
    rows.push_back(sequence.cache.rows(layer.index, h));
    auto& positions = record.positions.emplace_back();
    for (std::int32_t r = 0; r < rows.back().rows; ++r) positions.push_back(rows.back().position(Row{r}));
  }
  LayerStep step;
  step.heads = rows;
  step.seen = sequence.seen + tokens();
  step.budget = sequence.budgets[static_cast<std::size_t>(layer.index)];
  step.layer = layer.index;
  record.scores = layer.scores;
  evictor_->publish(step, record.scores);
}

Status LayerOps::prepare() {
  for (auto& layer : layers_) {
    KEYNEST_TRY(layer->status);
    if (layer->planned) evictions_.push_back(&layer->eviction);
  }
  SequenceCache& cache = input_.sequence->cache;
  KEYNEST_TRY(cache.prepare(evictions_));
  cache.commit();
  committed_ = true;
  if (!input_.sequence->records.empty()) {
    for (auto& layer : layers_) {
      if (layer->planned && !windowed(*layer)) record(*layer);
    }
  }
  times_.evictions = evictions_.size();
  return {};
}

void LayerOps::apply(Worker worker) {
  const int heads = hparams_.kv_heads;
  const int tasks = static_cast<int>(evictions_.size()) * heads;
  shares_.share(worker.thread, worker.threads, tasks, 1, [&](int task, int) {
    input_.sequence->cache.apply(*evictions_[static_cast<std::size_t>(task / heads)], task % heads);
  });
}

}  // namespace keynest
