#include "engine/executor.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>

namespace keynest {
namespace {

constexpr std::size_t kMaxGraphs = 6;    // shapes kept: full blocks, last blocks, decode
constexpr std::size_t kCommitNodes = 8;  // beside the model's own

}  // namespace

Executor::Executor(std::shared_ptr<const GraphModel> model, std::shared_ptr<const Evictor> evictor,
                   int threads)
    : model_(std::move(model)), threads_(threads), ops_(*model_, std::move(evictor), threads) {}

Result<std::shared_ptr<Executor>> Executor::create(std::shared_ptr<const GraphModel> model,
                                                   std::shared_ptr<const Evictor> evictor, int threads) {
  std::shared_ptr<Executor> executor(new Executor(std::move(model), std::move(evictor), threads));
  ggml_threadpool_params params = ggml_threadpool_params_default(threads);
  executor->pool_.reset(ggml_threadpool_new(&params));
  executor->backend_.reset(ggml_backend_cpu_init());
  if (!executor->pool_ || !executor->backend_) {
    return Error{ErrorCode::kOutOfMemory, "ggml could not start " + std::to_string(threads) + " threads"};
  }
  ggml_backend_cpu_set_n_threads(executor->backend_.get(), threads);
  ggml_backend_cpu_set_threadpool(executor->backend_.get(), executor->pool_.get());
  return executor;
}

Result<Executor::Built> Executor::build(const StepShape& shape) {
  Built built;
  built.shape = shape;
  const std::size_t nodes = model_->graph_nodes() + kCommitNodes;
  ggml_init_params params{ggml_tensor_overhead() * nodes * 2 + ggml_graph_overhead_custom(nodes, false),
                          nullptr, true};
  built.context.reset(ggml_init(params));
  built.step = model_->build(built.context.get(), shape, ops_);
  for (ggml_tensor* node : ops_.commit(built.context.get()))
    ggml_build_forward_expand(built.step.graph, node);
  built.memory.reset(ggml_gallocr_new(ggml_backend_get_default_buffer_type(backend_.get())));
  if (!built.memory || !ggml_gallocr_alloc_graph(built.memory.get(), built.step.graph)) {
    return Error{ErrorCode::kOutOfMemory, "no memory for the intermediates of a step of " +
                                              std::to_string(shape.tokens) + " tokens: use a smaller block"};
  }
  return built;
}

Result<Executor::Built*> Executor::graph_for(const StepShape& shape) {
  const auto found =
      std::find_if(graphs_.begin(), graphs_.end(), [&](const Built& b) { return b.shape == shape; });
  if (found != graphs_.end()) {
    graphs_.splice(graphs_.begin(), graphs_, found);
    return &graphs_.front();
  }
  auto built = build(shape);
  if (!built) return built.error();
  graphs_.push_front(std::move(built).value());
  if (graphs_.size() > kMaxGraphs) graphs_.pop_back();
  return &graphs_.front();
}

void Executor::set_inputs(const Built& built, const StepInput& input) {
  const auto set = [](ggml_tensor* tensor, const std::int32_t* data) {
    if (tensor != nullptr) ggml_backend_tensor_set(tensor, data, 0, ggml_nbytes(tensor));
  };
  output_ids_.resize(static_cast<std::size_t>(input.outputs));
  std::iota(output_ids_.begin(), output_ids_.end(),
            static_cast<std::int32_t>(input.tokens.size()) - input.outputs);
  set(built.step.tokens, input.tokens.data());
  // The policy and the pages know true positions; RoPE alone may be given ranks.
  rope_positions_.resize(input.tokens.size());
  std::iota(rope_positions_.begin(), rope_positions_.end(), input.sequence->seen - input.sequence->shift);
  set(built.step.positions, rope_positions_.data());
  set(built.step.output_ids, output_ids_.data());
}

Status Executor::run(const StepInput& input, std::vector<float>& logits, StepTimes& times) {
  const std::lock_guard lock(mutex_);
  auto built = graph_for({static_cast<std::int32_t>(input.tokens.size()), input.outputs});
  if (!built) return built.error();
  positions_.resize(input.tokens.size());
  std::iota(positions_.begin(), positions_.end(), input.sequence->seen);
  static_assert(sizeof(Position) == sizeof(std::int32_t));
  ops_.begin(input, {reinterpret_cast<const Position*>(positions_.data()), positions_.size()});
  set_inputs(**built, input);

  const ggml_status status = ggml_backend_graph_compute(backend_.get(), (*built)->step.graph);
  const Status finished = ops_.finish();
  if (status != GGML_STATUS_SUCCESS) {
    return Error{ErrorCode::kInternal,
                 std::string("ggml failed to compute a step: ") + ggml_status_to_string(status)};
  }
  KEYNEST_TRY(finished);
  times = ops_.times();
  if (input.outputs > 0) {
    logits.resize(static_cast<std::size_t>(ggml_nelements((*built)->step.logits)));
    ggml_backend_tensor_get((*built)->step.logits, logits.data(), 0, ggml_nbytes((*built)->step.logits));
  }
  return {};
}

}  // namespace keynest
