// Runs steps: ggml's thread pool, and graphs built once per batch size and reused.
#pragma once

#include <ggml-alloc.h>
#include <ggml-backend.h>
#include <ggml-cpu.h>
#include <ggml.h>

#include <list>
#include <memory>
#include <mutex>
#include <vector>

#include "engine/layer_ops.h"
#include "engine/step.h"
#include "model/graph.h"

namespace keynest {

struct GgmlDeleter {
  void operator()(ggml_context* p) const { ggml_free(p); }
  void operator()(ggml_gallocr* p) const { ggml_gallocr_free(p); }
  void operator()(ggml_backend* p) const { ggml_backend_free(p); }
  void operator()(ggml_threadpool* p) const { ggml_threadpool_free(p); }
};
template <typename T>
using GgmlPtr = std::unique_ptr<T, GgmlDeleter>;

/// Thread-safe: steps of sessions that share an executor (forks) run one after another.
class Executor {
 public:
  /// Errors: kOutOfMemory when threads or the backend cannot be had.
  static Result<std::shared_ptr<Executor>> create(std::shared_ptr<const GraphModel> model,
                                                  std::shared_ptr<const Evictor> evictor, int threads);

  /// Runs one step; pages must have been reserved. On success the sequence's cache is committed and `logits`
  /// holds [outputs, vocabulary]; on an error nothing was committed.
  Status run(const StepInput& input, std::vector<float>& logits, StepTimes& times);

  int threads() const { return threads_; }

 private:
  /// A graph for one shape with the memory of its intermediates.
  struct Built {
    StepShape shape;
    GgmlPtr<ggml_context> context;
    GgmlPtr<ggml_gallocr> memory;
    StepGraph step;
  };

  Executor(std::shared_ptr<const GraphModel> model, std::shared_ptr<const Evictor> evictor, int threads);

  Result<Built*> graph_for(const StepShape& shape);
  Result<Built> build(const StepShape& shape);
  void set_inputs(const Built& built, const StepInput& input);

  std::shared_ptr<const GraphModel> model_;
  const int threads_;
  std::mutex mutex_;
  GgmlPtr<ggml_threadpool> pool_;
  GgmlPtr<ggml_backend> backend_;
  LayerOps ops_;
  std::list<Built> graphs_;  // most recently used first
  std::vector<std::int32_t> positions_, rope_positions_, output_ids_;
};

}  // namespace keynest
