#include "kernels_ggml.h"

#include <ggml-cpu.h>
#include <ggml.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

namespace keynest::bench {

struct GgmlAttention::State {
  ggml_context* context = nullptr;
  ggml_cgraph* graph = nullptr;
  ggml_cplan plan{};
  std::vector<std::uint8_t> work;
  ~State() { ggml_free(context); }
};

namespace {

void fill_normal(ggml_tensor* tensor) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (std::int64_t i = 0; i < ggml_nelements(tensor); ++i) {
    const float value = normal(random);
    if (tensor->type == GGML_TYPE_F16) static_cast<ggml_fp16_t*>(tensor->data)[i] = ggml_fp32_to_fp16(value);
    if (tensor->type == GGML_TYPE_F32) static_cast<float*>(tensor->data)[i] = value;
  }
}

/// mask [keys, tokens]: query t sees the keys up to its own, which is key keys - tokens + t.
void fill_mask(ggml_tensor* mask, int keys, int tokens) {
  auto* out = static_cast<ggml_fp16_t*>(mask->data);
  for (int t = 0; t < tokens; ++t) {
    for (int key = 0; key < keys; ++key) {
      const bool visible = key <= keys - tokens + t;
      *out++ = ggml_fp32_to_fp16(visible ? 0.0f : -std::numeric_limits<float>::infinity());
    }
  }
}

}  // namespace

GgmlAttention::GgmlAttention(int head_dim, int keys, int tokens, int group)
    : state_(std::make_unique<State>()) {
  const auto n = static_cast<std::size_t>(keys), d = static_cast<std::size_t>(head_dim);
  const auto rows = static_cast<std::size_t>(tokens) * static_cast<std::size_t>(group);
  const std::size_t bytes = n * d * 4 + rows * d * 8 + n * static_cast<std::size_t>(tokens) * 2 + (1u << 20);
  state_->context = ggml_init({bytes, nullptr, false});
  ggml_context* c = state_->context;
  ggml_tensor* q = ggml_new_tensor_3d(c, GGML_TYPE_F32, head_dim, tokens, group);
  ggml_tensor* k = ggml_new_tensor_3d(c, GGML_TYPE_F16, head_dim, keys, 1);
  ggml_tensor* v = ggml_new_tensor_3d(c, GGML_TYPE_F16, head_dim, keys, 1);
  ggml_tensor* mask = ggml_new_tensor_2d(c, GGML_TYPE_F16, keys, tokens);
  for (ggml_tensor* tensor : {q, k, v}) fill_normal(tensor);
  fill_mask(mask, keys, tokens);
  const float scale = 1.0f / std::sqrt(static_cast<float>(head_dim));
  ggml_tensor* out = ggml_flash_attn_ext(c, q, k, v, mask, scale, 0.0f, 0.0f);
  state_->graph = ggml_new_graph(c);
  ggml_build_forward_expand(state_->graph, out);
  state_->plan = ggml_graph_plan(state_->graph, 1, nullptr);
  state_->work.resize(state_->plan.work_size);
  state_->plan.work_data = state_->work.data();
}

GgmlAttention::~GgmlAttention() = default;

void GgmlAttention::run() { ggml_graph_compute(state_->graph, &state_->plan); }

}  // namespace keynest::bench
