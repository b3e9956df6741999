// The fields of --stats, by name, type and value.
#include "cli/stats_json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <vector>

namespace keynest::cli {
namespace {

using Json = nlohmann::ordered_json;

std::vector<std::string> keys(const Json& object) {
  std::vector<std::string> names;
  for (const auto& [name, value] : object.items()) names.push_back(name);
  return names;
}

Stats some_stats() {
  Stats stats;
  stats.policy = "keydiff:keep_last=20%";
  stats.budget = 1024;
  stats.block = 64;
  stats.prompt_tokens = 4000;
  stats.generated_tokens = 30;
  stats.ttft_seconds = 2.5;
  stats.prefill_seconds = 2.0;
  stats.decode_seconds = 0.5;
  stats.evict_seconds = 0.01;
  stats.attention_seconds = 0.75;
  stats.cache = {100, 200, 300, 64, {5, 6}, {7, 8}, 4030};
  stats.simd_target = "AVX2";
  stats.threads = 2;
  return stats;
}

TEST(StatsJson, HasExactlyTheDocumentedFields) {
  const Json json = Json::parse(stats_json(some_stats(), {"m.gguf", "text", 31}));
  EXPECT_EQ(keys(json), (std::vector<std::string>{
                            "model", "policy", "budget", "block", "prompt_tokens", "generated_tokens",
                            "ttft_seconds", "prefill", "decode", "evict_seconds", "attention_seconds",
                            "cache", "peak_rss_bytes", "simd_target", "gemm", "threads", "text"}));
  EXPECT_EQ(keys(json["prefill"]), std::vector<std::string>{"tokens_per_second"});
  EXPECT_EQ(keys(json["decode"]), std::vector<std::string>{"tokens_per_second"});
  EXPECT_EQ(keys(json["cache"]),
            (std::vector<std::string>{"bytes", "peak_bytes", "full_bytes", "peak_entries_per_layer",
                                      "entries_per_layer", "seen"}));
}

TEST(StatsJson, Values) {
  const Json json = Json::parse(stats_json(some_stats(), {"m.gguf", "text", 31}));
  EXPECT_EQ(json["model"], "m.gguf");
  EXPECT_EQ(json["policy"], "keydiff:keep_last=20%");
  EXPECT_EQ(json["budget"], 1024);
  EXPECT_EQ(json["block"], 64);
  EXPECT_EQ(json["prompt_tokens"], 4000);
  EXPECT_EQ(json["generated_tokens"], 31);
  EXPECT_EQ(json["ttft_seconds"], 2.5);
  EXPECT_EQ(json["prefill"]["tokens_per_second"], 2000.0);
  EXPECT_EQ(json["decode"]["tokens_per_second"], 60.0);
  EXPECT_EQ(json["evict_seconds"], 0.01);
  EXPECT_EQ(json["attention_seconds"], 0.75);
  EXPECT_EQ(json["cache"]["bytes"], 100);
  EXPECT_EQ(json["cache"]["peak_bytes"], 200);
  EXPECT_EQ(json["cache"]["full_bytes"], 300);
  EXPECT_EQ(json["cache"]["entries_per_layer"], (Json{5, 6}));
  EXPECT_EQ(json["cache"]["peak_entries_per_layer"], (Json{7, 8}));
  EXPECT_EQ(json["cache"]["seen"], 4030);
  EXPECT_EQ(json["simd_target"], "AVX2");
  EXPECT_EQ(json["threads"], 2);
  EXPECT_EQ(json["text"], "text");
}

TEST(StatsJson, NoTimeIsNoDivision) {
  const Json json = Json::parse(stats_json(Stats{}, {}));
  EXPECT_EQ(json["prefill"]["tokens_per_second"], 0);
  EXPECT_EQ(json["decode"]["tokens_per_second"], 0);
}

TEST(StatsJson, ReplacesBytesThatAreNoText) {
  const Json json = Json::parse(stats_json(Stats{}, {"m",
                                                     "a\xFF"
                                                     "b",
                                                     1}));
  EXPECT_EQ(json["text"],
            "a\xEF\xBF\xBD"
            "b");
}

TEST(StatsJson, EndsWithANewline) { EXPECT_EQ(stats_json(Stats{}, {}).back(), '\n'); }

TEST(PeakRss, IsMoreThanWhatWasJustTouched) {
  const std::vector<char> touched(64u << 20, 1);
  EXPECT_GT(peak_rss_bytes(), touched.size());
  EXPECT_LT(peak_rss_bytes(), std::size_t{1} << 40);
}

}  // namespace
}  // namespace keynest::cli
