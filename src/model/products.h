// Which matrix products keynest computes itself, and how they enter a graph.
#pragma once

#include <ggml.h>

#include <atomic>
#include <list>
#include <memory>
#include <optional>

#include "kernels/matmul.h"
#include "keynest/model.h"

namespace keynest {

/// The format of ggml's type; kOther for those without a kernel of their own.
WeightFormat weight_format(ggml_type type);

/// What keynest's own products are computed in: BF16 where the CPU multiplies that, else F32; in 8-bit
/// integers for few tokens, where the CPU has AVX-512 VNNI beside BF16.
enum class ProductKernel { kBf16, kFloat, kInt8 };
ProductKernel best_product_kernel();

/// Whether products of blocks of tokens with weights of this type are keynest's own. kAuto: where they were
/// measured to be faster than ggml's best on such a CPU (docs/performance.md).
bool multiplies_natively(Gemm gemm, ggml_type type);

/// The products of one graph; lives as long as the graph.
class NativeProducts {
 public:
  explicit NativeProducts(Gemm gemm, ProductKernel kernel = best_product_kernel())
      : gemm_(gemm), kernel_(kernel) {}

  /// weight [in, out] times x [in, tokens] as a node that computes it natively, or null where ggml's own
  /// product is the better one: few tokens, a type or shape the kernel does not take.
  ggml_tensor* product(ggml_context* context, ggml_tensor* weight, ggml_tensor* x);

 private:
  struct Task;
  static void compute(ggml_tensor* out, int thread, int threads, void* task);
  std::optional<ProductKernel> choose(const ggml_tensor* weight, std::int64_t tokens) const;
  int least_tokens(WeightFormat format) const;
  ggml_tensor* rounded(ggml_context* context, ggml_tensor* x);

  Gemm gemm_;
  ProductKernel kernel_;
  std::list<std::shared_ptr<Task>> tasks_;  // stable addresses, copied with a graph's description
  ggml_tensor *last_x_ = nullptr, *last_rounded_ = nullptr;  // gate and up, or q, k and v, share one
};

}  // namespace keynest
