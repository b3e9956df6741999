#include "kernels/half_dots.h"

#include "kernels/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/half_dots.cc"
#include <algorithm>

#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/convert-inl.h"

HWY_BEFORE_NAMESPACE();
namespace keynest {
namespace HWY_NAMESPACE {
namespace {

constexpr int kTileTokens = 4;
constexpr std::size_t kPrefetchBytes = 8192;
constexpr int kStep = 32;  // numbers; what columns are a multiple of
static_assert(kStep % (2 * kLanes) == 0);

/// One row with kTokens tokens: x [kTokens, x_stride].
template <int kTokens, class Half>
void dot(const Half* HWY_RESTRICT row, const float* HWY_RESTRICT x, std::size_t x_stride, int columns,
         float* HWY_RESTRICT out, std::size_t out_stride) {
  const FloatTag d;
  FloatVec sums[kTokens][2];  // two, since an addition waits for the one before
  for (auto& of_token : sums) of_token[0] = of_token[1] = hn::Zero(d);
  for (std::size_t i = 0; i < static_cast<std::size_t>(columns); i += kStep) {
    hwy::Prefetch(row + i + kPrefetchBytes / sizeof(Half));
    for (std::size_t j = i; j < i + kStep; j += 2 * kLanes) {
      const FloatVec first = load_half(d, row + j), second = load_half(d, row + j + kLanes);
      HWY_UNROLL(4)
      for (std::size_t t = 0; t < kTokens; ++t) {
        sums[t][0] = hn::MulAdd(first, hn::LoadU(d, x + t * x_stride + j), sums[t][0]);
        sums[t][1] = hn::MulAdd(second, hn::LoadU(d, x + t * x_stride + j + kLanes), sums[t][1]);
      }
    }
  }
  for (std::size_t t = 0; t < kTokens; ++t) {
    out[t * out_stride] = hn::GetLane(hn::SumOfLanes(d, hn::Add(sums[t][0], sums[t][1])));
  }
}

/// Rows with all tokens, kTokens at a time.
template <int kTokens, class Half>
void dots(const WeightMatrix& w, int first_row, int rows, const float* x, int tokens, float* out,
          std::size_t out_stride) {
  if constexpr (kTokens > 1) {
    if (tokens < kTokens) return dots<kTokens - 1, Half>(w, first_row, rows, x, tokens, out, out_stride);
  }
  const auto columns = static_cast<std::size_t>(w.columns);
  for (int row = first_row; row < first_row + rows; ++row) {
    const std::byte* stored = w.data + static_cast<std::size_t>(row) * w.row_bytes;
    dot<kTokens>(reinterpret_cast<const Half*>(stored), x, columns, w.columns, out + row, out_stride);
  }
  if (tokens > kTokens) {
    dots<kTokens, Half>(w, first_row, rows, x + kTokens * columns, tokens - kTokens,
                        out + kTokens * out_stride, out_stride);
  }
}

void all_dots(const WeightMatrix& w, int first_row, int rows, const float* x, int tokens, float* out,
              std::size_t out_stride) {
  if (w.format == WeightFormat::kF16) {
    dots<kTileTokens, hwy::float16_t>(w, first_row, rows, x, tokens, out, out_stride);
  } else {
    dots<kTileTokens, hwy::bfloat16_t>(w, first_row, rows, x, tokens, out, out_stride);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace keynest
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace keynest {

HWY_EXPORT(all_dots);

bool half_dots_supported(WeightFormat format) {
  return format == WeightFormat::kF16 || format == WeightFormat::kBF16;
}

void half_dots(const WeightMatrix& weights, int first_row, int rows, const float* activations, int tokens,
               float* out, std::size_t out_stride) {
  HWY_DYNAMIC_DISPATCH(all_dots)(weights, first_row, rows, activations, tokens, out, out_stride);
}

}  // namespace keynest
#endif  // HWY_ONCE
