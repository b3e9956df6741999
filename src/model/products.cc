#include "model/products.h"

#include <ggml-backend.h>
#include <ggml-cpu.h>

#include <algorithm>
#include <new>
#include <optional>
#include <vector>

#include "kernels/half_dots.h"

namespace keynest {
namespace {

/// A thread's own buffer for panels, grown when a larger matrix comes.
class PanelScratch {
 public:
  ~PanelScratch() { release(); }
  void* at_least(std::size_t bytes) {
    if (bytes > bytes_) {
      release();
      data_ = ::operator new (bytes, std::align_val_t{64});
      bytes_ = bytes;
    }
    return data_;
  }

 private:
  void release() {
    if (data_ != nullptr) ::operator delete (data_, std::align_val_t{64});
    data_ = nullptr;
    bytes_ = 0;
  }
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

bool in_plain_memory(const ggml_tensor* weight) {
  return weight->buffer != nullptr && ggml_backend_buffer_is_host(weight->buffer);
}

}  // namespace

WeightFormat weight_format(ggml_type type) {
  switch (type) {
    case GGML_TYPE_Q4_0:
      return WeightFormat::kQ4_0;
    case GGML_TYPE_Q4_1:
      return WeightFormat::kQ4_1;
    case GGML_TYPE_Q5_0:
      return WeightFormat::kQ5_0;
    case GGML_TYPE_Q5_1:
      return WeightFormat::kQ5_1;
    case GGML_TYPE_Q8_0:
      return WeightFormat::kQ8_0;
    case GGML_TYPE_Q4_K:
      return WeightFormat::kQ4_K;
    case GGML_TYPE_Q5_K:
      return WeightFormat::kQ5_K;
    case GGML_TYPE_Q6_K:
      return WeightFormat::kQ6_K;
    case GGML_TYPE_IQ4_NL:
      return WeightFormat::kIQ4_NL;
    case GGML_TYPE_F16:
      return WeightFormat::kF16;
    case GGML_TYPE_BF16:
      return WeightFormat::kBF16;
    default:
      return WeightFormat::kOther;
  }
}

struct NativeProducts::Task {
  WeightMatrix weights;
  ProductKernel kernel;
  RowShares& shares;

  void multiply(const ggml_tensor* x, ggml_tensor* out, int thread, int threads);
  void multiply_rows(int first, int rows, const void* x, ggml_tensor* out, void* scratch) const;
  int unit_rows() const;
  std::size_t scratch_bytes(int tokens) const;
};

ProductKernel best_product_kernel(WeightFormat format, int columns) {
  if (int8_matmul_supported(format, columns)) return ProductKernel::kInt8;
  return bf16_matmul_supported() ? ProductKernel::kBf16 : ProductKernel::kFloat;
}

bool multiplies_natively(Gemm gemm, ggml_type type) {
  if (gemm == Gemm::kGgml || ggml_get_type_traits(type)->to_float == nullptr) return false;
  if (gemm == Gemm::kNative || gemm == Gemm::kBf16) return true;
  // ggml has kernels for AMX tiles, with weights rearranged for them.
  if (ggml_cpu_has_amx_int8() != 0) return false;
  const WeightFormat format = weight_format(type);
  switch (best_product_kernel(format, static_cast<int>(ggml_blck_size(type)) * 2)) {
    case ProductKernel::kFloat:
      return float_matmul_preferred(format);
    case ProductKernel::kBf16:
      return format != WeightFormat::kOther;
    default:
      return true;
  }
}

namespace {

void round_to_int8(ggml_tensor* out, int thread, int threads, void* /*data*/) {
  const ggml_tensor* x = out->src[0];
  int8_panel_round(static_cast<const float*>(x->data), static_cast<int>(x->ne[0]), static_cast<int>(x->ne[1]),
                   thread, threads, out->data);
}

ggml_tensor* int8_of(ggml_context* context, ggml_tensor* x) {
  const auto bytes = int8_panel_rounded_bytes(static_cast<int>(x->ne[0]), static_cast<int>(x->ne[1]));
  ggml_tensor* args[] = {x};
  return ggml_custom_4d(context, GGML_TYPE_I8, static_cast<std::int64_t>(bytes), 1, 1, 1, args, 1,
                        round_to_int8, GGML_N_TASKS_MAX, nullptr);
}

/// Fewer tokens than this are multiplied faster without a panel.
int least_tokens(ProductKernel kernel, WeightFormat format) {
  switch (kernel) {
    case ProductKernel::kInt8:
      return int8_panel_least_tokens(format);
    case ProductKernel::kBf16:
      return bf16_matmul_least_tokens(format);
    default:
      return kFloatMatmulLeastTokens;
  }
}

}  // namespace

/// x as the kernel's panels take it.
ggml_tensor* NativeProducts::rounded(ggml_context* context, ggml_tensor* x, ProductKernel kernel) {
  if (kernel != ProductKernel::kInt8 && kernel != ProductKernel::kBf16) return x;
  Rounded& last = last_[kernel == ProductKernel::kInt8 ? 0 : 1];
  if (x != last.from) {
    last = {x, kernel == ProductKernel::kInt8 ? int8_of(context, x) : ggml_cast(context, x, GGML_TYPE_BF16)};
  }
  return last.to;
}

/// The kernel for such a product, or none: then ggml's is the better one.
std::optional<ProductKernel> NativeProducts::choose(const ggml_tensor* weight, std::int64_t tokens) const {
  if (!multiplies_natively(gemm_, weight->type) || weight->ne[0] % 32 != 0) return std::nullopt;
  const WeightFormat format = weight_format(weight->type);
  const auto columns = static_cast<int>(weight->ne[0]);
  const ProductKernel kernel =
      kernel_.value_or(gemm_ == Gemm::kBf16 ? ProductKernel::kBf16 : best_product_kernel(format, columns));
  if (tokens >= least_tokens(kernel, format)) return kernel;
  if (int8_matmul_supported(format, columns)) return ProductKernel::kInt8Dots;
  // Measured beside BF16 panels only.
  if (half_dots_supported(format) && bf16_matmul_supported()) return ProductKernel::kHalfDots;
  return std::nullopt;
}

ggml_tensor* NativeProducts::product(ggml_context* context, ggml_tensor* weight, ggml_tensor* x) {
  const std::int64_t in = weight->ne[0], out = weight->ne[1], tokens = x->ne[1];
  const std::optional<ProductKernel> kernel = choose(weight, tokens);
  if (!kernel || !ggml_is_contiguous(weight) || !in_plain_memory(weight)) return nullptr;
  if (x->type != GGML_TYPE_F32 || !ggml_is_contiguous(x)) return nullptr;  // read as rows of floats

  const WeightMatrix matrix{static_cast<const std::byte*>(weight->data),
                            weight->nb[1],
                            static_cast<int>(out),
                            static_cast<int>(in),
                            weight_format(weight->type),
                            ggml_get_type_traits(weight->type)->to_float};
  auto task = std::make_shared<Task>(Task{matrix, *kernel, shares_});
  tasks_.push_back(task);
  ggml_tensor* args[] = {rounded(context, x, *kernel)};
  return ggml_custom_4d(context, GGML_TYPE_F32, out, tokens, 1, 1, args, 1, compute, GGML_N_TASKS_MAX,
                        task.get());
}

/// Panels, or as many rows as a cache line of one token's output has.
int NativeProducts::Task::unit_rows() const {
  const bool dots = kernel == ProductKernel::kInt8Dots || kernel == ProductKernel::kHalfDots;
  return dots ? 16 : kPanelRows;
}

void NativeProducts::Task::multiply(const ggml_tensor* x, ggml_tensor* out, int thread, int threads) {
  const auto tokens = static_cast<int>(out->ne[1]);
  thread_local PanelScratch memory;
  void* scratch = memory.at_least(scratch_bytes(tokens));
  if (kernel == ProductKernel::kInt8Dots) {
    int8_matmul_round(weights.format, static_cast<const float*>(x->data), weights.columns, tokens, scratch);
  }
  shares.share(thread, threads, weights.rows, unit_rows(),
               [&](int first, int rows) { multiply_rows(first, rows, x->data, out, scratch); });
}

void NativeProducts::Task::multiply_rows(int first, int rows, const void* x, ggml_tensor* out,
                                         void* scratch) const {
  const auto tokens = static_cast<int>(out->ne[1]);
  auto* to = static_cast<float*>(out->data);
  const auto stride = static_cast<std::size_t>(out->ne[0]);
  const auto* floats = static_cast<const float*>(x);
  switch (kernel) {
    case ProductKernel::kInt8:
      return int8_matmul_panel(weights, first, rows, x, tokens, to, stride, scratch);
    case ProductKernel::kBf16:
      return bf16_matmul_panel(weights, first, rows, static_cast<const std::uint16_t*>(x), tokens, to, stride,
                               scratch);
    case ProductKernel::kFloat:
      return float_matmul_panel(weights, first, rows, floats, tokens, to, stride, scratch);
    case ProductKernel::kInt8Dots:
      return int8_matmul_rows(weights, first, rows, tokens, to, stride, scratch);
    case ProductKernel::kHalfDots:
      return half_dots(weights, first, rows, floats, tokens, to, stride);
  }
}

std::size_t NativeProducts::Task::scratch_bytes(int tokens) const {
  switch (kernel) {
    case ProductKernel::kInt8:
      return int8_panel_scratch_bytes();
    case ProductKernel::kBf16:
      return bf16_matmul_scratch_bytes();
    case ProductKernel::kFloat:
      return float_matmul_scratch_bytes();
    case ProductKernel::kHalfDots:
      return 0;
    default:
      return int8_matmul_scratch_bytes(weights.columns, tokens);
  }
}

void NativeProducts::compute(ggml_tensor* out, int thread, int threads, void* data) {
  static_cast<Task*>(data)->multiply(out->src[0], out, thread, threads);
}

}  // namespace keynest
