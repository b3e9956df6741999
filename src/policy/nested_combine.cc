#include "policy/nested_combine.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

namespace keynest {
namespace {

constexpr std::array<double, kNestedScales> kPrior{0.4, 0.4, 0.2};
constexpr double kBeta = 3.0;    // how strongly the spread moves the blend
constexpr double kTau = 0.60;    // surprise at which the gate is half open
constexpr double kKappa = 10.0;  // its steepness
constexpr double kFlat = 1e-12;  // a span below this is none

void min_max(std::span<const double> x, std::span<double> out) {
  const auto [low, high] = std::minmax_element(x.begin(), x.end());
  const double from = *low, span = *high - *low;
  for (std::size_t i = 0; i < x.size(); ++i) out[i] = span <= kFlat ? 0.0 : (x[i] - from) / span;
}

double mean(std::span<const double> x) {
  return std::accumulate(x.begin(), x.end(), 0.0) / static_cast<double>(x.size());
}

// Mean of the top tenth minus mean of the bottom tenth (at least one entry each).
double spread(std::span<const double> unit, std::span<double> room) {
  const std::size_t tenth = std::max<std::size_t>(1, unit.size() / 10);
  const auto edge = room.begin() + static_cast<std::ptrdiff_t>(tenth - 1);
  std::copy(unit.begin(), unit.end(), room.begin());
  std::nth_element(room.begin(), edge, room.end());
  const double bottom = mean(room.first(tenth));
  std::nth_element(room.begin(), edge, room.end(), std::greater<>());
  return mean(room.first(tenth)) - bottom;
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
  const auto used = static_cast<double>(std::count(options.scales.begin(), options.scales.end(), true));
  for (std::size_t i = 0; i < v.final.size(); ++i) {
    double blend = 0, sum = 0, strongest = 0, squares = 0;
    for (int k = 0; k < kNestedScales; ++k) {
      if (!options.scales[k]) continue;
      blend += v.weights[k] * v.unit[k][i];
      sum += v.unit[k][i];
      strongest = std::max(strongest, v.unit[k][i]);
    }
    for (int k = 0; k < kNestedScales; ++k) {
      const double difference = v.unit[k][i] - sum / used;
      if (options.scales[k]) squares += difference * difference;
    }
    v.blend[i] = blend;
    v.strongest[i] = strongest;
    v.surprise_std[i] = std::sqrt(squares / used);
  }
}

void open_gates(NestedVectors& v) {
  min_max(v.surprise_std, v.surprise_unit);
  const double centre = mean(v.surprise_unit);
  for (std::size_t i = 0; i < v.final.size(); ++i) {
    v.surprise_centred[i] = v.surprise_unit[i] - centre;
    v.gate[i] = 1.0 / (1.0 + std::exp(-kKappa * (v.surprise_centred[i] - kTau)));
    v.final[i] = (1.0 - v.gate[i]) * v.blend[i] + v.gate[i] * v.strongest[i];
  }
}

constexpr std::size_t kVectors = 2 * kNestedScales + 8;

}  // namespace

NestedVectors take_nested_vectors(Scratch& scratch, std::size_t n) {
  NestedVectors v;
  for (auto& x : v.anomaly) x = scratch.take<double>(n);
  for (auto& x : v.unit) x = scratch.take<double>(n);
  for (auto* x : {&v.blend, &v.surprise_std, &v.surprise_unit, &v.surprise_centred, &v.gate, &v.strongest,
                  &v.final, &v.room}) {
    *x = scratch.take<double>(n);
  }
  return v;
}

std::size_t nested_vectors_bytes(std::size_t n) { return kVectors * scratch_size<double>(n); }

void nested_combine(const NestedOptions& options, NestedVectors& v) {
  if (v.final.empty()) return;
  for (int k = 0; k < kNestedScales; ++k) {
    if (!options.scales[k]) continue;
    min_max(v.anomaly[k], v.unit[k]);
    v.spread[k] = spread(v.unit[k], v.room);
  }
  v.weights = blend_weights(options, v.spread);
  mix(options, v);
  if (options.surprise) {
    open_gates(v);
  } else {
    std::copy(v.blend.begin(), v.blend.end(), v.final.begin());
  }
}

}  // namespace keynest
