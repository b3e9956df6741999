// keynest's panels beside ggml's own product, on plain and on rearranged ("repacked") weights.
#include <ggml-backend.h>
#include <ggml-cpu.h>

#include <cstring>
#include <memory>

#include "kernels/matmul.h"
#include "own.h"
#include "peak.h"

namespace keynest::bench {
namespace {

struct FreeContext {
  void operator()(ggml_context* context) const { ggml_free(context); }
};
struct FreeBuffer {
  void operator()(ggml_backend_buffer_t buffer) const { ggml_backend_buffer_free(buffer); }
};

/// The first buffer type that rearranges weights for this CPU, or null.
ggml_backend_buffer_type_t repacking_buffer() {
  ggml_backend_dev_t device = ggml_backend_reg_dev_get(ggml_backend_cpu_reg(), 0);
  auto* extra = reinterpret_cast<ggml_backend_dev_get_extra_bufts_t>(
      ggml_backend_reg_get_proc_address(ggml_backend_cpu_reg(), "ggml_backend_dev_get_extra_bufts"));
  ggml_backend_buffer_type_t* all = extra == nullptr ? nullptr : extra(device);
  return all == nullptr ? nullptr : *all;
}

/// A graph with one product for each copy of the matrix.
class GgmlProduct {
 public:
  GgmlProduct(const Weights& w, int copies, int tokens, ggml_backend_buffer_type_t where)
      : context_(ggml_init({context_bytes(copies), nullptr, true})),
        pool_(ggml_threadpool_new(&one_thread_)),
        x_(static_cast<std::size_t>(tokens) * static_cast<std::size_t>(w.k) * sizeof(float)) {
    ggml_context* c = context_.get();
    ggml_tensor* x = ggml_new_tensor_2d(c, GGML_TYPE_F32, w.k, tokens);
    x->data = x_.as<void>();
    std::vector<ggml_tensor*> matrices;
    for (int i = 0; i < copies; ++i) matrices.push_back(ggml_new_tensor_2d(c, w.type, w.k, w.n));
    weights_.reset(allocate(matrices, where));
    rearranged_ = matrices[0]->extra != nullptr;
    if (where != ggml_backend_cpu_buffer_type() && !rearranged_) return;  // it cannot hold this type
    for (ggml_tensor* matrix : matrices) {
      ggml_backend_tensor_set(matrix, w.stored.data(), 0, w.stored.size());
      ggml_cgraph* graph = ggml_new_graph_custom(c, 8, false);
      results_.push_back(ggml_mul_mat(c, matrix, x));
      ggml_build_forward_expand(graph, results_.back());
      graphs_.push_back(graph);
    }
    work_.resize(ggml_graph_plan(graphs_[0], 1, pool_).work_size);
  }
  ~GgmlProduct() { ggml_threadpool_free(pool_); }
  GgmlProduct(const GgmlProduct&) = delete;
  GgmlProduct& operator=(const GgmlProduct&) = delete;

  bool rearranged() const { return rearranged_; }

  void run(int copy, const float* x, float* y) {
    const auto i = static_cast<std::size_t>(copy);
    results_[i]->data = y;
    results_[i]->src[1]->data = const_cast<float*>(x);
    ggml_cplan plan = ggml_graph_plan(graphs_[i], 1, pool_);
    plan.work_data = work_.data();
    ggml_graph_compute(graphs_[i], &plan);
  }

 private:
  static std::size_t context_bytes(int copies) {
    const std::size_t each = 4 * ggml_tensor_overhead() + ggml_graph_overhead_custom(8, false);
    return each * static_cast<std::size_t>(copies + 1);
  }

  static ggml_backend_buffer_t allocate(const std::vector<ggml_tensor*>& tensors,
                                        ggml_backend_buffer_type_t type) {
    const std::size_t each = GGML_PAD(ggml_backend_buft_get_alloc_size(type, tensors[0]), 64);
    ggml_backend_buffer_t buffer = ggml_backend_buft_alloc_buffer(type, each * tensors.size());
    ggml_backend_buffer_set_usage(buffer, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    auto* at = static_cast<char*>(ggml_backend_buffer_get_base(buffer));
    for (ggml_tensor* tensor : tensors) {
      ggml_backend_tensor_alloc(buffer, tensor, at);
      at += each;
    }
    return buffer;
  }

  ggml_threadpool_params one_thread_ = ggml_threadpool_params_default(1);
  std::unique_ptr<ggml_context, FreeContext> context_;
  ggml_threadpool_t pool_;
  Aligned x_;
  std::unique_ptr<ggml_backend_buffer, FreeBuffer> weights_;
  std::vector<ggml_tensor*> results_;
  std::vector<ggml_cgraph*> graphs_;
  std::vector<std::uint8_t> work_;
  bool rearranged_ = false;
};

Candidate own_bytes(ggml_type type) { return {"keynest, 8-bit panels", type, byte_product}; }

Candidate own(ggml_type type) {
  return {"keynest, BF16 panels", type,
          [](const Weights& w, int copies, int tokens) -> std::optional<Product> {
            if (!bf16_matmul_supported()) return std::nullopt;
            return panel_product(w, copies, tokens, {});
          }};
}

Candidate ggml(ggml_type type, bool repack) {
  const auto make = [repack](const Weights& w, int copies, int tokens) -> std::optional<Product> {
    ggml_backend_buffer_type_t where = repack ? repacking_buffer() : ggml_backend_cpu_buffer_type();
    if (where == nullptr) return std::nullopt;
    auto product = std::make_shared<GgmlProduct>(w, copies, tokens, where);
    if (repack && !product->rearranged()) return std::nullopt;
    return Product{[product](int copy, const float* x, float* y) { product->run(copy, x, y); },
                   repack ? w.stored.size() : 0};
  };
  return {repack ? "ggml, repacked" : "ggml", type, make};
}

}  // namespace
}  // namespace keynest::bench

int main(int argc, char** argv) {
  using namespace keynest::bench;
  ggml_log_set([](ggml_log_level, const char*, void*) {}, nullptr);  // it tells of every matrix
  print_peaks();
  std::vector<Candidate> all;
  for (const ggml_type type :
       {GGML_TYPE_Q4_K, GGML_TYPE_Q5_0, GGML_TYPE_Q6_K, GGML_TYPE_Q8_0, GGML_TYPE_Q4_0, GGML_TYPE_BF16}) {
    if (type != GGML_TYPE_BF16) all.push_back(own_bytes(type));
    all.push_back(own(type));
    all.push_back(ggml(type, false));
    if (type != GGML_TYPE_BF16) all.push_back(ggml(type, true));
  }
  return run_candidates(argc, argv, all);
}
