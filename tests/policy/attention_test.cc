// SnapKV and TOVA against their formulas written out, where no golden vectors exist: maximum pooling, groups.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "engine/replay.h"

namespace keynest {
namespace {

constexpr int kHeads = 2, kGroup = 3, kTokens = 50, kDim = 8, kWindow = 6;

struct Layer {
  Layer() {
    std::mt19937 rng(21);
    std::normal_distribution<float> normal;
    keys.resize(kHeads * kTokens * kDim);
    queries.resize(kHeads * kGroup * kTokens * kDim);
    for (float& x : keys) x = 2 * normal(rng);
    for (float& x : queries) x = normal(rng);
    tensors = {keys, queries, {}, kHeads, kHeads * kGroup, kTokens, kDim};
  }

  // Attention of query head q's token t over all positions up to t.
  std::vector<double> weights(int q, int t) const {
    std::vector<double> w(kTokens, 0.0);
    double sum = 0;
    for (int k = 0; k <= t; ++k) {
      double dot = 0;
      for (int j = 0; j < kDim; ++j) {
        dot += static_cast<double>(queries[static_cast<std::size_t>((q * kTokens + t) * kDim + j)]) *
               keys[static_cast<std::size_t>((q / kGroup * kTokens + k) * kDim + j)];
      }
      sum += w[static_cast<std::size_t>(k)] = std::exp(dot / std::sqrt(double{kDim}));
    }
    for (double& x : w) x /= sum;
    return w;
  }

  // Mean weights of the last kWindow queries on the older positions.
  std::vector<double> window_mean(int q) const {
    std::vector<double> mean(kTokens - kWindow, 0.0);
    for (int t = kTokens - kWindow; t < kTokens; ++t) {
      const std::vector<double> w = weights(q, t);
      for (std::size_t i = 0; i < mean.size(); ++i) mean[i] += w[i] / kWindow;
    }
    return mean;
  }

  std::vector<float> keys, queries;
  LayerTensors tensors;
};

double pooled_at(const std::vector<double>& x, int i, int kernel, bool maximum) {
  double result = 0;
  for (int j = std::max(0, i - kernel / 2); j <= std::min(static_cast<int>(x.size()) - 1, i + kernel / 2);
       ++j) {
    const double value = x[static_cast<std::size_t>(j)];
    result = maximum ? std::max(result, value) : result + value / kernel;
  }
  return result;
}

TEST(SnapKV, PoolsEveryQueryHeadByItself) {
  const Layer layer;
  for (const bool maximum : {true, false}) {
    for (const int kernel : {1, 3, 7}) {
      const auto spec = PolicySpec::parse("snapkv:window=6,kernel=" + std::to_string(kernel) +
                                          (maximum ? ",pool=max" : ""));
      const auto scores = one_shot_scores(*spec, layer.tensors, {});
      ASSERT_TRUE(scores.ok()) << scores.error().message;
      for (int h = 0; h < kHeads; ++h) {
        for (int i = 0; i < kTokens - kWindow; ++i) {
          double want = 0;
          for (int g = 0; g < kGroup; ++g)
            want += pooled_at(layer.window_mean(h * kGroup + g), i, kernel, maximum) / kGroup;
          EXPECT_NEAR((*scores)[static_cast<std::size_t>(h)][static_cast<std::size_t>(i)], want, 1e-6)
              << "kernel " << kernel << ", head " << h << ", position " << i;
        }
      }
    }
  }
}

// Maximum pooling takes the window from the ring too, when blocks are shorter than it.
TEST(SnapKV, MaximumPoolingReachesOverBlockBorders) {
  const Layer layer;
  PolicySpec spec = *PolicySpec::parse("snapkv:window=6,pool=max,schedule=prefill");
  ReplayOptions options;
  options.budget = 20;
  const auto once = replay(spec, layer.tensors, options);
  for (const std::int32_t block : {1, 4, 5, 7}) {
    options.lengths.assign(static_cast<std::size_t>(kTokens / block), block);
    if (kTokens % block != 0) options.lengths.push_back(kTokens % block);
    EXPECT_EQ(replay(spec, layer.tensors, options)->kept, once->kept) << "blocks of " << block;
  }
}

TEST(Tova, AveragesOverTheGroupOrTheLayer) {
  const Layer layer;
  for (const bool whole : {true, false}) {
    const auto scores =
        one_shot_scores(*PolicySpec::parse(whole ? "tova" : "tova:group=head"), layer.tensors, {});
    ASSERT_TRUE(scores.ok());
    for (int h = 0; h < kHeads; ++h) {
      const int first = whole ? 0 : h * kGroup, count = whole ? kHeads * kGroup : kGroup;
      for (int i = 0; i + 1 < kTokens; ++i) {
        double want = 0;
        for (int q = first; q < first + count; ++q)
          want += layer.weights(q, kTokens - 1)[static_cast<std::size_t>(i)] / count;
        EXPECT_NEAR((*scores)[static_cast<std::size_t>(h)][static_cast<std::size_t>(i)], want, 1e-6);
      }
    }
  }
}

}  // namespace
}  // namespace keynest
