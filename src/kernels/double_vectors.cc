#include "kernels/double_vectors.h"

#include "kernels/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/double_vectors.cc"
#include <algorithm>
#include <cmath>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
// after the above
#include "hwy/contrib/math/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace keynest {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

using DoubleTag = hn::ScalableTag<double>;
using OneTag = hn::CappedTag<double, 1>;
using DoubleVec = hn::Vec<DoubleTag>;

/// Calls work(tag, i) for whole vectors and then for one number at a time.
template <class Work>
HWY_INLINE void for_numbers(std::size_t n, const Work& work) {
  const DoubleTag d;
  std::size_t i = 0;
  for (; i + hn::Lanes(d) <= n; i += hn::Lanes(d)) work(d, i);
  for (; i < n; ++i) work(OneTag(), i);
}

void add_doubles(const double* x, std::size_t n, double* sum) {
  for_numbers(n, [=](auto d, std::size_t i) HWY_ATTR {
    hn::StoreU(hn::Add(hn::LoadU(d, sum + i), hn::LoadU(d, x + i)), d, sum + i);
  });
}

void subtract_doubles(const double* x, std::size_t n, double* sum) {
  for_numbers(n, [=](auto d, std::size_t i) HWY_ATTR {
    hn::StoreU(hn::Sub(hn::LoadU(d, sum + i), hn::LoadU(d, x + i)), d, sum + i);
  });
}

void scale_doubles(const double* x, double factor, std::size_t n, double* out) {
  for_numbers(n, [=](auto d, std::size_t i)
                     HWY_ATTR { hn::StoreU(hn::Mul(hn::LoadU(d, x + i), hn::Set(d, factor)), d, out + i); });
}

DotProducts dot_products(const double* x, const double* y, std::size_t n) {
  const DoubleTag d;
  DoubleVec xx = hn::Zero(d), xy = hn::Zero(d), yy = hn::Zero(d);
  std::size_t i = 0;
  for (; i + hn::Lanes(d) <= n; i += hn::Lanes(d)) {
    const DoubleVec a = hn::LoadU(d, x + i), b = hn::LoadU(d, y + i);
    xx = hn::MulAdd(a, a, xx);
    xy = hn::MulAdd(a, b, xy);
    yy = hn::MulAdd(b, b, yy);
  }
  const auto sum = [d](DoubleVec v) HWY_ATTR { return hn::GetLane(hn::SumOfLanes(d, v)); };
  DotProducts dots{sum(xx), sum(xy), sum(yy)};
  for (; i < n; ++i) {
    dots.xx += x[i] * x[i];
    dots.xy += x[i] * y[i];
    dots.yy += y[i] * y[i];
  }
  return dots;
}

void stretch_to_unit(const double* x, double flat, std::size_t n, double* out) {
  const DoubleTag d;
  DoubleVec least = hn::Set(d, x[0]), most = least;
  std::size_t i = 0;
  for (; i + hn::Lanes(d) <= n; i += hn::Lanes(d)) {
    least = hn::Min(least, hn::LoadU(d, x + i));
    most = hn::Max(most, hn::LoadU(d, x + i));
  }
  double low = hn::GetLane(hn::MinOfLanes(d, least)), high = hn::GetLane(hn::MaxOfLanes(d, most));
  for (; i < n; ++i) {
    low = std::min(low, x[i]);
    high = std::max(high, x[i]);
  }
  const double span = high - low;
  if (span <= flat) return std::fill(out, out + n, 0.0);
  for_numbers(n, [=](auto tag, std::size_t at) HWY_ATTR {
    const auto moved = hn::Sub(hn::LoadU(tag, x + at), hn::Set(tag, low));
    hn::StoreU(hn::Div(moved, hn::Set(tag, span)), tag, out + at);
  });
}

/// The end of the numbers that is looked at: x up to a limit, or from it on.
enum class End { kSmallest, kLargest };

template <End end, class V>
HWY_INLINE auto at_end(V x, V limit) {
  if constexpr (end == End::kSmallest) return hn::Le(x, limit);
  if constexpr (end == End::kLargest) return hn::Ge(x, limit);
}

template <End end>
bool at_end(double x, double limit) {
  return end == End::kSmallest ? x <= limit : x >= limit;
}

/// How many of x[n] lie at the end.
template <End end>
std::size_t count_at_end(const double* x, double limit, std::size_t n) {
  constexpr std::size_t kChains = 4;
  const DoubleTag d;
  const DoubleVec border = hn::Set(d, limit), one = hn::Set(d, 1.0);
  const std::size_t step = hn::Lanes(d);
  DoubleVec sums[kChains] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
  std::size_t i = 0;
  for (; i + kChains * step <= n; i += kChains * step) {
    HWY_UNROLL(4)
    for (std::size_t c = 0; c < kChains; ++c) {
      const auto hit = at_end<end>(hn::LoadU(d, x + i + c * step), border);
      sums[c] = hn::Add(sums[c], hn::IfThenElseZero(hit, one));
    }
  }
  const DoubleVec sum = hn::Add(hn::Add(sums[0], sums[1]), hn::Add(sums[2], sums[3]));
  auto count = static_cast<std::size_t>(hn::GetLane(hn::SumOfLanes(d, sum)));
  for (; i < n; ++i) count += at_end<end>(x[i], limit) ? 1 : 0;
  return count;
}

/// The sum of those.
template <End end>
double sum_at_end(const double* x, double limit, std::size_t n) {
  const DoubleTag d;
  DoubleVec sums = hn::Zero(d);
  std::size_t i = 0;
  for (; i + hn::Lanes(d) <= n; i += hn::Lanes(d)) {
    const DoubleVec value = hn::LoadU(d, x + i);
    sums = hn::Add(sums, hn::IfThenElseZero(at_end<end>(value, hn::Set(d, limit)), value));
  }
  double sum = hn::GetLane(hn::SumOfLanes(d, sums));
  for (; i < n; ++i) sum += at_end<end>(x[i], limit) ? x[i] : 0;
  return sum;
}

/// Of the numbers at the end up to `inner`, but not up to `outer`, the innermost and the outermost one.
struct Between {
  double inner, outer;
};

template <End end>
Between numbers_between(const double* x, double outer, double inner, std::size_t n) {
  const DoubleTag d;
  DoubleVec innermost = hn::Set(d, outer), outermost = hn::Set(d, inner);
  const auto look = [&](DoubleVec v) HWY_ATTR {
    const auto inside = hn::AndNot(at_end<end>(v, hn::Set(d, outer)), at_end<end>(v, hn::Set(d, inner)));
    const DoubleVec low = hn::IfThenElse(inside, v, innermost), high = hn::IfThenElse(inside, v, outermost);
    innermost = end == End::kSmallest ? hn::Max(innermost, low) : hn::Min(innermost, low);
    outermost = end == End::kSmallest ? hn::Min(outermost, high) : hn::Max(outermost, high);
  };
  std::size_t i = 0;
  for (; i + hn::Lanes(d) <= n; i += hn::Lanes(d)) look(hn::LoadU(d, x + i));
  for (; i < n; ++i) look(hn::Set(d, x[i]));
  if constexpr (end == End::kSmallest) {
    return {hn::GetLane(hn::MaxOfLanes(d, innermost)), hn::GetLane(hn::MinOfLanes(d, outermost))};
  }
  return {hn::GetLane(hn::MinOfLanes(d, innermost)), hn::GetLane(hn::MaxOfLanes(d, outermost))};
}

/// Mean of the `count` numbers furthest at the end. `inner` and `outer` enclose the border: at least `count`
/// numbers lie at the end up to `inner`, fewer up to `outer`. By turns it is looked for where it would be if
/// numbers were spread evenly, and half way.
template <End end>
double mean_of_end(const double* x, double outer, double inner, std::size_t count, std::size_t n) {
  constexpr int kLook = 6;  // steps after which many equal numbers may be what is left
  std::size_t up_to_outer = 0, up_to_inner = n;
  for (int step = 0;; ++step) {
    if (step % kLook == kLook - 1) {
      const Between between = numbers_between<end>(x, outer, inner, n);
      inner = between.inner;
      if (between.inner == between.outer) break;
    }
    const double wanted = static_cast<double>(count - up_to_outer) + 0.5;
    const double evenly = wanted / static_cast<double>(up_to_inner - up_to_outer + 1);
    const double middle = outer + (inner - outer) * (step % 2 == 0 ? evenly : 0.5);
    if (middle == inner || middle == outer) break;
    const std::size_t found = count_at_end<end>(x, middle, n);
    if (found == count) return sum_at_end<end>(x, middle, n) / static_cast<double>(count);
    (found > count ? inner : outer) = middle;
    (found > count ? up_to_inner : up_to_outer) = found;
  }
  // What lies between the two is the inner one.
  const double between = static_cast<double>(count - up_to_outer);
  return (sum_at_end<end>(x, outer, n) + between * inner) / static_cast<double>(count);
}

double mean_of_smallest(const double* x, std::size_t count, std::size_t n) {
  return mean_of_end<End::kSmallest>(x, -1e-3, 1.0, count, n);
}

double mean_of_largest(const double* x, std::size_t count, std::size_t n) {
  return mean_of_end<End::kLargest>(x, 1.001, 0.0, count, n);
}

double mean_of_doubles(const double* x, std::size_t n) {
  const DoubleTag d;
  DoubleVec sums = hn::Zero(d);
  std::size_t i = 0;
  for (; i + hn::Lanes(d) <= n; i += hn::Lanes(d)) sums = hn::Add(sums, hn::LoadU(d, x + i));
  double sum = hn::GetLane(hn::SumOfLanes(d, sums));
  for (; i < n; ++i) sum += x[i];
  return sum / static_cast<double>(n);
}

template <int kScales, class D>
HWY_INLINE void mix_vector(D d, const double* const* x, const double* weights, std::size_t i,
                           const MixedScales& out) {
  hn::Vec<D> value[kScales];
  auto blend = hn::Zero(d), sum = hn::Zero(d), strongest = hn::Zero(d), squares = hn::Zero(d);
  for (int k = 0; k < kScales; ++k) {
    value[k] = hn::LoadU(d, x[k] + i);
    blend = hn::MulAdd(value[k], hn::Set(d, weights[k]), blend);
    sum = hn::Add(sum, value[k]);
    strongest = hn::Max(strongest, value[k]);
  }
  const auto share = hn::Set(d, 1.0 / kScales);
  for (int k = 0; k < kScales; ++k) {
    const auto difference = hn::NegMulAdd(sum, share, value[k]);
    squares = hn::MulAdd(difference, difference, squares);
  }
  hn::StoreU(blend, d, out.blend + i);
  hn::StoreU(strongest, d, out.strongest + i);
  hn::StoreU(hn::Sqrt(hn::Mul(squares, share)), d, out.deviation + i);
}

template <int kScales>
void mix(const double* const* x, const double* weights, std::size_t n, const MixedScales& out) {
  for_numbers(n, [&](auto d, std::size_t i) HWY_ATTR { mix_vector<kScales>(d, x, weights, i, out); });
}

void mix_scales(const double* const* x, const double* weights, int scales, std::size_t n,
                const MixedScales& out) {
  if (scales == 1) return mix<1>(x, weights, n, out);
  if (scales == 2) return mix<2>(x, weights, n, out);
  mix<kMaxScales>(x, weights, n, out);
}

void open_gates(const double* x, double steepness, double middle, std::size_t n, double* gate) {
  for_numbers(n, [=](auto d, std::size_t i) HWY_ATTR {
    const auto one = hn::Set(d, 1.0);
    const auto power = hn::Mul(hn::Sub(hn::LoadU(d, x + i), hn::Set(d, middle)), hn::Set(d, -steepness));
    hn::StoreU(hn::Div(one, hn::Add(one, hn::Exp(d, power))), d, gate + i);
  });
}

void blend_by_gate(const double* a, const double* b, const double* gate, std::size_t n, double* out) {
  for_numbers(n, [=](auto d, std::size_t i) HWY_ATTR {
    const auto g = hn::LoadU(d, gate + i);
    const auto rest = hn::Mul(hn::Sub(hn::Set(d, 1.0), g), hn::LoadU(d, a + i));
    hn::StoreU(hn::MulAdd(g, hn::LoadU(d, b + i), rest), d, out + i);
  });
}

}  // namespace
// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace keynest
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace keynest {
namespace {

HWY_EXPORT(add_doubles);
HWY_EXPORT(subtract_doubles);
HWY_EXPORT(scale_doubles);
HWY_EXPORT(dot_products);
HWY_EXPORT(stretch_to_unit);
HWY_EXPORT(mean_of_doubles);
HWY_EXPORT(mean_of_smallest);
HWY_EXPORT(mean_of_largest);
HWY_EXPORT(mix_scales);
HWY_EXPORT(open_gates);
HWY_EXPORT(blend_by_gate);

}  // namespace

void add_doubles(const double* x, std::size_t n, double* sum) {
  HWY_DYNAMIC_DISPATCH(add_doubles)(x, n, sum);
}

void subtract_doubles(const double* x, std::size_t n, double* sum) {
  HWY_DYNAMIC_DISPATCH(subtract_doubles)(x, n, sum);
}

void scale_doubles(const double* x, double factor, std::size_t n, double* out) {
  HWY_DYNAMIC_DISPATCH(scale_doubles)(x, factor, n, out);
}

DotProducts dot_products(const double* x, const double* y, std::size_t n) {
  return HWY_DYNAMIC_DISPATCH(dot_products)(x, y, n);
}

void stretch_to_unit(const double* x, double flat, std::size_t n, double* out) {
  HWY_DYNAMIC_DISPATCH(stretch_to_unit)(x, flat, n, out);
}

double mean_of_doubles(const double* x, std::size_t n) { return HWY_DYNAMIC_DISPATCH(mean_of_doubles)(x, n); }

double mean_of_smallest(const double* x, std::size_t count, std::size_t n) {
  return HWY_DYNAMIC_DISPATCH(mean_of_smallest)(x, count, n);
}

double mean_of_largest(const double* x, std::size_t count, std::size_t n) {
  return HWY_DYNAMIC_DISPATCH(mean_of_largest)(x, count, n);
}

void mix_scales(const double* const* x, const double* weights, int scales, std::size_t n,
                const MixedScales& out) {
  HWY_DYNAMIC_DISPATCH(mix_scales)(x, weights, scales, n, out);
}

void open_gates(const double* x, double steepness, double middle, std::size_t n, double* gate) {
  HWY_DYNAMIC_DISPATCH(open_gates)(x, steepness, middle, n, gate);
}

void blend_by_gate(const double* a, const double* b, const double* gate, std::size_t n, double* out) {
  HWY_DYNAMIC_DISPATCH(blend_by_gate)(a, b, gate, n, out);
}

}  // namespace keynest
#endif  // HWY_ONCE
