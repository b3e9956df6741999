// Which matrix products keynest computes itself, and how they enter a graph.
#pragma once

#include <ggml.h>

#include <list>
#include <memory>
#include <optional>

#include "kernels/matmul.h"
#include "keynest/model.h"
#include "model/row_shares.h"

namespace keynest {

/// The format of ggml's type; kOther for those without a kernel of their own.
WeightFormat weight_format(ggml_type type);

/// How a product is computed: in panels of 8-bit integers, of BF16 or of F32, or, for few tokens, by dot
/// products without a panel, in 8-bit integers or (F16 and BF16) in F32.
enum class ProductKernel { kInt8, kBf16, kFloat, kInt8Dots, kHalfDots };
/// The fastest for blocks of tokens that this CPU has for weights of this format.
ProductKernel best_product_kernel(WeightFormat format, int columns);

/// Whether products of blocks of tokens with weights of this type are keynest's own. kAuto: where they were
/// measured to be faster than ggml's best on such a CPU (docs/performance.md).
bool multiplies_natively(Gemm gemm, ggml_type type);

/// The products of one graph; lives as long as the graph.
class NativeProducts {
 public:
  /// `kernel` instead of the best one for blocks, where given: what is measured in its place must take every
  /// format and fit the CPU.
  explicit NativeProducts(Gemm gemm, std::optional<ProductKernel> kernel = std::nullopt)
      : gemm_(gemm), kernel_(kernel) {}

  /// weight [in, out] times x [in, tokens] as a node that computes it natively, or null where ggml's own
  /// product is the better one: few tokens, a type or shape the kernel does not take.
  ggml_tensor* product(ggml_context* context, ggml_tensor* weight, ggml_tensor* x);

 private:
  struct Task;
  static void compute(ggml_tensor* out, int thread, int threads, void* task);
  std::optional<ProductKernel> choose(const ggml_tensor* weight, std::int64_t tokens) const;
  ggml_tensor* rounded(ggml_context* context, ggml_tensor* x, ProductKernel kernel);

  Gemm gemm_;
  std::optional<ProductKernel> kernel_;
  std::list<std::shared_ptr<Task>> tasks_;  // stable addresses, copied with a graph's description
  struct Rounded {
    ggml_tensor *from = nullptr, *to = nullptr;
  };
  RowShares shares_;
  Rounded last_[2];  // in integers and in BF16; gate and up, or q, k and v, share one
};

}  // namespace keynest
