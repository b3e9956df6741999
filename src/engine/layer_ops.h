// keynest's operations inside the ggml graph: append, attend, evict for every layer, and the commit that ends
// a step. They are ggml custom operations, so a step is one graph compute on ggml's thread pool.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/step.h"
#include "engine/workspace.h"
#include "model/graph.h"
#include "model/row_shares.h"
#include "policy/evictor.h"

namespace keynest {

class LayerOps final : public AttentionBinding {
 public:
  LayerOps(const GraphModel& model, std::shared_ptr<const Evictor> evictor, int threads);
  ~LayerOps() override;

  ggml_tensor* append_and_attend(ggml_context* context, int layer, ggml_tensor* q, ggml_tensor* k,
                                 ggml_tensor* v) override;
  ggml_tensor* evict(ggml_context* context, int layer, ggml_tensor* attended) override;

  /// The two operations that end a step, to be expanded into the graph after everything else.
  std::vector<ggml_tensor*> commit(ggml_context* context);

  /// Makes the buffers fit and binds the step that the next graph compute works on. Pages must be reserved.
  void begin(const StepInput& input, std::span<const Position> positions);
  /// To be called after the graph compute, however it ended. The outcome of the step; on an error nothing was
  /// committed, and rows lie where they did.
  Status finish();
  const StepTimes& times() const { return times_; }

 private:
  struct Layer;  // what a graph node points to: the ops and a layer index, and the layer's counters
  struct Worker {
    int thread, threads;
  };

  static void append_op(ggml_tensor* dst, int thread, int threads, void* layer);
  static void attend_op(ggml_tensor* dst, int thread, int threads, void* layer);
  static void evict_op(ggml_tensor* dst, int thread, int threads, void* layer);
  static void prepare_op(ggml_tensor* dst, int thread, int threads, void* ops);
  static void apply_op(ggml_tensor* dst, int thread, int threads, void* ops);

  void append(Layer& layer, const ggml_tensor* k, const ggml_tensor* v, Worker worker);
  void attend_tiles(const Layer& layer, const ggml_tensor* q, ggml_tensor* out, Worker worker);
  void attend_split(Layer& layer, const ggml_tensor* q, ggml_tensor* out, Worker worker);
  void evict(Layer& layer, const ggml_tensor* q, Worker worker);
  void begin_plan(Layer& layer) const;
  Status choose(Layer& layer, const LayerStep& step, int head, void* scratch);
  Status finish_plan(Layer& layer, const LayerStep& step);
  void plan_moves(Layer& layer, int head);
  void plan_window(Layer& layer);
  void record(Layer& layer);
  Status prepare();
  void apply(Worker worker);

  QueryBlock query_block(const Layer& layer, const ggml_tensor* q, ggml_tensor* out, int kv_head) const;
  LayerStep layer_step(const Layer& layer, const ggml_tensor* q, std::vector<QueryBlock>& queries) const;
  SplitPlan split_plan(const Layer& layer) const;
  bool windowed(const Layer& layer) const;
  bool decode_shaped() const;
  int tokens() const { return static_cast<int>(positions_.size()); }
  int group() const { return hparams_.heads / hparams_.kv_heads; }
  KeyRotation rotation(const Layer& layer) const;

  const Hparams& hparams_;
  std::shared_ptr<const Evictor> evictor_;
  const int threads_;
  std::vector<RopeRotation> rotations_;  // [layers] with positions=cache, else empty

  StepInput input_;
  std::vector<Position> positions_;
  StepTimes times_;
  Status status_;
  bool committed_ = false;

  std::vector<std::unique_ptr<Layer>> layers_;
  std::vector<AlignedBuffer> scratch_;  // [threads]
  AlignedBuffer partials_, row_max_, row_sum_;
  std::vector<LayerEviction*> evictions_;
  RowShares shares_;  // of whatever a node shares out: heads, parts of them
};

}  // namespace keynest
