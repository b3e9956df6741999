#include "policy/nested_combine.h"

#include <algorithm>
#include <cmath>

#include "kernels/double_vectors.h"

namespace keynest {
namespace {

constexpr std::array<double, kNestedScales> kPrior{0.4, 0.4, 0.2};
constexpr double kBeta = 3.0;    // how strongly the spread moves the blend
constexpr double kTau = 0.60;    // surprise at which the gate is half open
constexpr double kKappa = 10.0;  // its steepness
constexpr double kFlat = 1e-12;  // a span below this is none

// Mean of the top tenth minus mean of the bottom tenth (at least one entry each).
double spread(std::span<const double> unit) {
  const std::size_t tenth = std::max<std::size_t>(1, unit.size() / 10);
  return mean_of_largest(unit.data(), tenth, unit.size()) - mean_of_smallest(unit.data(), tenth, unit.size());
}

// softmax(log prior + beta * spread) over the scales in use; the prior alone when the blend does not adapt.
std::array<double, kNestedScales> blend_weights(const NestedOptions& options,
                                                const std::array<double, kNestedScales>& spreads) {
  std::array<double, kNestedScales> weights{};
  double sum = 0;
  for (int k = 0; k < kNestedScales; ++k) {
    if (options.scales[k]) weights[k] = kPrior[k] * (options.adaptive ? std::exp(kBeta * spreads[k]) : 1.0);
    sum += weights[k];
  }
  for (double& w : weights) w /= sum;
  return weights;
}

// Blend, population standard deviation and maximum over the scales in use, entry by entry.
void mix(const NestedOptions& options, NestedVectors& v) {
  std::array<const double*, kNestedScales> used{};
  std::array<double, kNestedScales> weights{};
  int count = 0;
  for (int k = 0; k < kNestedScales; ++k) {
    if (!options.scales[k]) continue;
    used[count] = v.unit[k].data();
    weights[count++] = v.weights[k];
  }
  mix_scales(used.data(), weights.data(), count, v.final.size(),
             {v.blend.data(), v.strongest.data(), v.surprise_std.data()});
}

void weigh_surprise(NestedVectors& v) {
  const std::size_t n = v.final.size();
  stretch_to_unit(v.surprise_std.data(), kFlat, n, v.surprise_unit.data());
  const double centre = mean_of_doubles(v.surprise_unit.data(), n);
  for (std::size_t i = 0; i < n; ++i) v.surprise_centred[i] = v.surprise_unit[i] - centre;
  open_gates(v.surprise_centred.data(), kKappa, kTau, n, v.gate.data());
  blend_by_gate(v.blend.data(), v.strongest.data(), v.gate.data(), n, v.final.data());
}

constexpr std::size_t kVectors = 2 * kNestedScales + 7;

}  // namespace

NestedVectors take_nested_vectors(Scratch& scratch, std::size_t n) {
  NestedVectors v;
  for (auto& x : v.anomaly) x = scratch.take<double>(n);
  for (auto& x : v.unit) x = scratch.take<double>(n);
  for (auto* x :
       {&v.blend, &v.surprise_std, &v.surprise_unit, &v.surprise_centred, &v.gate, &v.strongest, &v.final}) {
    *x = scratch.take<double>(n);
  }
  return v;
}

std::size_t nested_vectors_bytes(std::size_t n) { return kVectors * scratch_size<double>(n); }

void nested_combine(const NestedOptions& options, NestedVectors& v) {
  if (v.final.empty()) return;
  for (int k = 0; k < kNestedScales; ++k) {
    if (!options.scales[k]) continue;
    stretch_to_unit(v.anomaly[k].data(), kFlat, v.final.size(), v.unit[k].data());
    v.spread[k] = spread(v.unit[k]);
  }
  v.weights = blend_weights(options, v.spread);
  mix(options, v);
  if (options.surprise) {
    weigh_surprise(v);
  } else {
    std::copy(v.blend.begin(), v.blend.end(), v.final.begin());
  }
}

}  // namespace keynest
