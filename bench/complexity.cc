// What an eviction costs per policy, in time and memory, when N and B grow, beside the table of the KeyDiff
// paper (arXiv 2504.15364). One layer of Qwen2.5-0.5B's shape, one thread; nothing but the policy's own work
// is timed: observing the block, scoring, choosing. docs/performance.md says how to read it.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "bench/layer.h"

namespace keynest::bench {
namespace {

constexpr CacheShape kShape{.layers = 1, .kv_heads = 2, .group = 7, .head_dim = 64};

/// Seconds of one eviction: the least of several.
double seconds_to_evict(Layer& layer, double spend) {
  double least = 0, spent = 0;
  for (int i = 0; i < 4 || spent < spend; ++i) {
    const auto started = std::chrono::steady_clock::now();
    if (!layer.evict()) std::fprintf(stderr, "an eviction failed\n"), std::exit(1);
    const double took = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
    least = i == 0 ? took : std::min(least, took);
    spent += took;
  }
  return least;
}

struct TableRow {
  const char* spec;
  const char* paper;  ///< run time and memory of a step, as the paper's table has it; "": not in it
};

constexpr TableRow kRows[] = {
    {"keydiff", "O(N + B)"}, {"sink", "O(N)"}, {"tova", "O(N + B)"}, {"snapkv", "O((N + B) L)"},
    {"h2o", "O(NB + B²)"},   {"nestedkv", ""}, {"knorm", ""},        {"keydiff:anchor=pairwise", ""}};
constexpr int kBudgets[] = {1024, 2048, 4096, 8192};
constexpr int kBlocks[] = {64, 128, 256, 512};

void print_table(const char* title, bool time, const std::vector<std::pair<int, int>>& sizes, double spend) {
  std::printf("%s\n\n| policy | paper |", title);
  for (const auto& [n, b] : sizes) std::printf(" N = %d, B = %d |", n, b);
  std::printf(" growth |\n| --- | --- |");
  for (std::size_t i = 0; i <= sizes.size(); ++i) std::printf(" --- |");
  for (const TableRow& row : kRows) {
    std::printf("\n| `%s` | %s |", row.spec, row.paper);
    double first = 0, last = 0;
    for (const auto& [n, b] : sizes) {
      Layer layer(row.spec, kShape, KvType::kF16, n + b, b);
      last = time ? seconds_to_evict(layer, spend) * 1e6 : static_cast<double>(layer.extra_bytes()) / 1024;
      if (first == 0) first = last;
      std::printf(" %.*f |", last < 100 ? 1 : 0, last);
      std::fflush(stdout);
    }
    std::printf(" %.1f |", last / first);
  }
  std::printf("\n\n");
}

void print_all(double spend) {
  std::vector<std::pair<int, int>> by_budget, by_block;
  for (const int n : kBudgets) by_budget.emplace_back(n, 128);
  for (const int b : kBlocks) by_block.emplace_back(2048, b);
  std::printf("One layer: %d KV heads, %d query heads each, head size %d; one thread, %s.\n\n",
              kShape.kv_heads, kShape.group, kShape.head_dim, simd_target());
  print_table("Microseconds per eviction, growing N:", true, by_budget, spend);
  print_table("Microseconds per eviction, growing B:", true, by_block, spend);
  print_table("Extra KiB per head, growing N:", false, by_budget, spend);
  print_table("Extra KiB per head, growing B:", false, by_block, spend);
}

}  // namespace
}  // namespace keynest::bench

int main(int argc, char** argv) {
  double spend = 0.2;  // seconds per figure
  if (argc == 2 && std::strcmp(argv[1], "--quick") == 0) {
    spend = 0;
  } else if (argc > 1) {
    std::puts(
        "bench_complexity [--quick]: time and memory of an eviction per policy, N and B, as Markdown tables");
    return std::strcmp(argv[1], "--help") == 0 ? 0 : 2;
  }
  keynest::bench::print_all(spend);
}
