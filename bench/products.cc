// Products of blocks of tokens with weights: keynest's own beside ggml's, as stored and rearranged, for every
// common weight type on the shapes of a 0.5B model. The three take turns; rates are medians.
#include "model/products.h"

#include <ggml-backend.h>
#include <ggml-cpu.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "kernels/simd_targets.h"

namespace keynest::bench {
namespace {

constexpr std::size_t kWeightBytes = 40u << 20;  // of all copies of a matrix: more than caches keep

struct Shape {
  int in, out, in_layer;  // how many a layer has
};
constexpr Shape kShapes[] = {{896, 4864, 2}, {4864, 896, 1}, {896, 896, 2}, {896, 128, 2}};

struct Flags {
  std::vector<std::string> types;
  std::vector<int> tokens{64, 128, 256};
  int threads = 1, rounds = 7;
  bool shapes = false, avx2 = false;
  std::optional<ProductKernel> kernel;
};

template <auto kFree>
struct Freer {
  template <class T>
  void operator()(T* pointer) const {
    kFree(pointer);
  }
};
using Context = std::unique_ptr<ggml_context, Freer<ggml_free>>;
using Buffer = std::unique_ptr<ggml_backend_buffer, Freer<ggml_backend_buffer_free>>;

Context new_context(std::size_t tensors) {
  return Context(ggml_init(
      {ggml_tensor_overhead() * tensors + ggml_graph_overhead_custom(tensors, false), nullptr, true}));
}

/// ggml's memory for rearranged weights, or null.
ggml_backend_buffer_type_t rearranged_memory() {
  ggml_backend_dev_t device = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
  auto get = reinterpret_cast<ggml_backend_dev_get_extra_bufts_t>(ggml_backend_reg_get_proc_address(
      ggml_backend_dev_backend_reg(device), "ggml_backend_dev_get_extra_bufts"));
  ggml_backend_buffer_type_t* types = get == nullptr ? nullptr : get(device);
  return types == nullptr ? nullptr : *types;
}

/// Many copies of one matrix, so that each is read from memory as in a model.
class Matrices {
 public:
  Matrices(ggml_type type, Shape shape, ggml_backend_buffer_type_t memory) {
    const std::size_t bytes = ggml_row_size(type, shape.in) * static_cast<std::size_t>(shape.out);
    const std::size_t count = std::max<std::size_t>(4, kWeightBytes / bytes);
    context_ = new_context(count);
    for (std::size_t i = 0; i < count; ++i)
      all_.push_back(ggml_new_tensor_2d(context_.get(), type, shape.in, shape.out));
    buffer_.reset(ggml_backend_alloc_ctx_tensors_from_buft(context_.get(), memory));
    const std::vector<std::byte> stored = random_weights(type, shape, bytes);
    for (ggml_tensor* tensor : all_) ggml_backend_tensor_set(tensor, stored.data(), 0, bytes);
  }
  const std::vector<ggml_tensor*>& all() const { return all_; }

 private:
  static std::vector<std::byte> random_weights(ggml_type type, Shape shape, std::size_t bytes) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal(0.0f, 0.05f);
    std::vector<float> numbers(static_cast<std::size_t>(shape.in) * static_cast<std::size_t>(shape.out));
    for (float& number : numbers) number = normal(random);
    std::vector<std::byte> stored(bytes);
    ggml_quantize_chunk(type, numbers.data(), stored.data(), 0, shape.out, shape.in, nullptr);
    return stored;
  }

  Context context_;
  Buffer buffer_;
  std::vector<ggml_tensor*> all_;
};

enum class Kernel { kNative, kGgml, kRearranged };

/// All products of one block with the matrices, which two by two share their activations.
class Products {
 public:
  Products(ggml_type type, Shape shape, int tokens, const Flags& flags, Kernel kernel)
      : matrices_(type, shape,
                  kernel == Kernel::kRearranged ? rearranged_memory() : ggml_backend_cpu_buffer_type()),
        context_(new_context(3 * matrices_.all().size() + 8)),
        native_(Gemm::kNative, flags.kernel),
        x_(static_cast<std::size_t>(shape.in) * static_cast<std::size_t>(tokens), 0.5f),
        rounded_(static_cast<std::size_t>(shape.in) * static_cast<std::size_t>(std::max(tokens, 8)) / 8),
        out_(static_cast<std::size_t>(shape.out) * static_cast<std::size_t>(tokens)),
        flops_(2.0 * shape.in * shape.out * tokens * static_cast<double>(matrices_.all().size())) {
    ggml_tensor* inputs[2];
    for (ggml_tensor*& x : inputs) {
      x = ggml_new_tensor_2d(context_.get(), GGML_TYPE_F32, shape.in, tokens);
      x->data = x_.data();
    }
    graph_ = ggml_new_graph_custom(context_.get(), 3 * matrices_.all().size() + 8, false);
    complete_ = true;
    for (std::size_t i = 0; i < matrices_.all().size(); ++i)
      add(matrices_.all()[i], inputs[i / 2 % 2], kernel);
    for (int i = 0; i < ggml_graph_n_nodes(graph_); ++i) {
      ggml_tensor* node = ggml_graph_node(graph_, i);
      if (node->type == GGML_TYPE_F32)
        node->data = out_.data();
      else
        node->data = rounded_.data();
    }
    plan_ = ggml_graph_plan(graph_, flags.threads, nullptr);
    work_.resize(plan_.work_size);
    plan_.work_data = work_.data();
  }

  bool complete() const { return complete_; }

  /// Seconds of one run.
  double run() {
    const auto start = std::chrono::steady_clock::now();
    ggml_graph_compute(graph_, &plan_);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  double flops() const { return flops_; }

 private:
  void add(ggml_tensor* weight, ggml_tensor* x, Kernel kernel) {
    ggml_tensor* y = kernel == Kernel::kNative ? native_.product(context_.get(), weight, x)
                                               : ggml_mul_mat(context_.get(), weight, x);
    if (y == nullptr)
      complete_ = false;
    else
      ggml_build_forward_expand(graph_, y);
  }

  Matrices matrices_;
  Context context_;
  NativeProducts native_;
  std::vector<float> x_;
  struct alignas(64) Line {
    float numbers[16];
  };
  std::vector<Line> rounded_;
  std::vector<float> out_;
  double flops_;
  ggml_cgraph* graph_ = nullptr;
  ggml_cplan plan_{};
  std::vector<std::uint8_t> work_;
  bool complete_ = false;
};

bool ggml_rearranges(ggml_type type, Shape shape) {
  ggml_backend_buffer_type_t memory = rearranged_memory();
  if (memory == nullptr) return false;
  const Context context = new_context(8);
  const Buffer buffer(ggml_backend_buft_alloc_buffer(memory, 0));
  ggml_tensor* weight = ggml_new_tensor_2d(context.get(), type, shape.in, shape.out);
  ggml_tensor* product =
      ggml_mul_mat(context.get(), weight, ggml_new_tensor_2d(context.get(), GGML_TYPE_F32, shape.in, 512));
  weight->buffer = buffer.get();
  return ggml_backend_dev_supports_op(ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU), product);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

constexpr int kKernels = 3;

/// Seconds per floating-point operation, by kernel; empty: it has none here.
struct Costs {
  std::optional<double> of[kKernels];
};

Costs measure(ggml_type type, Shape shape, int tokens, const Flags& flags) {
  std::unique_ptr<Products> products[kKernels];
  std::vector<double> seconds[kKernels];
  for (int k = 0; k < kKernels; ++k) {
    const auto kernel = static_cast<Kernel>(k);
    if (kernel == Kernel::kRearranged && !ggml_rearranges(type, shape)) continue;
    auto made = std::make_unique<Products>(type, shape, tokens, flags, kernel);
    if (!made->complete()) continue;
    made->run();
    products[k] = std::move(made);
  }
  for (int round = 0; round < flags.rounds; ++round) {
    for (int k = 0; k < kKernels; ++k) {
      if (products[k]) seconds[k].push_back(products[k]->run());
    }
  }
  Costs costs;
  for (int k = 0; k < kKernels; ++k) {
    if (products[k]) costs.of[k] = median(seconds[k]) / products[k]->flops();
  }
  return costs;
}

void print_row(const char* type, const std::string& what, int tokens, const Costs& costs) {
  const auto rate = [&](int k) {
    char text[32] = "";
    if (costs.of[k]) std::snprintf(text, sizeof text, "%.0f", 1e-9 / *costs.of[k]);
    return std::string(text);
  };
  double best = *costs.of[1];
  if (costs.of[2]) best = std::min(best, *costs.of[2]);
  char ratio[32] = "";
  if (costs.of[0]) std::snprintf(ratio, sizeof ratio, "%.2f", best / *costs.of[0]);
  std::printf("| %s | %s | %d | %s | %s | %s | %s |\n", type, what.c_str(), tokens, rate(0).c_str(),
              rate(1).c_str(), rate(2).c_str(), ratio);
  std::fflush(stdout);
}

/// One row for all products of a layer; a kernel that lacks a shape is replaced by ggml's there.
void measure_type(ggml_type type, const Flags& flags) {
  for (const int tokens : flags.tokens) {
    double flops = 0, seconds[kKernels] = {};
    bool has[kKernels] = {};
    for (Shape shape : kShapes) {
      // Types of 256 weights to a block: 1024 columns instead of 896.
      const int block = static_cast<int>(ggml_blck_size(type));
      shape.in = (shape.in + block - 1) / block * block;
      const Costs costs = measure(type, shape, tokens, flags);
      if (flags.shapes) {
        print_row(ggml_type_name(type), std::to_string(shape.in) + " → " + std::to_string(shape.out), tokens,
                  costs);
      }
      const double work = 1.0 * shape.in * shape.out * shape.in_layer;
      flops += work;
      for (int k = 0; k < kKernels; ++k) {
        has[k] = has[k] || costs.of[k];
        seconds[k] += work * costs.of[k].value_or(*costs.of[1]);
      }
    }
    Costs layer;
    for (int k = 0; k < kKernels; ++k) {
      if (has[k]) layer.of[k] = seconds[k] / flops;
    }
    print_row(ggml_type_name(type), "layer", tokens, layer);
  }
}

std::vector<ggml_type> chosen_types(const std::vector<std::string>& names) {
  std::vector<ggml_type> types;
  for (const ggml_type type :
       {GGML_TYPE_Q4_0, GGML_TYPE_Q4_1, GGML_TYPE_Q5_0, GGML_TYPE_Q5_1, GGML_TYPE_Q8_0, GGML_TYPE_Q4_K,
        GGML_TYPE_Q5_K, GGML_TYPE_Q6_K, GGML_TYPE_IQ4_NL, GGML_TYPE_F16, GGML_TYPE_BF16}) {
    const bool named = std::find(names.begin(), names.end(), ggml_type_name(type)) != names.end();
    if (names.empty() || named) types.push_back(type);
  }
  return types;
}

int run(int argc, char** argv) {
  Flags flags;
  CLI::App app{"Products of blocks of tokens with weights, GFLOPS: keynest's own and ggml's"};
  app.add_option("--types", flags.types, "weight types, as q4_K,f16 (all)")->delimiter(',');
  app.add_option("--tokens", flags.tokens, "block sizes (64,128,256)")->delimiter(',');
  app.add_option("--threads", flags.threads, "threads (1)");
  app.add_option("--rounds", flags.rounds, "runs of each (7)");
  app.add_flag("--shapes", flags.shapes, "a row for every shape too");
  const std::map<std::string, ProductKernel> kernels{
      {"int8", ProductKernel::kInt8}, {"bf16", ProductKernel::kBf16}, {"float", ProductKernel::kFloat}};
  app.add_option("--kernel", flags.kernel, "of keynest (the CPU's best)")
      ->transform(CLI::CheckedTransformer(kernels));
  app.add_flag("--avx2", flags.avx2, "keynest on AVX2, to compare with a ggml built for that");
  CLI11_PARSE(app, argc, argv);
  if (flags.avx2) hwy::DisableTargets(HWY_AVX3 | HWY_AVX3_DL);
  ggml_log_set([](ggml_log_level, const char*, void*) {}, nullptr);  // a line for every matrix it rearranges
  std::printf("| type | product | tokens | keynest | ggml | ggml, rearranged | keynest ÷ best ggml |\n");
  std::printf("|---|---|---|---|---|---|---|\n");
  for (const ggml_type type : chosen_types(flags.types)) measure_type(type, flags);
  return 0;
}

}  // namespace
}  // namespace keynest::bench

int main(int argc, char** argv) { return keynest::bench::run(argc, argv); }
