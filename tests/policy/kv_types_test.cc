// Golden vectors with the cache in other types than F32: rounded keys move scores a little, and near ties may
// fall the other way. Tolerances are stated per type.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "engine/replay.h"
#include "keynest/policy.h"
#include "policy/golden_set.h"

namespace keynest {
namespace {

using golden::Array;
using golden::Case;

struct Type {
  const char* name;
  KvType type;
  double score;  ///< largest difference of a score, as a share of the range of its head's scores
  double kept;   ///< least share of kept entries that are the reference's, over all heads and budgets
};
// Half a unit in the last place is 2^-12, 2^-9 and about 2^-8 of a block's largest number; a score is a
// cosine of two vectors so rounded.
constexpr Type kTypes[] = {{"f16", KvType::kF16, 1.5e-3, 0.99},
                           {"bf16", KvType::kBF16, 2e-2, 0.99},
                           {"q8_0", KvType::kQ8_0, 2e-2, 0.98}};

struct Method {
  const char* golden;
  const char* scores;
  const char* spec;
  bool attention = false;
};
constexpr Method kMethods[] = {{"keydiff", "reference__keydiff__scores", "keydiff"},
                               {"knorm", "reference__knorm__scores", "knorm"},
                               {"tova", "reference__tova__scores", "tova", true},
                               {"h2o_sum", "reference__h2o_sum__scores", "h2o", true},
                               {"nestedkv_uniform", "reference__nestedkv__final", "nestedkv:heads=uniform"}};

struct Inputs {
  std::vector<float> keys, queries;
  LayerTensors tensors;
  explicit Inputs(const Case& c) : keys(c.load("keys").floats()), queries(c.load("queries").floats()) {
    tensors = {keys, queries, {}, c.kv_heads, c.query_heads, c.tokens, c.head_dim};
  }
};

PolicySpec parse(const char* text) { return *PolicySpec::parse(text); }

ReplayOptions options_of(const Type& t, std::int32_t budget) {
  ReplayOptions options;
  options.budget = budget;
  options.type = t.type;
  return options;
}

double range_of(const Array& row) {
  const auto [least, most] = std::minmax_element(row.data.begin(), row.data.end());
  return *most - *least;
}

double largest_difference(const Method& m, const Type& t, const Inputs& in, const Array& want) {
  const auto got = one_shot_scores(parse(m.spec), in.tensors, options_of(t, 0));
  EXPECT_TRUE(got.ok()) << got.error().message;
  double largest = 0;
  for (std::size_t h = 0; h < got->size(); ++h) {
    const Array row = want.at(h);
    for (std::size_t i = 0; i < row.data.size(); ++i)
      largest = std::max(largest, std::abs((*got)[h][i] - row.data[i]) / range_of(row));
  }
  return largest;
}

double share_kept(const Method& m, const Type& t, const Case& c, const Inputs& in) {
  double same = 0, all = 0;
  for (std::size_t r = 0; r < c.ratios.size(); ++r) {
    const Array mask = c.load(std::string("reference__") + m.golden + "__kept_mask").at(r);
    const auto got = replay(parse(m.spec), in.tensors, options_of(t, c.budgets[r]));
    EXPECT_TRUE(got.ok()) << got.error().message;
    for (std::size_t h = 0; h < got->kept.size(); ++h) {
      const Array head = mask.at(h);
      for (const Position p : got->kept[h]) same += head.data[static_cast<std::size_t>(to_int(p))];
      all += static_cast<double>(got->kept[h].size());
    }
  }
  return same / all;
}

class KvTypes : public testing::TestWithParam<Case> {};

TEST_P(KvTypes, GoldenVectorsWithinTheRounding) {
  const Case& c = GetParam();
  if (c.degenerate) GTEST_SKIP() << "equal keys: nothing but ties";
  const Inputs in(c);
  for (const Type& t : kTypes) {
    for (const Method& m : kMethods) {
      SCOPED_TRACE(std::string(t.name) + " " + m.spec);
      const double difference = largest_difference(m, t, in, c.load(m.scores));
      const double kept = share_kept(m, t, c, in);
      EXPECT_LE(difference, t.score);
      EXPECT_GE(kept, t.kept);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, KvTypes, testing::ValuesIn(golden::cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace keynest
