// What keys are turned by when their position changes, against rotary embedding itself.
#include "model/rope.h"

#include <ggml-cpu.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <vector>

namespace keynest::test {
namespace {

constexpr int kDim = 32;

/// A vector [kDim] after rope at `position`, by ggml.
std::vector<float> roped(const RopeSettings& settings, const std::vector<float>& factors, int position) {
  const std::unique_ptr<ggml_context, void (*)(ggml_context*)> context(ggml_init({1 << 20, nullptr, false}),
                                                                       ggml_free);
  ggml_tensor* x = ggml_new_tensor_3d(context.get(), GGML_TYPE_F32, kDim, 1, 1);
  ggml_tensor* at = ggml_new_tensor_1d(context.get(), GGML_TYPE_I32, 1);
  ggml_tensor* divisors = nullptr;
  if (!factors.empty()) {
    divisors = ggml_new_tensor_1d(context.get(), GGML_TYPE_F32, kDim / 2);
    std::copy(factors.begin(), factors.end(), static_cast<float*>(divisors->data));
  }
  ggml_set_i32(at, position);
  for (int i = 0; i < kDim; ++i) static_cast<float*>(x->data)[i] = std::cos(static_cast<float>(i * i));
  ggml_tensor* out = apply_rope(context.get(), x, at, settings, divisors);
  ggml_cgraph* graph = ggml_new_graph(context.get());
  ggml_build_forward_expand(graph, out);
  ggml_graph_compute_with_ctx(context.get(), graph, 1);
  const auto* data = static_cast<const float*>(out->data);
  return {data, data + kDim};
}

RopeRotation rotation_with(const RopeSettings& settings, std::vector<float> factors) {
  const std::unique_ptr<ggml_context, void (*)(ggml_context*)> context(ggml_init({1 << 16, nullptr, true}),
                                                                       ggml_free);
  ggml_tensor* divisors = nullptr;
  if (!factors.empty()) {
    divisors = ggml_new_tensor_1d(context.get(), GGML_TYPE_F32, kDim / 2);
    divisors->data = factors.data();
  }
  return rotation_of(settings, divisors);
}

std::vector<RopeSettings> settings_of_all_kinds() {
  RopeSettings plain;
  plain.dimensions = kDim;
  plain.original_context = 256;
  RopeSettings linear = plain;
  linear.scale = 0.25f;
  RopeSettings yarn = linear;
  yarn.ext_factor = 1.0f;
  yarn.attn_factor = 0.9f;
  RopeSettings other_base = plain;
  other_base.base = 1000000.0f;
  std::vector<RopeSettings> all;
  for (RopeSettings settings : {plain, linear, yarn, other_base}) {
    for (const int mode : {GGML_ROPE_TYPE_NORMAL, GGML_ROPE_TYPE_NEOX}) {
      settings.mode = mode;
      all.push_back(settings);
    }
  }
  return all;
}

TEST(Rope, TurningAKeyEqualsRotatingItElsewhere) {
  std::vector<float> factors;
  for (int i = 0; i < kDim / 2; ++i) factors.push_back(1.0f + 0.5f * static_cast<float>(i));
  for (const RopeSettings& settings : settings_of_all_kinds()) {
    for (const std::vector<float>& divisors : {std::vector<float>{}, factors}) {
      const RopeRotation rotation = rotation_with(settings, divisors);
      ASSERT_EQ(rotation.frequencies.size(), static_cast<std::size_t>(kDim / 2));
      EXPECT_EQ(rotation.adjacent_pairs, settings.mode == GGML_ROPE_TYPE_NORMAL);
      const std::vector<float> from = roped(settings, divisors, 700), to = roped(settings, divisors, 123);
      for (std::size_t i = 0; i < kDim / 2; ++i) {
        const std::size_t a = rotation.adjacent_pairs ? 2 * i : i;
        const std::size_t b = rotation.adjacent_pairs ? 2 * i + 1 : i + kDim / 2;
        const double angle = static_cast<double>(rotation.frequencies[i]) * (123 - 700);
        // ggml computes angles in float: up to 700 radians, off by some 1e-5.
        EXPECT_NEAR(from[a] * std::cos(angle) - from[b] * std::sin(angle), to[a], 2e-4) << i;
        EXPECT_NEAR(from[a] * std::sin(angle) + from[b] * std::cos(angle), to[b], 2e-4) << i;
      }
    }
  }
}

}  // namespace
}  // namespace keynest::test
