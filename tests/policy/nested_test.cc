// NestedKV: every vector between the keys and the scores against golden vectors, the options that switch
// parts off, and the state of the bounded form.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <vector>

#include "engine/replay.h"
#include "kernels/rows.h"
#include "policy/golden_set.h"
#include "policy/nestedkv.h"

namespace keynest {
namespace {

// One head in pages of its own, as the policy sees it after one block.
struct HeadFixture {
  HeadFixture(const float* keys, std::int32_t tokens, std::int32_t head_dim, const NestedKV& policy,
              int block)
      : layout(PageLayout::make(KvType::kF32, head_dim, policy.needs().row_state)) {
    const auto count = static_cast<std::size_t>((tokens + kPageRows - 1) / kPageRows);
    memory.resize((count + 1) * layout.bytes);
    auto* first = memory.data() + (64 - reinterpret_cast<std::uintptr_t>(memory.data()) % 64);
    for (std::size_t i = 0; i < count; ++i) pages.push_back(first + i * layout.bytes);
    state.assign(static_cast<std::size_t>(policy.needs().head_state), 0.0);
    scratch.resize(policy.scratch_bytes(tokens) / sizeof(double) + 16);
    for (std::int32_t done = 0; done < tokens; done += block) {
      feed(keys, done, std::min(block, tokens - done), tokens);
      policy.observe(view);
    }
  }

  void feed(const float* keys, std::int32_t first, std::int32_t count, std::int32_t announced) {
    const auto dim = static_cast<std::size_t>(layout.head_dim);
    std::vector<Position> positions;
    for (std::int32_t i = 0; i < count; ++i) positions.push_back(Position{first + i});
    view.rows = {&layout, pages.data(), first + count};
    const float* from = keys + static_cast<std::size_t>(first) * dim;
    write_rows(view.rows, Row{first}, count, from, dim, from, dim, positions.data());
    view.seen = first + count;
    view.appended = count;
    view.announced = announced;
    view.state = state;
    view.scratch = reinterpret_cast<std::byte*>(scratch.data());
  }

  PageLayout layout;
  std::vector<std::byte> memory;
  std::vector<std::byte*> pages;
  std::vector<double> state, scratch;
  HeadView view;
};

void expect_vector(const golden::Case& c, const char* name, std::size_t head, std::span<const double> got,
                   double shift, double limit) {
  const golden::Array want = c.load(std::string("reference__nestedkv__") + name).at(head);
  ASSERT_EQ(got.size(), want.data.size()) << name;
  for (std::size_t i = 0; i < got.size(); ++i)
    ASSERT_NEAR(got[i] + shift, want.data[i], limit) << name << " at " << i;
}

void expect_all_vectors(const golden::Case& c, std::size_t h, const NestedVectors& v) {
  const char* scales[] = {"stable", "episodic", "current"};
  for (std::size_t k = 0; k < kNestedScales; ++k) {
    expect_vector(c, (std::string("anomaly_") + scales[k]).c_str(), h, v.anomaly[k], -1.0, 2e-7);
    expect_vector(c, (std::string("unit_") + scales[k]).c_str(), h, v.unit[k], 0, 1e-6);
  }
  expect_vector(c, "spread", h, v.spread, 0, 1e-6);
  expect_vector(c, "weights", h, v.weights, 0, 1e-6);
  expect_vector(c, "blend", h, v.blend, 0, 1e-6);
  expect_vector(c, "surprise_std", h, v.surprise_std, 0, 1e-6);
  expect_vector(c, "surprise_unit", h, v.surprise_unit, 0, 3e-6);
  expect_vector(c, "surprise_centred", h, v.surprise_centred, 0, 3e-6);
  expect_vector(c, "gate", h, v.gate, 0, 1e-5);
  expect_vector(c, "strongest", h, v.strongest, 0, 1e-6);
  expect_vector(c, "final", h, v.final, 0, 5e-6);
}

class NestedGolden : public ::testing::TestWithParam<golden::Case> {};

TEST_P(NestedGolden, EveryIntermediateVector) {
  const golden::Case& c = GetParam();
  const std::vector<float> keys = c.load("keys").floats();
  const NestedKV policy({}, 4, 0, c.head_dim);
  for (const int block : {c.tokens, 33, 1}) {
    for (std::int32_t h = 0; h < c.kv_heads; ++h) {
      SCOPED_TRACE("head " + std::to_string(h) + ", blocks of " + std::to_string(block));
      const float* head_keys = keys.data() + static_cast<std::size_t>(h * c.tokens * c.head_dim);
      const HeadFixture head(head_keys, c.tokens, c.head_dim, policy, block);
      expect_all_vectors(c, static_cast<std::size_t>(h), policy.vectors(head.view));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Case, NestedGolden, ::testing::ValuesIn(golden::cases()),
                         [](const auto& case_info) { return case_info.param.name; });

// Vectors of one head with given anomalies.
struct Combined {
  Combined(const std::vector<std::vector<double>>& anomalies, const NestedOptions& options)
      : memory(nested_vectors_bytes(anomalies[0].size()) / sizeof(double) + 8) {
    Scratch scratch(reinterpret_cast<std::byte*>(memory.data()));
    v = take_nested_vectors(scratch, anomalies[0].size());
    for (std::size_t k = 0; k < kNestedScales; ++k) {
      std::copy(anomalies[k].begin(), anomalies[k].end(), v.anomaly[k].begin());
    }
    nested_combine(options, v);
  }
  std::vector<double> memory;
  NestedVectors v;
};

const std::vector<std::vector<double>> kAnomalies = {
    {0.1, 0.9, 0.3, 0.5, 0.2}, {0.4, 0.1, 0.8, 0.2, 0.6}, {0.9, 0.2, 0.1, 0.7, 0.3}};

TEST(NestedOptions, OneScaleAloneIsItsUnitVector) {
  for (std::size_t k = 0; k < kNestedScales; ++k) {
    NestedOptions options;
    options.scales = {k == kStable, k == kEpisodic, k == kCurrent};
    const Combined c(kAnomalies, options);
    const auto [low, high] = std::minmax_element(kAnomalies[k].begin(), kAnomalies[k].end());
    for (std::size_t i = 0; i < kAnomalies[k].size(); ++i) {
      EXPECT_NEAR(c.v.final[i], (kAnomalies[k][i] - *low) / (*high - *low), 1e-12);
    }
  }
}

TEST(NestedOptions, TwoScalesShareTheirPrior) {
  NestedOptions options;
  options.scales = {true, false, true};
  options.adaptive = false;
  options.surprise = false;
  const Combined c(kAnomalies, options);
  EXPECT_NEAR(c.v.weights[kStable], 2.0 / 3, 1e-12);
  EXPECT_EQ(c.v.weights[kEpisodic], 0);
  EXPECT_NEAR(c.v.weights[kCurrent], 1.0 / 3, 1e-12);
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_NEAR(c.v.final[i], (2 * c.v.unit[kStable][i] + c.v.unit[kCurrent][i]) / 3, 1e-12);
  }
}

TEST(NestedOptions, WithoutSurpriseTheBlendIsFinal) {
  NestedOptions options;
  options.surprise = false;
  const Combined c(kAnomalies, options);
  for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(c.v.final[i], c.v.blend[i]);
  const Combined with(kAnomalies, {});
  EXPECT_NE(with.v.final[1], with.v.blend[1]);
}

TEST(NestedOptions, FlatAnomaliesGiveFiniteScores) {
  const Combined c({{0.3, 0.3, 0.3}, {0.1, 0.1, 0.1 + 1e-14}, {0, 1, 0}}, {});
  EXPECT_EQ(c.v.unit[kStable][1], 0);
  EXPECT_EQ(c.v.unit[kEpisodic][2], 0);
  for (double x : c.v.final) EXPECT_TRUE(std::isfinite(x));
  const Combined one({{0.3}, {0.2}, {0.1}}, {});
  EXPECT_TRUE(std::isfinite(one.v.final[0]));
}

TEST(NestedState, IsBoundedByTheDesign) {
  const NestedKV policy({}, 4, 0, 64);
  EXPECT_EQ(policy.needs().row_state, 2);
  EXPECT_LE(policy.needs().head_state, 64 * 64 + 64 + 64);
  EXPECT_EQ(policy.needs().attention, AttentionNeed::kNone);
}

TEST(NestedState, EpisodeLengthComesFromTheAnnouncedPrompt) {
  const std::vector<float> keys(16 * 8, 1.0f);
  const NestedKV policy({}, 4, 0, 8);
  const struct {
    std::int32_t announced, length;
  } cases[] = {{0, 128}, {4096, 128}, {5000, 156}, {8192, 256}, {1 << 20, 256}};
  for (const auto& c : cases) {
    HeadFixture head(keys.data(), 1, 8, policy, 1);
    head.state.assign(head.state.size(), 0.0);
    head.view.announced = c.announced;
    policy.observe(head.view);
    EXPECT_EQ(head.state[0], c.length) << c.announced;
  }
}

}  // namespace
}  // namespace keynest
