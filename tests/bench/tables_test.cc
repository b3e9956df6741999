// Tables and the picture from given results.
#include "bench/tables.h"

#include <gtest/gtest.h>

#include "bench/markdown.h"
#include "bench/plot.h"
#include "bench/runs.h"

namespace keynest::bench {
namespace {

bool holds(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

Json results_with(Json runs) {
  return {{"machine",
           {{"cpu", "Test CPU"},
            {"cores", 2},
            {"memory_bytes", 2147483648.0},
            {"load", 0.1},
            {"date", "2026-01-02"},
            {"keynest", "keynest 1"}}},
          {"model", "m.gguf"},
          {"threads", 2},
          {"runs", std::move(runs)}};
}

Json compare_run(const char* name, int length, int round, double ttft, double decode, double resident) {
  return {{"part", "compare"},
          {"name", name},
          {"length", length},
          {"round", round},
          {"prompt_tokens", length},
          {"ttft_seconds", ttft},
          {"decode_tokens_per_second", decode},
          {"peak_resident_bytes", resident * 1048576},
          {"cache_bytes", 1048576}};
}

TEST(Spread, ShowsLeastMedianAndMost) {
  EXPECT_EQ(spread({3, 1, 2}), "1.00 / **2.00** / 3.00");
  EXPECT_EQ(spread({4, 1, 2, 3}), "1.00 / **2.50** / 4.00");
  EXPECT_EQ(spread({12.34}), "12.3");
  EXPECT_EQ(spread({1234.5}), "1234");
  EXPECT_EQ(spread({0.01234}), "0.012");
  EXPECT_EQ(spread({}), "");
}

TEST(Tables, LeaveEmptyColumnsOut) {
  const Table table{"Title:", {"a", "b", "c"}, {{"1", "", "x"}, {"2", "", ""}}};
  EXPECT_EQ(table.print(), "Title:\n\n| a | c |\n| --- | --- |\n| 1 | x |\n| 2 |  |\n");
  EXPECT_EQ((Table{"Title:", {"a"}, {}}).print(), "");
}

TEST(Tables, RatiosAreOfTheSameRound) {
  const Json results = results_with(
      {compare_run("llama.cpp", 4096, 0, 10, 20, 500), compare_run("keynest keydiff", 4096, 1, 2, 50, 250),
       compare_run("keynest keydiff", 4096, 0, 5, 40, 250), compare_run("llama.cpp", 4096, 1, 12, 10, 500)});
  const std::string text = print_tables(results);
  // 10/5 and 12/2; 40/20 and 50/10: by rounds, not by order.
  EXPECT_TRUE(holds(text,
                    "| 4096 | keynest keydiff | 2.00 / **3.50** / 5.00 | 2.00 / **4.00** / 6.00 | "
                    "40.0 / **45.0** / 50.0 | 2.00 / **3.50** / 5.00 | 250 / **250** / 250 | "
                    "1.00 / **1.00** / 1.00 |"))
      << text;
  EXPECT_TRUE(holds(text, "| 4096 | llama.cpp | 10.0 / **11.0** / 12.0 | 1 |")) << text;
  EXPECT_TRUE(holds(text, "m.gguf, 2 threads of Test CPU (2 cores, 2 GiB), 2026-01-02.")) << text;
}

TEST(Tables, ARoundThatOnlyOneSideHasGivesNoRatio) {
  const Json results = results_with({compare_run("llama.cpp", 4096, 0, 10, 20, 500),
                                     compare_run("keynest keydiff", 4096, 0, 5, 40, 250),
                                     compare_run("keynest keydiff", 4096, 1, 1, 40, 250)});
  EXPECT_TRUE(holds(print_tables(results), "| 1.00 / **3.00** / 5.00 | 2.00 |")) << print_tables(results);
}

TEST(Tables, SayWhyAnEngineFailed) {
  const Json run = {
      {"part", "compare"}, {"name", "kvpress"}, {"length", 4096}, {"round", 0}, {"problem", "ended with 9"}};
  const Json results = results_with(Json::array({run}));
  EXPECT_TRUE(holds(print_tables(results), "| 4096 | kvpress | ended with 9 |")) << print_tables(results);
}

TEST(Tables, SayWhatFailedInALaterRoundAndWhatWasMissing) {
  const Json late = {
      {"part", "compare"}, {"name", "kvpress"}, {"length", 4096}, {"round", 1}, {"problem", "ended with 9"}};
  const Json missing = {
      {"part", "compare"}, {"name", "openvino"}, {"length", 4096}, {"round", 0}, {"missing", "get it"}};
  const std::string text =
      print_tables(results_with({compare_run("kvpress", 4096, 0, 5, 40, 250), late, missing}));
  EXPECT_TRUE(holds(text,
                    "| 4096 | kvpress | 5.00 | 40.0 | 250 | 1.00 |\n"
                    "| 4096 | kvpress | round 2: ended with 9 |"))
      << text;
  EXPECT_TRUE(holds(text, "| 4096 | openvino | not installed: get it |")) << text;
}

TEST(Tables, PoliciesAreComparedWithSinkOfTheirBlock) {
  Json runs = Json::array();
  for (const int block : {64, 128}) {
    for (const auto& [name, seconds] : {std::pair{"sink", 2.0}, std::pair{"h2o", block == 64 ? 8.0 : 4.0}}) {
      runs.push_back({{"part", "policies"},
                      {"name", name},
                      {"length", 4096},
                      {"round", 0},
                      {"budget", 2048},
                      {"block", block},
                      {"ttft_seconds", seconds},
                      {"evict_seconds", 0.5}});
    }
  }
  const std::string text = print_tables(results_with(runs));
  EXPECT_TRUE(holds(text, "N = 2048, B = 64:")) << text;
  EXPECT_TRUE(holds(text, "| `h2o` | 8.00 | 4.00 | 6.25 |")) << text;
  EXPECT_TRUE(holds(text, "| `h2o` | 4.00 | 2.00 | 12.5 |")) << text;
  EXPECT_TRUE(holds(text, "| `sink` | 2.00 | 1 | 25.0 |")) << text;
}

Json kernel_run(const char* name, int round, double seconds, double flops, double bytes) {
  return {{"part", "kernels"}, {"kernel", "decode"}, {"shape", "s"},   {"name", name},
          {"round", round},    {"seconds", seconds}, {"flops", flops}, {"bytes", bytes}};
}

TEST(Tables, KernelsAreSharesOfWhatTheMachineDidInTheSameRound) {
  const Json runs = {kernel_run("keynest", 0, 1e-3, 150e9, 20e9), kernel_run("keynest", 1, 1e-3, 100e9, 10e9),
                     kernel_run("fma", 1, 1, 100e9, 0),           kernel_run("fma", 0, 1, 200e9, 0),
                     kernel_run("copy", 0, 1, 0, 40e9),           kernel_run("copy", 1, 1, 0, 40e9),
                     kernel_run("ggml", 0, 3e-3, 50e9, 5e9),      kernel_run("ggml", 1, 3e-3, 50e9, 5e9)};
  const std::string text = print_tables(results_with(runs));
  EXPECT_TRUE(
      holds(text, "| shape | µs | GFLOPS | % of FMA peak | GB/s | % of copying | ggml, µs | times faster |"))
      << text;
  // 150 of 200 and 100 of 100: by rounds, not by order; nobody read.
  EXPECT_TRUE(holds(text,
                    "| 100 / **125** / 150 | 75.0 / **87.5** / 100 | 10.0 / **15.0** / 20.0 | "
                    "25.0 / **37.5** / 50.0 | 3000 / **3000** / 3000 | 3.00 / **3.00** / 3.00 |"))
      << text;
}

TEST(Tables, ThePeakSaysWhatWasMeasuredOfIt) {
  Json peak = {{"part", "peak"}, {"threads", 1}, {"flops", 200e9}, {"copy_bytes", 50e9}};
  EXPECT_TRUE(
      holds(print_tables(results_with(Json::array({peak}))),
            "Peak of 1 thread: 200 GFLOPS of float FMA, 50.0 GB/s copying memory (read + written).\n"));
  peak["read_bytes"] = 40e9;
  peak["cached_copy_bytes"] = 100e9;
  EXPECT_TRUE(holds(print_tables(results_with(Json::array({peak}))),
                    "(read + written), 40.0 reading it, 100 copying in the last cache.\n"));
}

TEST(Tables, DepthsShowTheFallFromFirstToLast) {
  Json runs = Json::array();
  for (const auto& [length, rate] : {std::pair{0, 100.0}, std::pair{4096, 25.0}}) {
    runs.push_back({{"part", "decode"},
                    {"name", "full"},
                    {"length", length},
                    {"round", 0},
                    {"budget", 0},
                    {"block", 128},
                    {"tokens", 32},
                    {"tokens_per_second", rate},
                    {"seconds", 0.5},
                    {"evict_seconds", length / 4096.0 / 4}});
  }
  const std::string text = print_tables(results_with(runs));
  EXPECT_TRUE(holds(text, "| policy | after 0 | after 4096 | last ÷ first | eviction, % |")) << text;
  EXPECT_TRUE(holds(text, "| `full` | 100 | 25.0 | 0.250 | 50.0 |")) << text;
}

TEST(Tables, MemoryShowsTheChange) {
  Json runs = Json::array();
  for (const int length : {4096, 65536}) {
    runs.push_back({{"part", "memory"},
                    {"name", "keynest keydiff"},
                    {"length", length},
                    {"round", 0},
                    {"prompt_tokens", length},
                    {"cache_bytes", 1048576},
                    {"peak_resident_bytes", length == 4096 ? 1e8 : 1.01e8},
                    {"full_cache_bytes", 1048576.0 * length},
                    {"ttft_seconds", 1},
                    {"process_seconds", 2}});
  }
  const std::string text = print_tables(results_with(runs));
  EXPECT_TRUE(holds(text, "| keynest keydiff | change | +0.00 % | +1.00 % |")) << text;
}

TEST(Tables, AnythingElseIsLeftOut) {
  const Json half = {{"part", "compare"}}, odd_kind = {{"part", "kernels"}, {"seconds", "fast"}};
  const Json no_length = {{"part", "policies"}, {"block", 64}};
  const Json odd = {{"runs", Json::array({1, "two", half, odd_kind, no_length})}};
  EXPECT_NO_THROW(print_tables(odd));
  EXPECT_NO_THROW(print_tables(Json::object()));
}

TEST(Plot, DrawsALinePerEngine) {
  const auto svg = plot_compare(
      results_with({compare_run("a<b", 4096, 0, 10, 20, 500), compare_run("a<b", 8192, 0, 20, 20, 500),
                    compare_run("other", 4096, 0, 5, 20, 100)}));
  ASSERT_TRUE(svg);
  std::size_t lines = 0;
  for (auto at = svg->find("<polyline"); at != std::string::npos; at = svg->find("<polyline", at + 1))
    ++lines;
  EXPECT_EQ(lines, 4u);  // two engines in two panels
  EXPECT_TRUE(holds(*svg, "a&lt;b"));
  EXPECT_FALSE(holds(*svg, "nan"));
  EXPECT_EQ(svg->rfind("</svg>\n"), svg->size() - 7);
}

TEST(Plot, WithoutACompareThereIsNone) {
  EXPECT_FALSE(plot_compare(results_with(Json::array())));
  const Json failed = {{"part", "compare"}, {"name", "x"}, {"length", 1}, {"round", 0}, {"problem", "no"}};
  EXPECT_FALSE(plot_compare(results_with(Json::array({failed}))));
}

}  // namespace
}  // namespace keynest::bench
