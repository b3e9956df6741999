// Masking by position and online softmax, in powers of two: logits come multiplied by log2(e).
#if defined(KEYNEST_KERNELS_ATTENTION_SOFTMAX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KEYNEST_KERNELS_ATTENTION_SOFTMAX_INL_H_
#undef KEYNEST_KERNELS_ATTENTION_SOFTMAX_INL_H_
#else
#define KEYNEST_KERNELS_ATTENTION_SOFTMAX_INL_H_
#endif

#include <cstdint>
#include <limits>

#include "hwy/highway.h"
#include "kernels/convert-inl.h"
#include "kernels/page.h"

HWY_BEFORE_NAMESPACE();
namespace keynest {
namespace HWY_NAMESPACE {

inline constexpr float kLog2E = 1.44269504088896341f;
inline constexpr float kLn2 = 0.693147180559945309f;
/// The running maximum of a query that has seen nothing: finite, so that differences with it are never NaN.
inline constexpr float kNoLogit = -1e30f;

/// 2^x for x <= 0, relative error below 3e-7; exactly 0 below -127, so also for -inf.
template <class D>
HWY_INLINE hn::Vec<D> exp2_nonpositive(D d, hn::Vec<D> x) {
  const hn::RebindToSigned<D> integers;
  // Adding 1.5 * 2^23 rounds to an integer, which then sits in the low bits of the float.
  const auto magic = hn::Set(d, 12582912.0f);
  x = hn::Max(x, hn::Set(d, -127.0f));
  const auto shifted = hn::Add(x, magic);
  const auto f = hn::Sub(x, hn::Sub(shifted, magic));
  // Minimax polynomial of 2^f on [-0.5, 0.5] with p(0) = 1.
  auto p = hn::MulAdd(f, hn::Set(d, 0.00132647273f), hn::Set(d, 0.00967151299f));
  p = hn::MulAdd(f, p, hn::Set(d, 0.0555073358f));
  p = hn::MulAdd(f, p, hn::Set(d, 0.240222424f));
  p = hn::MulAdd(f, p, hn::Set(d, 0.693147004f));
  p = hn::MulAdd(f, p, hn::Set(d, 1.0f));
  const auto exponent = hn::Add(hn::BitCast(integers, shifted), hn::Set(integers, 127));
  return hn::Mul(p, hn::BitCast(d, hn::ShiftLeft<23>(exponent)));
}

/// Positions of a page's rows, those beyond its count out of everybody's sight, and their extremes.
struct PagePositions {
  HWY_ALIGN std::int32_t of[kPageRows];
  std::int32_t lowest, highest;

  void load(const HeadRows& rows, int page) {
    const Position* in = rows.positions(page);
    const int count = rows.rows_in_page(page);
    lowest = std::numeric_limits<std::int32_t>::max();
    highest = -1;
    for (int r = 0; r < count; ++r) {
      of[r] = to_int(in[r]);
      lowest = of[r] < lowest ? of[r] : lowest;
      highest = of[r] > highest ? of[r] : highest;
    }
    for (int r = count; r < kPageRows; ++r) of[r] = std::numeric_limits<std::int32_t>::max();
    if (count < kPageRows) highest = std::numeric_limits<std::int32_t>::max();
  }
};

/// What a query sees: keys with low < position <= high.
struct Sight {
  std::int32_t low, high;
};

/// row[64] = its logits where visible, else -inf.
HWY_INLINE void mask_row(const PagePositions& positions, const Sight& sight, float* row) {
  const FloatTag d;
  const hn::RebindToSigned<FloatTag> integers;
  const auto low = hn::Set(integers, sight.low), high = hn::Set(integers, sight.high);
  const auto hidden = hn::Set(d, -std::numeric_limits<float>::infinity());
  for (std::size_t column = 0; column < kPageRows; column += kLanes) {
    const auto position = hn::Load(integers, positions.of + column);
    const auto visible = hn::AndNot(hn::VecFromMask(integers, hn::Gt(position, high)),
                                    hn::VecFromMask(integers, hn::Gt(position, low)));
    const auto mask = hn::MaskFromVec(hn::BitCast(d, visible));
    hn::StoreU(hn::IfThenElse(mask, hn::LoadU(d, row + column), hidden), d, row + column);
  }
}

/// Largest of row[64] and `floor`.
HWY_INLINE float max_of_row(const float* row, float floor) {
  const FloatTag d;
  FloatVec best = hn::Set(d, floor);
  for (std::size_t column = 0; column < kPageRows; column += kLanes) {
    best = hn::Max(best, hn::LoadU(d, row + column));
  }
  return hn::GetLane(hn::MaxOfLanes(d, best));
}

/// row[64] = 2^(row - max) * factor; returns the sums of its lanes.
HWY_INLINE FloatVec weights_of_row(float* row, float max, FloatVec factor) {
  const FloatTag d;
  const FloatVec shift = hn::Set(d, max);
  FloatVec sum = hn::Zero(d);
  for (std::size_t column = 0; column < kPageRows; column += kLanes) {
    const FloatVec x = hn::Sub(hn::LoadU(d, row + column), shift);
    const FloatVec weight = hn::Mul(exp2_nonpositive(d, x), factor);
    hn::StoreU(weight, d, row + column);
    sum = hn::Add(sum, weight);
  }
  return sum;
}

/// Online softmax of `rows` query rows over one page. Turns logits[rows, 64] into weights relative to the new
/// maxima and sets rescale[rows], the factor for everything summed so far.
///   max [rows], sums [rows, kLanes] (their lanes together are the sum): updated.
HWY_INLINE void softmax_step(int rows, float* logits, float* max, float* sums, float* rescale) {
  const FloatTag d;
  HWY_ALIGN float old_max[16], change[16] = {};
  for (int r = 0; r < rows; ++r) {
    old_max[r] = max[r];
    max[r] = max_of_row(logits + r * kPageRows, max[r]);
    change[r] = old_max[r] - max[r];
  }
  const hn::CappedTag<float, 16> c;
  for (int r = 0; r < rows; r += static_cast<int>(hn::Lanes(c))) {
    hn::Store(exp2_nonpositive(c, hn::Load(c, change + r)), c, rescale + r);
  }
  for (int r = 0; r < rows; ++r) {
    const FloatVec sum = weights_of_row(logits + r * kPageRows, max[r], hn::Set(d, 1.0f));
    float* total = sums + static_cast<std::size_t>(r) * kLanes;
    hn::StoreU(hn::MulAdd(hn::LoadU(d, total), hn::Set(d, rescale[r]), sum), d, total);
  }
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace keynest
HWY_AFTER_NAMESPACE();

#endif  // KEYNEST_KERNELS_ATTENTION_SOFTMAX_INL_H_
