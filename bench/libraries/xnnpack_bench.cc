// XNNPACK: BF16 weights in its own layout, and 4-bit weights with a BF16 scale for 32, multiplied as bytes.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <utility>

#include "harness.h"

// No package has the header of a version with these operators; the library's interface, as far as it is used.
extern "C" {
struct xnn_operator;
struct xnn_quantization_params {
  std::int32_t zero_point;
  float scale;
};
int xnn_initialize(const void* allocator);
int xnn_create_fully_connected_nc_bf16_f32(std::size_t in, std::size_t out, std::size_t in_stride,
                                           std::size_t out_stride, const void* weights, const float* bias,
                                           float least, float most, std::uint32_t flags, void* cache,
                                           xnn_operator** made);
int xnn_reshape_fully_connected_nc_bf16_f32(xnn_operator* op, std::size_t tokens, void* threads);
int xnn_setup_fully_connected_nc_bf16_f32(xnn_operator* op, const void* x, float* y);
int xnn_create_fully_connected_nc_qd8_f32_qb4w(std::size_t in, std::size_t out, std::size_t in_stride,
                                               std::size_t out_stride, std::size_t block,
                                               std::uint8_t zero_point, const std::uint16_t* scales,
                                               const void* weights, const float* bias, float least,
                                               float most, std::uint32_t flags, void* cache,
                                               xnn_operator** made);
int xnn_reshape_fully_connected_nc_qd8_f32_qb4w(xnn_operator* op, std::size_t tokens, std::size_t* workspace,
                                                void* threads);
int xnn_setup_fully_connected_nc_qd8_f32_qb4w(xnn_operator* op, const std::int8_t* x, float* y,
                                              void* workspace, const xnn_quantization_params* params);
int xnn_run_operator(xnn_operator* op, void* threads);
int xnn_delete_operator(xnn_operator* op);
}

namespace keynest::bench {
namespace {

constexpr float kNoLimit = std::numeric_limits<float>::infinity();
constexpr std::size_t kPadding = 256;  // XNNPACK may read past the end

struct Delete {
  void operator()(xnn_operator* op) const { xnn_delete_operator(op); }
};
using Operator = std::unique_ptr<xnn_operator, Delete>;
using Operators = std::vector<Operator>;

std::optional<Product> packed_bf16(const Weights& w, int copies, int tokens) {
  const auto k = static_cast<std::size_t>(w.k), n = static_cast<std::size_t>(w.n);
  const auto t = static_cast<std::size_t>(tokens);
  auto operators = std::make_shared<Operators>();
  for (int i = 0; i < copies; ++i) {
    xnn_operator* made = nullptr;
    if (xnn_create_fully_connected_nc_bf16_f32(k, n, k, n, w.stored.data(), nullptr, -kNoLimit, kNoLimit, 0,
                                               nullptr, &made) != 0) {
      return std::nullopt;
    }
    operators->emplace_back(made);
    if (xnn_reshape_fully_connected_nc_bf16_f32(made, t, nullptr) != 0) return std::nullopt;
  }
  auto rounded = std::make_shared<Aligned>(t * k * 2 + kPadding);
  const auto run = [=](int copy, const float* x, float* y) {
    to_bf16(x, rounded->as<std::uint16_t>(), t * k);
    xnn_operator* op = (*operators)[static_cast<std::size_t>(copy)].get();
    xnn_setup_fully_connected_nc_bf16_f32(op, rounded->as<void>(), y);
    xnn_run_operator(op, nullptr);
  };
  return Product{run, k * n * 2};
}

std::uint16_t bf16_bits(float value) {
  std::uint16_t bits;
  to_bf16(&value, &bits, 1);
  return bits;
}

/// Q4_0 in XNNPACK's form: neighbours in a byte [n, k / 2], scales [n, k / 32] in BF16 and positive. Q4_0's
/// scales are F16 and often negative, so this is not the file's matrix but one near to it: a group is turned
/// around, and its -8 becomes 7.
struct FourBits {
  std::vector<std::uint8_t> numbers;
  std::vector<std::uint16_t> scales;
  std::vector<float> values;

  explicit FourBits(const Weights& w) {
    const auto* at = reinterpret_cast<const std::uint8_t*>(w.stored.data());
    for (std::size_t i = 0; i < w.stored.size() / 18; ++i, at += 18) add_group(at);
  }

 private:
  void add_group(const std::uint8_t* at) {
    ggml_fp16_t half;
    std::memcpy(&half, at, sizeof half);
    const float scale = ggml_fp16_to_fp32(half);
    scales.push_back(bf16_bits(std::fabs(scale)));
    const float rounded = ggml_bf16_to_fp32(ggml_bf16_t{scales.back()});
    int pair = 0;
    for (int c = 0; c < 32; ++c) {
      const int stored = c < 16 ? at[2 + c] & 15 : at[2 + c - 16] >> 4;
      const int number = scale < 0 ? std::min(16 - stored, 15) : stored;
      values.push_back(rounded * static_cast<float>(number - 8));
      pair |= number << 4 * (c % 2);
      if (c % 2 == 1) numbers.push_back(static_cast<std::uint8_t>(std::exchange(pair, 0)));
    }
  }
};

/// A token's activations as bytes with one scale.
xnn_quantization_params to_bytes(const float* x, std::size_t count, std::int8_t* bytes) {
  float most = 1e-30f;
  for (std::size_t i = 0; i < count; ++i) most = std::max(most, std::fabs(x[i]));
  const float inverse = 127.0f / most;
  for (std::size_t i = 0; i < count; ++i) {
    // The last byte of a float around 1.5 * 2^23 is its whole number; so written, compilers vectorise it.
    bytes[i] = static_cast<std::int8_t>(std::bit_cast<std::int32_t>(x[i] * inverse + 12582912.0f));
  }
  return {0, most / 127.0f};
}

std::optional<Product> four_bits(const Weights& w, int copies, int tokens) {
  const auto k = static_cast<std::size_t>(w.k), n = static_cast<std::size_t>(w.n);
  const auto t = static_cast<std::size_t>(tokens);
  const FourBits stored(w);
  auto operators = std::make_shared<Operators>();
  std::size_t workspace = 0;
  for (int i = 0; i < copies; ++i) {
    xnn_operator* made = nullptr;
    if (xnn_create_fully_connected_nc_qd8_f32_qb4w(k, n, k, n, 32, 8, stored.scales.data(),
                                                   stored.numbers.data(), nullptr, -kNoLimit, kNoLimit, 0,
                                                   nullptr, &made) != 0) {
      return std::nullopt;
    }
    operators->emplace_back(made);
    if (xnn_reshape_fully_connected_nc_qd8_f32_qb4w(made, t, &workspace, nullptr) != 0) return std::nullopt;
  }
  auto bytes = std::make_shared<Aligned>(t * k + kPadding);
  auto room = std::make_shared<Aligned>(workspace + kPadding);
  auto params = std::make_shared<std::vector<xnn_quantization_params>>(t + 16);
  const auto run = [=](int copy, const float* x, float* y) {
    for (std::size_t i = 0; i < t; ++i) {
      (*params)[i] = to_bytes(x + i * k, k, bytes->as<std::int8_t>() + i * k);
    }
    std::fill(params->begin() + tokens, params->end(), (*params)[t - 1]);  // the last tile reads these
    xnn_operator* op = (*operators)[static_cast<std::size_t>(copy)].get();
    xnn_setup_fully_connected_nc_qd8_f32_qb4w(op, bytes->as<std::int8_t>(), y, room->as<void>(),
                                              params->data());
    xnn_run_operator(op, nullptr);
  };
  return Product{run, stored.numbers.size() + 2 * stored.scales.size() + 8 * n, stored.values};
}

}  // namespace
}  // namespace keynest::bench

int main(int argc, char** argv) {
  using namespace keynest::bench;
  if (xnn_initialize(nullptr) != 0) return 0;
  return run_candidates(
      argc, argv,
      {{"XNNPACK, packed", GGML_TYPE_BF16, packed_bf16}, {"XNNPACK qb4w", GGML_TYPE_Q4_0, four_bits}});
}
