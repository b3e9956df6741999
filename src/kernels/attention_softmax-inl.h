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

/// 2^x for x <= 0, relative error below 3e-7; exactly 0 for -inf.
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

#if HWY_TARGET <= HWY_AVX3
/// AVX-512 splits off the integer part, and applies it to the exponent, in one instruction each.
HWY_INLINE FloatVec exp2_nonpositive(FloatTag d, FloatVec x) {
  constexpr int kFraction = 0x09;  // x - floor(x), no exceptions; 0 for -inf
  const FloatVec f{_mm512_reduce_ps(x.raw, kFraction)};
  // Minimax polynomial of 2^f on [0, 1) with p(0) = 1.
  auto p = hn::MulAdd(f, hn::Set(d, 0.00186713f), hn::Set(d, 0.009017031f));
  p = hn::MulAdd(f, p, hn::Set(d, 0.055799913f));
  p = hn::MulAdd(f, p, hn::Set(d, 0.24016444f));
  p = hn::MulAdd(f, p, hn::Set(d, 0.6931513f));
  p = hn::MulAdd(f, p, hn::Set(d, 1.0f));
  return FloatVec{_mm512_scalef_ps(p.raw, x.raw)};
}
#endif

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

/// Lane-wise maximum of a row [64].
HWY_INLINE FloatVec lane_max_of_row(const float* row) {
  const FloatTag d;
  FloatVec best = hn::LoadU(d, row);
  for (std::size_t column = kLanes; column < kPageRows; column += kLanes) {
    best = hn::Max(best, hn::LoadU(d, row + column));
  }
  return best;
}

using QuadTag = hn::CappedTag<float, 4>;

#if HWY_TARGET == HWY_SCALAR
inline constexpr int kQuad = 1;

HWY_INLINE hn::Vec<QuadTag> max_of_quad(const float* rows) { return lane_max_of_row(rows); }
#else
inline constexpr int kQuad = 4;

struct Larger {
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    return hn::Max(a, b);
  }
};

template <class D, class Op>
HWY_INLINE hn::Vec<QuadTag> reduce_blocks(D d, hn::Vec<D> v, Op op) {
  if constexpr (hn::MaxLanes(d) == kQuad) {
    return v;
  } else {
    const hn::Half<D> half;
    return reduce_blocks(half, op(hn::LowerHalf(half, v), hn::UpperHalf(half, v)), op);
  }
}

/// `op` over all lanes of each of four vectors, which together takes a third of the shuffles of one by one.
template <class Op>
HWY_INLINE hn::Vec<QuadTag> reduce_quad(const FloatVec (&lanes)[4], Op op) {
  const FloatTag d;
  const hn::Repartition<std::uint64_t, FloatTag> pairs;
  const auto merge = [d, op](FloatVec a, FloatVec b)
                         HWY_ATTR { return op(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b)); };
  const auto low = hn::BitCast(pairs, merge(lanes[0], lanes[1]));
  const auto high = hn::BitCast(pairs, merge(lanes[2], lanes[3]));
  const auto even = hn::BitCast(d, hn::InterleaveLower(pairs, low, high));
  const auto odd = hn::BitCast(d, hn::InterleaveUpper(pairs, low, high));
  return reduce_blocks(d, op(even, odd), op);
}

/// The maxima of four rows [4, 64].
HWY_INLINE hn::Vec<QuadTag> max_of_quad(const float* rows) {
  FloatVec lanes[4];
  HWY_UNROLL(4)
  for (int r = 0; r < 4; ++r) lanes[r] = lane_max_of_row(rows + r * kPageRows);
  return reduce_quad(lanes, Larger());
}
#endif

/// row[64] = 2^(row - max); returns what `add`(weight, sum) makes of its lanes, beginning with zero.
template <class Add>
HWY_INLINE FloatVec powers_of_row(float* row, FloatVec max, Add add) {
  const FloatTag d;
  FloatVec sum = hn::Zero(d);
  HWY_UNROLL(4)
  for (std::size_t column = 0; column < kPageRows; column += kLanes) {
    const FloatVec weight = exp2_nonpositive(d, hn::Sub(hn::LoadU(d, row + column), max));
    hn::StoreU(weight, d, row + column);
    sum = add(weight, sum);
  }
  return sum;
}

/// row[64] = 2^(row - max); returns the sums of its lanes.
HWY_INLINE FloatVec weights_of_row(float* row, FloatVec max) {
  return powers_of_row(row, max, [](FloatVec weight, FloatVec sum) HWY_ATTR { return hn::Add(sum, weight); });
}

/// Online softmax of `rows` query rows over one page. Turns logits [rows, 64] into weights relative to the
/// new maxima and sets rescale[rows], the factor for everything summed so far.
///   max [kMaxGroupRows], sums [rows, kLanes] (their lanes together are the sum): updated.
/// Logits, max and rescale are touched up to kMaxGroupRows rows.
HWY_INLINE void softmax_step(int rows, float* logits, float* max, float* sums, float* rescale) {
  const FloatTag d;
  const QuadTag q;
  for (int r = 0; r < rows; r += kQuad) {
    const auto old_max = hn::Load(q, max + r);
    const auto new_max = hn::Max(max_of_quad(logits + r * kPageRows), old_max);
    hn::Store(new_max, q, max + r);
    hn::Store(exp2_nonpositive(q, hn::Sub(old_max, new_max)), q, rescale + r);
  }
  for (int r = 0; r < rows; ++r) {
    const FloatVec sum = weights_of_row(logits + r * kPageRows, hn::Set(d, max[r]));
    float* total = sums + static_cast<std::size_t>(r) * kLanes;
    hn::StoreU(hn::MulAdd(hn::LoadU(d, total), hn::Set(d, rescale[r]), sum), d, total);
  }
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace keynest
HWY_AFTER_NAMESPACE();

#endif  // KEYNEST_KERNELS_ATTENTION_SOFTMAX_INL_H_
