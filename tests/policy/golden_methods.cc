#include "policy/golden_methods.h"

#include <gtest/gtest.h>

namespace keynest::golden {

std::vector<OneShot> one_shot_methods(const Case& c) {
  const std::string snapkv =
      "snapkv:window=" + std::to_string(c.snapkv_window) + ",kernel=" + std::to_string(c.snapkv_kernel);
  return {{"keydiff", "keydiff"},
          {"keydiff_pairwise", "keydiff:anchor=pairwise"},
          {"keydiff_mean_raw_cosine", "keydiff:anchor=mean_raw"},
          {"keydiff_median_normalised_cosine", "keydiff:anchor=median"},
          {"keydiff_median_raw_cosine", "keydiff:anchor=median_raw"},
          {"keydiff_mean_normalised_dot", "keydiff:metric=dot"},
          {"keydiff_mean_normalised_euclid", "keydiff:metric=euclid"},
          {"keydiff_mean_raw_dot", "keydiff:anchor=mean_raw,metric=dot"},
          {"keydiff_mean_raw_euclid", "keydiff:anchor=mean_raw,metric=euclid"},
          {"keydiff_recent20", "keydiff:keep_last=20%", Kind::kKeys, "keydiff"},
          {"knorm", "knorm"},
          {"streaming_llm", "sink", Kind::kKeys, "none"},
          {"tova", "tova", Kind::kAttention},
          {"snapkv", snapkv, Kind::kAttention},
          {"pyramidkv", snapkv, Kind::kAttention, "snapkv"},
          {"h2o_sum", "h2o", Kind::kAttention},
          {"h2o_mean", "h2o:norm=mean", Kind::kAttention},
          {"adakv_keydiff", "keydiff:heads=adaptive", Kind::kKeys, "keydiff", true},
          {"adakv_snapkv", snapkv + ",heads=adaptive", Kind::kAttention, "snapkv", true},
          {"nestedkv", "nestedkv", Kind::kNested, "nestedkv__final", true},
          {"nestedkv", "nestedkv-paper", Kind::kNested, "nestedkv__final", true},
          {"nestedkv_uniform", "nestedkv:heads=uniform", Kind::kNested, "nestedkv__final"}};
}

std::vector<StreamMethod> stream_methods(const Stream& s) {
  const std::string episode = "episode=" + std::to_string(s.episode);
  return {{"keydiff", "keydiff"},
          {"keydiff_pairwise", "keydiff:anchor=pairwise", Kind::kKeys, false, true},
          {"keydiff_mean_raw", "keydiff:anchor=mean_raw"},
          {"keydiff_recent20", "keydiff:keep_last=20%"},
          {"streaming_llm", "sink"},
          {"h2o", "h2o", Kind::kAttention},
          {"h2o_recent50", "h2o:recent=50%", Kind::kAttention},
          {"tova", "tova", Kind::kAttention},
          {"snapkv", "snapkv:window=" + std::to_string(s.window), Kind::kAttention},
          {"nestedkv_uniform", "nestedkv:heads=uniform," + episode, Kind::kNested},
          {"nestedkv_uniform", "nestedkv:heads=uniform", Kind::kNested},  // episode from the announced length
          {"keydiff_adaptive", "keydiff:heads=adaptive", Kind::kKeys, true},
          {"nestedkv", "nestedkv:" + episode, Kind::kNested, true},
          {"nestedkv", "nestedkv", Kind::kNested, true}};
}

Inputs::Inputs(const Case& c) : keys(c.load("keys").floats()), queries(c.load("queries").floats()) {
  tensors = {keys, queries, {}, c.kv_heads, c.query_heads, c.tokens, c.head_dim};
}

ReplayOptions stream_options(const Stream& s) {
  ReplayOptions options;
  options.budget = s.budget;
  options.lengths = s.lengths;
  options.announced = s.announced;
  options.trace = true;
  return options;
}

std::string stream_prefix(const Stream& s, const StreamMethod& m) {
  return "reference__stream_" + s.name + "__" + m.golden + "__";
}

PolicySpec parse(const std::string& text) {
  const auto spec = PolicySpec::parse(text);
  EXPECT_TRUE(spec.ok()) << spec.error().message;
  return *spec;
}

std::vector<std::int32_t> ints(const std::vector<Position>& positions) {
  std::vector<std::int32_t> out;
  for (Position p : positions) out.push_back(to_int(p));
  return out;
}

std::vector<std::int32_t> from_mask(const Array& mask) {
  std::vector<std::int32_t> out;
  for (std::size_t i = 0; i < mask.data.size(); ++i) {
    if (mask.data[i] != 0) out.push_back(static_cast<std::int32_t>(i));
  }
  return out;
}

std::vector<std::int32_t> from_row(const Array& row) {
  std::vector<std::int32_t> out;
  for (double p : row.data) {
    if (p >= 0) out.push_back(static_cast<std::int32_t>(p));
  }
  return out;
}

}  // namespace keynest::golden
