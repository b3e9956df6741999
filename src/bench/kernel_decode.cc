// Attention of a generated token over heads that lie in memory, as those of a full cache do, and over one
// that lies in a cache. Heads are split into ranges of pages as the engine splits them.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <memory>

#include "bench/fixtures.h"
#include "bench/ggml_ops.h"
#include "bench/kernel_cases.h"
#include "engine/workspace.h"

namespace keynest::bench {
namespace {

struct Shape {
  int head_dim, group, entries;
  KvType type = KvType::kF16;
  Source source = Source::kMemory;
  int threads = 1;
  int heads = 1;  ///< KV heads of one run

  double head_bytes() const { return 2.0 * entries * static_cast<double>(row_bytes(type, head_dim)); }
  /// Runs until the same heads come again.
  int turns() const {
    const double bytes = head_bytes() * heads;
    return source == Source::kCache ? 1 : static_cast<int>(std::ceil(kTurnBytes / bytes));
  }
};

std::string text_of(const Shape& shape) {
  return "d = " + std::to_string(shape.head_dim) + ", " + std::to_string(shape.group) +
         " query heads, n = " + std::to_string(shape.entries) + ", " + type_text(shape.type) +
         (shape.heads > 1 ? ", " + std::to_string(shape.heads) + " KV heads" : "") +
         source_text(shape.source, shape.threads);
}

/// Heads, a query of each group for every one of them, and everything attention writes to.
class Decode {
 public:
  Decode(const Shape& shape, Team& team)
      : team_(team),
        heads_(PageLayout::make(shape.type, shape.head_dim, 0), shape.heads * shape.turns(), shape.entries),
        queries_(heads_, 1, shape.group),
        plan_(SplitPlan::of(heads_.views()[0].page_count(), shape.group, shape.head_dim)),
        at_once_(shape.heads),
        partials_(size(at_once_ * plan_.splits) * plan_.floats_per_partial()),
        finished_(std::make_unique<std::atomic<int>[]>(size(at_once_))),
        part_([this](int thread) { attend(thread); }) {
    for (int i = 0; i < team.threads(); ++i)
      scratch_.emplace_back(attention_scratch_bytes(heads_.layout(), shape.group));
  }

  void run() {
    next_task_.store(0, std::memory_order_relaxed);
    for (int h = 0; h < at_once_; ++h) finished_[size(h)].store(0, std::memory_order_relaxed);
    team_.run(part_);
    first_head_ = (first_head_ + size(at_once_)) % heads_.views().size();
  }

 private:
  /// One thread's share: ranges of pages, and of every head whose last range it was the merging.
  void attend(int thread) {
    const int tasks = at_once_ * plan_.splits;
    for (int task; (task = next_task_.fetch_add(1, std::memory_order_relaxed)) < tasks;) {
      const int head = task / plan_.splits, split = task % plan_.splits;
      const HeadRows& rows = heads_.views()[first_head_ + size(head)];
      const int pages = rows.page_count();
      attend_pages(rows, block(head), plan_.first_page(split, pages), plan_.first_page(split + 1, pages),
                   plan_.partial(partials_.data(), head, split), scratch_[size(thread)].data());
      if (finished_[size(head)].fetch_add(1, std::memory_order_acq_rel) + 1 == plan_.splits) merge(head);
    }
  }

  void merge(int head) {
    PartialAttention partials[SplitPlan::kMostSplits];
    for (int split = 0; split < plan_.splits; ++split)
      partials[split] = plan_.partial(partials_.data(), head, split);
    merge_partials(block(head), plan_.head_dim, partials, plan_.splits);
  }

  const QueryBlock& block(int head) const { return queries_.blocks()[first_head_ + size(head)]; }

  Team& team_;
  Heads heads_;
  HeadQueries queries_;
  SplitPlan plan_;
  int at_once_;
  std::vector<float> partials_;
  std::unique_ptr<std::atomic<int>[]> finished_;  // ranges of every head
  std::atomic<int> next_task_{0};
  std::size_t first_head_ = 0;
  std::vector<Aligned> scratch_;  // of every thread
  const Team::Part part_;
};

KernelCase decode_case(const Shape& shape) {
  const auto queries = static_cast<double>(shape.heads * shape.group);
  KernelCase decode{.kernel = "decode", .shape = text_of(shape)};
  decode.flops = 4.0 * shape.head_dim * shape.entries * queries;
  decode.bytes = shape.head_bytes() * shape.heads;
  decode.threads = shape.threads;
  decode.source = shape.source;
  decode.reads = true;
  decode.prepare = [shape](Team& team) {
    return Work([data = std::make_shared<Decode>(shape, team)] { data->run(); });
  };
  if (shape.type != KvType::kF16) return decode;
  decode.ggml = [shape] {
    std::shared_ptr<GgmlOp> op = ggml_attention(
        {shape.head_dim, shape.entries, 1, shape.group, shape.heads, shape.turns(), shape.threads});
    return Work([op] { op->run(); });
  };
  return decode;
}

/// Every size of head, length and group of a kind of case, which says source, threads and heads.
void add_sizes(std::vector<KernelCase>& cases, Shape kind, const std::vector<int>& groups) {
  for (const int head_dim : {64, 128}) {
    for (const int entries : {2048, 8192, 32768}) {
      for (const int group : groups) {
        kind.head_dim = head_dim;
        kind.entries = entries;
        kind.group = group;
        cases.push_back(decode_case(kind));
      }
    }
  }
}

}  // namespace

void add_decode_cases(std::vector<KernelCase>& cases, int threads) {
  const std::vector<int> groups{1, 4, 7}, more_groups{1, 4, 5, 7};
  Shape kind{};
  kind.source = Source::kMemory;
  add_sizes(cases, kind, more_groups);
  for (const KvType type : {KvType::kF32, KvType::kBF16})
    cases.push_back(decode_case({64, 7, 8192, type, Source::kMemory, 1, 1}));
  for (const Source source : {Source::kMemory, Source::kCache}) {
    for (const int head_dim : {64, 128}) {
      for (const int group : groups)
        cases.push_back(decode_case({head_dim, group, 8192, KvType::kQ8_0, source, 1, 1}));
    }
  }
  if (threads > 1) {
    kind.threads = threads;
    add_sizes(cases, kind, groups);
    kind.heads = 8;
    add_sizes(cases, kind, groups);
    kind.threads = kind.heads = 1;
  }
  kind.source = Source::kCache;
  add_sizes(cases, kind, more_groups);
}

}  // namespace keynest::bench
