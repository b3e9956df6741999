// Panels of weights as floats, multiplied in F32, for CPUs without BF16 products.
#include "kernels/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/matmul_float.cc"
#include <algorithm>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/convert-inl.h"
#include "kernels/matmul.h"

HWY_BEFORE_NAMESPACE();
namespace keynest {
namespace HWY_NAMESPACE {
namespace {

// A tile's sums stay in registers: of 32 with AVX-512 and NEON, of 16 elsewhere.
constexpr bool kManyRegisters = HWY_TARGET <= HWY_AVX3 || HWY_TARGET == HWY_NEON;
constexpr int kTileRows = 4;
constexpr int kTileTokens = kManyRegisters ? 6 : 3;

/// out[token, row] (+)= x[token, columns] * weights[row, columns]; strides in numbers.
template <int kTokens>
HWY_NOINLINE void multiply(const float* HWY_RESTRICT weights, std::size_t weight_stride,
                           const float* HWY_RESTRICT x, std::size_t x_stride, int columns, bool add,
                           float* HWY_RESTRICT out, std::size_t out_stride) {
  const hn::ScalableTag<float> d;
  hn::Vec<decltype(d)> sums[kTokens][kTileRows];
  for (auto& of_token : sums) {
    for (auto& sum : of_token) sum = hn::Zero(d);
  }
  const auto lanes = static_cast<int>(hn::Lanes(d));
  for (int i = 0; i < columns; i += lanes) {
    hn::Vec<decltype(d)> w[kTileRows];
    for (std::size_t r = 0; r < kTileRows; ++r) w[r] = hn::LoadU(d, weights + r * weight_stride + i);
    HWY_UNROLL(6)
    for (std::size_t t = 0; t < kTokens; ++t) {
      const auto both = hn::LoadU(d, x + t * x_stride + i);
      for (std::size_t r = 0; r < kTileRows; ++r) sums[t][r] = hn::MulAdd(w[r], both, sums[t][r]);
    }
  }
  for (std::size_t t = 0; t < kTokens; ++t) {
    for (std::size_t r = 0; r < kTileRows; ++r) {
      float& to = out[t * out_stride + r];
      to = (add ? to : 0.0f) + hn::GetLane(hn::SumOfLanes(d, sums[t][r]));
    }
  }
}

/// As multiply(), for any number of rows up to kTileRows and of tokens up to kTokens.
template <int kTokens>
void tile(int tokens, int rows, const float* weights, std::size_t weight_stride, const float* x,
          std::size_t x_stride, int columns, bool add, float* out, std::size_t out_stride) {
  if constexpr (kTokens > 1) {
    if (tokens < kTokens) {
      return tile<kTokens - 1>(tokens, rows, weights, weight_stride, x, x_stride, columns, add, out,
                               out_stride);
    }
  }
  if (rows == kTileRows) {
    return multiply<kTokens>(weights, weight_stride, x, x_stride, columns, add, out, out_stride);
  }
  float sums[kTokens * kTileRows];
  multiply<kTokens>(weights, weight_stride, x, x_stride, columns, false, sums, kTileRows);
  for (std::size_t t = 0; t < kTokens; ++t) {
    for (std::size_t r = 0; r < static_cast<std::size_t>(rows); ++r) {
      float& to = out[t * out_stride + r];
      to = (add ? to : 0.0f) + sums[t * kTileRows + r];
    }
  }
}

void multiply_panel(const float* panel, int rows, const float* x, std::size_t x_stride, int columns,
                    int tokens, bool add, float* out, std::size_t out_stride) {
  for (int token = 0; token < tokens; token += kTileTokens) {
    for (int row = 0; row < rows; row += kTileRows) {
      tile<kTileTokens>(std::min(kTileTokens, tokens - token), std::min(kTileRows, rows - row),
                        panel + static_cast<std::size_t>(row) * kPanelDepth, kPanelDepth,
                        x + static_cast<std::size_t>(token) * x_stride, x_stride, columns, add,
                        out + static_cast<std::size_t>(token) * out_stride + row, out_stride);
    }
  }
}

/// Columns [column, column + columns) of the rows of a panel as floats.
void unpack_panel(const WeightMatrix& w, int first_row, int rows, int column, int columns, float* panel) {
  if (w.format != WeightFormat::kF16)
    return convert_rows(w, first_row, rows, column, columns, panel, kPanelDepth);
  // The one conversion that takes instructions `to_float` may have been compiled without.
  for (int i = 0; i < rows; ++i) {
    const auto* row = reinterpret_cast<const hwy::float16_t*>(
        w.data + static_cast<std::size_t>(first_row + i) * w.row_bytes);
    half_to_f32(row + column, static_cast<std::size_t>(columns),
                panel + static_cast<std::size_t>(i) * kPanelDepth);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace keynest
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace keynest {

HWY_EXPORT(unpack_panel);
HWY_EXPORT(multiply_panel);

bool float_matmul_preferred(WeightFormat format) {
  // For Q4_0 and IQ4_NL ggml rearranges weights, for K formats it has tiled kernels.
  if ((hwy::SupportedTargets() & (HWY_AVX2 | HWY_AVX3)) == 0) return false;
  return format == WeightFormat::kQ4_1 || format == WeightFormat::kQ5_0 || format == WeightFormat::kQ5_1 ||
         format == WeightFormat::kQ8_0 || format == WeightFormat::kF16 || format == WeightFormat::kBF16;
}

std::size_t float_matmul_scratch_bytes() { return sizeof(float) * kPanelRows * kPanelDepth; }

void float_matmul_panel(const WeightMatrix& weights, int first_row, int rows, const float* activations,
                        int tokens, float* out, std::size_t out_stride, void* scratch) {
  auto* panel = static_cast<float*>(scratch);
  // Rows that are not there are multiplied too, and thrown away.
  std::fill_n(panel + static_cast<std::size_t>(rows) * kPanelDepth,
              static_cast<std::size_t>(kPanelRows - rows) * kPanelDepth, 0.0f);
  for (int column = 0; column < weights.columns; column += kPanelDepth) {
    const int columns = std::min(kPanelDepth, weights.columns - column);
    HWY_DYNAMIC_DISPATCH(unpack_panel)(weights, first_row, rows, column, columns, panel);
    HWY_DYNAMIC_DISPATCH(multiply_panel)
    (panel, rows, activations + column, static_cast<std::size_t>(weights.columns), columns, tokens,
     column > 0, out + first_row, out_stride);
  }
}

}  // namespace keynest
#endif  // HWY_ONCE
