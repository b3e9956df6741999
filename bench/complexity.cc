// What an eviction costs per policy, in time and memory, when N and B grow, beside the table of the KeyDiff
// paper (arXiv 2504.15364). One layer of Qwen2.5-0.5B's shape, one thread; nothing but the policy's own work
// is timed: observing the block, scoring, choosing. docs/performance.md says how to read it.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "kernels/attention.h"
#include "kernels/rows.h"
#include "policy/evictor.h"

namespace keynest::bench {
namespace {

constexpr CacheShape kShape{.layers = 1, .kv_heads = 2, .group = 7, .head_dim = 64};

std::size_t size(int n) { return static_cast<std::size_t>(n); }

std::vector<float> normal_floats(std::size_t count) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> numbers(count);
  for (float& number : numbers) number = normal(random);
  return numbers;
}

/// Memory whose start is aligned as pages and scratch ask for.
class Aligned {
 public:
  explicit Aligned(std::size_t bytes) : memory_(bytes + kPageAlignment), start_(memory_.data()) {
    std::size_t space = memory_.size();
    std::align(kPageAlignment, bytes, start_, space);
  }
  std::byte* data() const { return static_cast<std::byte*>(start_); }

 private:
  std::vector<std::byte> memory_;
  void* start_;
};

/// A layer that holds N entries per head and has just attended a block of B.
class Layer {
 public:
  Layer(const std::string& spec, int budget, int block);

  /// Seconds of one eviction: the least of several.
  double seconds(double spend);
  /// What the policy takes per head beside keys and values: state, scores, scratch of one thread.
  std::size_t extra_bytes() const;

 private:
  void fill_pages();
  void attend();
  double evict_once();

  std::shared_ptr<const Evictor> evictor_;
  int rows_, block_;
  PageLayout layout_;
  Aligned pages_, scratch_;
  std::vector<std::vector<std::byte*>> page_lists_;
  std::vector<HeadRows> heads_;
  std::vector<float> queries_, row_max_, row_sum_;
  std::vector<Position> positions_;
  std::vector<QueryBlock> blocks_;
  LayerStep step_;
  LayerState state_;
};

std::size_t pages_of(int rows) { return size((rows + kPageRows - 1) / kPageRows); }

Layer::Layer(const std::string& spec, int budget, int block)
    : evictor_(*Evictor::create(*PolicySpec::parse(spec), kShape)),
      rows_(budget + block),
      block_(block),
      layout_(PageLayout::make(KvType::kF16, kShape.head_dim, evictor_->needs().row_state)),
      pages_(pages_of(rows_) * layout_.bytes * size(kShape.kv_heads)),
      scratch_(std::max(evictor_scratch_bytes(*evictor_, layout_, rows_),
                        attention_scratch_bytes(layout_, kShape.group))),
      state_(evictor_->new_state()) {
  fill_pages();
  attend();
  step_.heads = heads_;
  step_.queries = blocks_;
  step_.appended = block;
  step_.seen = step_.announced = rows_;
  step_.budget = budget;
}

void Layer::fill_pages() {
  std::byte* next = pages_.data();
  std::vector<Position> positions;
  positions.reserve(size(rows_));
  for (int i = 0; i < rows_; ++i) positions.push_back(Position{i});
  const auto numbers = normal_floats(size(rows_) * size(kShape.head_dim));
  page_lists_.resize(size(kShape.kv_heads));
  for (auto& list : page_lists_) {
    for (std::size_t i = 0; i < pages_of(rows_); ++i, next += layout_.bytes) list.push_back(next);
    heads_.push_back({&layout_, list.data(), rows_});
    write_rows(heads_.back(), Row{0}, rows_, numbers.data(), size(kShape.head_dim), numbers.data(),
               size(kShape.head_dim), positions.data());
  }
}

/// The statistics that attention leaves behind: not the policy's work.
void Layer::attend() {
  const std::size_t per_head = size(block_) * size(kShape.group), d = size(kShape.head_dim);
  queries_ = normal_floats(per_head * size(kShape.kv_heads) * d);
  row_max_.resize(per_head * size(kShape.kv_heads));
  row_sum_.resize(row_max_.size());
  for (int t = 0; t < block_; ++t) positions_.push_back(Position{rows_ - block_ + t});
  for (std::size_t h = 0; h < heads_.size(); ++h) {
    QueryBlock block;
    block.queries = queries_.data() + h * per_head * d;
    block.token_stride = size(kShape.group) * d;
    block.head_stride = d;
    block.tokens = block_;
    block.group = kShape.group;
    block.positions = positions_.data();
    block.scale = 1.0f / std::sqrt(static_cast<float>(d));
    block.row_max = row_max_.data() + h * per_head;
    block.row_sum = row_sum_.data() + h * per_head;
    attention_statistics(heads_[h], block, 0, block_, scratch_.data());
    blocks_.push_back(block);
  }
}

double Layer::evict_once() {
  const auto started = std::chrono::steady_clock::now();
  std::vector<std::vector<float>> scores(heads_.size());
  bool ok = true;
  for (int h = 0; h < kShape.kv_heads; ++h) evictor_->observe(state_, step_, h, scratch_.data());
  for (int h = 0; h < kShape.kv_heads; ++h) {
    ok = evictor_->score(state_, step_, h, scores[size(h)], scratch_.data()).ok() && ok;
  }
  ok = evictor_->plan(step_, scores).ok() && ok;
  if (!ok) std::fprintf(stderr, "an eviction failed\n"), std::exit(1);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
}

double Layer::seconds(double spend) {
  double least = evict_once(), spent = 0;
  for (int i = 0; i < 3 || spent < spend; ++i) {
    const double took = evict_once();
    least = std::min(least, took);
    spent += took;
  }
  return least;
}

std::size_t Layer::extra_bytes() const {
  const PolicyNeeds& needs = evictor_->needs();
  const std::size_t rows = size(rows_), heads = size(kShape.kv_heads);
  return rows * sizeof(float) * (1 + size(needs.row_state)) + size(needs.head_state) * sizeof(double) +
         state_.query_ring.size() * sizeof(float) / heads + evictor_scratch_bytes(*evictor_, layout_, rows_);
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
      Layer layer(row.spec, n, b);
      last = time ? layer.seconds(spend) * 1e6 : static_cast<double>(layer.extra_bytes()) / 1024;
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
