// Native products beside ggml's own on every common weight type: no further from the exact product, and the
// same when a graph is computed again.
#include "model/products.h"

#include <ggml-backend.h>
#include <ggml-cpu.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <optional>
#include <random>
#include <vector>

#include "kernels/numbers.h"

namespace keynest::test {
namespace {

constexpr int kIn = 512, kOut = 200;

class ProductTypes : public testing::TestWithParam<ggml_type> {};

std::vector<float> numbers(std::size_t count, float size, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, size);
  std::vector<float> all(count);
  for (float& value : all) value = normal(random);
  return all;
}

double rms_error(const std::vector<float>& got, const std::vector<double>& exact) {
  double sum = 0;
  for (std::size_t i = 0; i < got.size(); ++i) sum += (got[i] - exact[i]) * (got[i] - exact[i]);
  return std::sqrt(sum / static_cast<double>(got.size()));
}

/// Root mean squares of the errors of native products and of ggml's; none when products of so few tokens are
/// left to ggml.
struct Errors {
  double ours, theirs;
};

std::optional<Errors> errors_of(ggml_type type, int tokens, Gemm gemm = Gemm::kNative) {
  const std::unique_ptr<ggml_backend, decltype(&ggml_backend_free)> backend(ggml_backend_cpu_init(),
                                                                            ggml_backend_free);
  ggml_backend_cpu_set_n_threads(backend.get(), 2);
  const ggml_init_params params{ggml_tensor_overhead() * 64 + ggml_graph_overhead(), nullptr, true};
  const std::unique_ptr<ggml_context, decltype(&ggml_free)> weights_context(ggml_init(params), ggml_free);
  const std::unique_ptr<ggml_context, decltype(&ggml_free)> context(ggml_init(params), ggml_free);
  ggml_tensor* weight = ggml_new_tensor_2d(weights_context.get(), type, kIn, kOut);
  const std::unique_ptr<ggml_backend_buffer, decltype(&ggml_backend_buffer_free)> weight_memory(
      ggml_backend_alloc_ctx_tensors(weights_context.get(), backend.get()), ggml_backend_buffer_free);
  const std::vector<float> source = numbers(kIn * kOut, 0.05f, 1),
                           activations = numbers(kIn * tokens, 1.0f, 2);
  std::vector<std::uint8_t> stored(ggml_nbytes(weight));
  ggml_quantize_chunk(type, source.data(), stored.data(), 0, kOut, kIn, nullptr);
  ggml_backend_tensor_set(weight, stored.data(), 0, stored.size());

  ggml_tensor* x = ggml_new_tensor_2d(context.get(), GGML_TYPE_F32, kIn, tokens);
  NativeProducts products(gemm);
  ggml_tensor* native = products.product(context.get(), weight, x);
  if (native == nullptr) return std::nullopt;
  ggml_tensor* plain = ggml_mul_mat(context.get(), weight, x);
  ggml_cgraph* graph = ggml_new_graph(context.get());
  ggml_build_forward_expand(graph, native);
  ggml_build_forward_expand(graph, plain);
  const std::unique_ptr<ggml_backend_buffer, decltype(&ggml_backend_buffer_free)> memory(
      ggml_backend_alloc_ctx_tensors(context.get(), backend.get()), ggml_backend_buffer_free);
  ggml_backend_tensor_set(x, activations.data(), 0, ggml_nbytes(x));

  std::vector<float> first(kOut * tokens), again(kOut * tokens), ggml(kOut * tokens);
  EXPECT_EQ(ggml_backend_graph_compute(backend.get(), graph), GGML_STATUS_SUCCESS);
  ggml_backend_tensor_get(native, first.data(), 0, ggml_nbytes(native));
  ggml_backend_tensor_memset(native, 0, 0, ggml_nbytes(native));
  EXPECT_EQ(ggml_backend_graph_compute(backend.get(), graph), GGML_STATUS_SUCCESS);
  ggml_backend_tensor_get(native, again.data(), 0, ggml_nbytes(native));
  ggml_backend_tensor_get(plain, ggml.data(), 0, ggml_nbytes(plain));
  EXPECT_EQ(first, again);

  std::vector<float> row(kIn);
  std::vector<double> exact(kOut * tokens);
  for (int out = 0; out < kOut; ++out) {
    ggml_get_type_traits(type)->to_float(stored.data() + static_cast<std::size_t>(out) * weight->nb[1],
                                         row.data(), kIn);
    for (int token = 0; token < tokens; ++token) {
      double sum = 0;
      for (int in = 0; in < kIn; ++in) sum += double{row[in]} * activations[token * kIn + in];
      exact[token * kOut + out] = sum;
    }
  }
  return Errors{rms_error(first, exact), rms_error(ggml, exact)};
}

TEST_P(ProductTypes, NoFurtherFromExactThanGgml) {
  const ggml_type type = GetParam();
  const auto errors = errors_of(type, 70);
  ASSERT_TRUE(errors);
  EXPECT_GT(errors->ours, 0);
  // ggml rounds activations to 8 bits for quantised weights, to the weights' own precision for the others.
  if (type == GGML_TYPE_F16) {
    EXPECT_LE(errors->ours, 5e-3);  // ggml multiplies these in F32
  } else {
    EXPECT_LE(errors->ours, 1.01 * errors->theirs + 1e-6);
  }
}

TEST_P(ProductTypes, InBf16NearerToExactThanIn8Bits) {
  const ggml_type type = GetParam();
  if (!bf16_matmul_supported() || !int8_matmul_supported(weight_format(type), kIn)) GTEST_SKIP();
  const auto bf16 = errors_of(type, 70, Gemm::kBf16), int8 = errors_of(type, 70);
  ASSERT_TRUE(bf16 && int8);
  EXPECT_LT(bf16->ours, 0.7 * int8->ours);
}

TEST_P(ProductTypes, FewTokensNoFurtherFromExactThanGgml) {
  const ggml_type type = GetParam();
  const WeightFormat format = weight_format(type);
  for (const int tokens : {1, 2, 3, 4, 5, 7, 11}) {
    const auto errors = errors_of(type, tokens);
    EXPECT_EQ(errors.has_value(), int8_matmul_supported(format, kIn) || bf16_matmul_supported())
        << tokens << " tokens";
    // ggml multiplies blocks with these in F32.
    if (!errors || (type == GGML_TYPE_F16 && tokens >= bf16_matmul_least_tokens(format))) continue;
    EXPECT_GT(errors->ours, 0);
    EXPECT_LE(errors->ours, 1.02 * errors->theirs) << tokens << " tokens";  // few numbers, so some chance
  }
}

/// Tokens that are one 1 among zeros read the panel out, weight by weight.
TEST_P(ProductTypes, PanelsHoldTheBitsOfTheConversionToFloat) {
  if (!bf16_matmul_supported()) GTEST_SKIP() << "this CPU has no AVX-512 BF16";
  constexpr int kColumns = 1280;  // a panel is 1024 columns deep: the rest of it is a second one
  const ggml_type type = GetParam();
  const std::vector<float> source = numbers(kColumns * kOut, 0.05f, 3);
  std::vector<std::byte> stored(ggml_row_size(type, kColumns) * kOut);
  ggml_quantize_chunk(type, source.data(), stored.data(), 0, kOut, kColumns, nullptr);
  WeightMatrix weights{stored.data(), ggml_row_size(type, kColumns), kOut,
                       kColumns,      weight_format(type),           nullptr};
  ASSERT_NE(weights.format, WeightFormat::kOther);

  std::vector<std::uint16_t> ones(kColumns * kColumns);
  for (int i = 0; i < kColumns; ++i) ones[i * kColumns + i] = 0x3f80;
  std::vector<float> out(kColumns * kOut);
  const std::size_t bytes = bf16_matmul_scratch_bytes();
  const std::unique_ptr<void, decltype(&std::free)> scratch(std::aligned_alloc(64, (bytes + 63) / 64 * 64),
                                                            std::free);
  for (int row = 0; row < kOut; row += kPanelRows) {
    bf16_matmul_panel(weights, row, std::min(kPanelRows, kOut - row), ones.data(), kColumns, out.data(), kOut,
                      scratch.get());
  }
  std::vector<float> row(kColumns);
  for (int i = 0; i < kOut; ++i) {
    ggml_get_type_traits(type)->to_float(stored.data() + i * weights.row_bytes, row.data(), kColumns);
    for (int column = 0; column < kColumns; ++column) {
      ASSERT_EQ(out[column * kOut + i], from_bf16(to_bf16(row[column])))
          << "row " << i << ", column " << column;
    }
  }
}

/// The same of panels in 8 bits: a 1 is rounded to 127 of 127ths of itself.
TEST_P(ProductTypes, PanelsOfBytesHoldTheWeights) {
  constexpr int kColumns = 1280;  // two panels and a half
  const ggml_type type = GetParam();
  const WeightFormat format = weight_format(type);
  if (!int8_matmul_supported(format, kColumns)) GTEST_SKIP() << "not for this type, or no AVX-512 VNNI";
  const std::vector<float> source = numbers(kColumns * kOut, 0.05f, 3);
  std::vector<std::byte> stored(ggml_row_size(type, kColumns) * kOut);
  ggml_quantize_chunk(type, source.data(), stored.data(), 0, kOut, kColumns, nullptr);
  const WeightMatrix weights{stored.data(), ggml_row_size(type, kColumns), kOut, kColumns, format, nullptr};

  std::vector<float> ones(kColumns * kColumns), out(kColumns * kOut);
  for (int i = 0; i < kColumns; ++i) ones[i * kColumns + i] = 1;
  const auto memory = [](std::size_t bytes) {
    return std::unique_ptr<void, decltype(&std::free)>(std::aligned_alloc(64, (bytes + 63) / 64 * 64),
                                                       std::free);
  };
  const auto rounded = memory(int8_panel_rounded_bytes(kColumns, kColumns)),
             scratch = memory(int8_panel_scratch_bytes());
  int8_panel_round(ones.data(), kColumns, kColumns, 0, 2, rounded.get());
  int8_panel_round(ones.data(), kColumns, kColumns, 1, 2, rounded.get());
  for (int row = 0; row < kOut; row += kPanelRows) {
    int8_matmul_panel(weights, row, std::min(kPanelRows, kOut - row), rounded.get(), kColumns, out.data(),
                      kOut, scratch.get());
  }
  std::vector<float> row(kColumns);
  for (int i = 0; i < kOut; ++i) {
    ggml_get_type_traits(type)->to_float(stored.data() + i * weights.row_bytes, row.data(), kColumns);
    for (int column = 0; column < kColumns; ++column) {
      // Minima are taken off 127 times what they are taken off from: a few units in the last place of both.
      ASSERT_NEAR(out[column * kOut + i], row[column], 1e-7f) << "row " << i << ", column " << column;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, ProductTypes,
                         testing::Values(GGML_TYPE_Q4_0, GGML_TYPE_Q4_1, GGML_TYPE_Q5_0, GGML_TYPE_Q5_1,
                                         GGML_TYPE_Q8_0, GGML_TYPE_Q4_K, GGML_TYPE_Q5_K, GGML_TYPE_Q6_K,
                                         GGML_TYPE_IQ4_NL, GGML_TYPE_F16, GGML_TYPE_BF16),
                         [](const auto& info) { return std::string(ggml_type_name(info.param)); });

TEST(Products, AutoTakesTheTypesThatWereMeasured) {
  EXPECT_FALSE(multiplies_natively(Gemm::kGgml, GGML_TYPE_Q5_0));
  EXPECT_TRUE(multiplies_natively(Gemm::kNative, GGML_TYPE_Q5_0));
  EXPECT_TRUE(multiplies_natively(Gemm::kNative, GGML_TYPE_IQ3_S));
  EXPECT_FALSE(multiplies_natively(Gemm::kAuto, GGML_TYPE_IQ3_S));
  const bool int8 = best_product_kernel(WeightFormat::kQ4_K, 256) == ProductKernel::kInt8,
             amx = ggml_cpu_has_amx_int8() != 0;
  EXPECT_EQ(multiplies_natively(Gemm::kAuto, GGML_TYPE_Q4_K), int8 && !amx);
  EXPECT_EQ(multiplies_natively(Gemm::kAuto, GGML_TYPE_Q4_0), int8 && !amx);
  EXPECT_TRUE(multiplies_natively(Gemm::kNative, GGML_TYPE_Q4_0));
  EXPECT_TRUE(multiplies_natively(Gemm::kBf16, GGML_TYPE_Q4_0));
  EXPECT_EQ(multiplies_natively(Gemm::kAuto, GGML_TYPE_Q5_0),
            !amx && (int8 || float_matmul_preferred(WeightFormat::kQ5_0)));
  EXPECT_EQ(multiplies_natively(Gemm::kAuto, GGML_TYPE_F16),
            !amx && (bf16_matmul_supported() || float_matmul_preferred(WeightFormat::kF16)));
}

TEST(Products, OneTokenOfOtherTypesStaysWithGgmlAndManyDoNot) {
  const ggml_init_params params{ggml_tensor_overhead() * 8, nullptr, true};
  const std::unique_ptr<ggml_context, decltype(&ggml_free)> weights_context(ggml_init(params), ggml_free);
  const std::unique_ptr<ggml_context, decltype(&ggml_free)> context(ggml_init(params), ggml_free);
  ggml_tensor* weight = ggml_new_tensor_2d(weights_context.get(), GGML_TYPE_IQ3_S, 256, 64);
  const std::unique_ptr<ggml_backend_buffer, decltype(&ggml_backend_buffer_free)> memory(
      ggml_backend_alloc_ctx_tensors_from_buft(weights_context.get(), ggml_backend_cpu_buffer_type()),
      ggml_backend_buffer_free);
  NativeProducts products(Gemm::kNative);
  ggml_tensor* one = ggml_new_tensor_2d(context.get(), GGML_TYPE_F32, 256, 1);
  ggml_tensor* many = ggml_new_tensor_2d(context.get(), GGML_TYPE_F32, 256, 70);
  ggml_tensor* part = ggml_view_2d(context.get(), many, 128, 70, many->nb[1], 0);
  EXPECT_EQ(products.product(context.get(), weight, one), nullptr);
  EXPECT_NE(products.product(context.get(), weight, many), nullptr);
  EXPECT_EQ(products.product(context.get(), weight, part), nullptr);
}

}  // namespace
}  // namespace keynest::test
