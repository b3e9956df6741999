// What an eviction is made of: scores, selection, moves of rows; and writing a block.
#include <algorithm>
#include <cmath>
#include <memory>
#include <random>

#include "bench/kernel_cases.h"
#include "bench/layer.h"
#include "kernels/rows.h"
#include "kernels/select.h"

namespace keynest::bench {
namespace {

constexpr CacheShape kSmall{.layers = 1, .kv_heads = 2, .group = 7, .head_dim = 64};
constexpr CacheShape kLarge{.layers = 1, .kv_heads = 8, .group = 4, .head_dim = 128};

std::string text_of(const std::string& policy, const CacheShape& shape, KvType type,
                    const std::string& rows) {
  return policy + ", " + std::to_string(shape.kv_heads) + " KV heads, d = " + std::to_string(shape.head_dim) +
         ", " + rows + ", " + type_text(type);
}

double key_bytes(const CacheShape& shape, KvType type, int rows) {
  return static_cast<double>(row_bytes(type, shape.head_dim)) * rows * shape.kv_heads;
}

/// Layers that are scored in turn, their heads shared out to threads.
class Scores {
 public:
  Scores(const std::string& policy, const CacheShape& shape, KvType type, int rows, int layers, Team& team)
      : team_(team) {
    for (int i = 0; i < layers; ++i)
      layers_.push_back(std::make_unique<Layer>(policy, shape, type, rows, 128, team.threads()));
  }
  void run() {
    team_.run(part_);
    next_ = (next_ + 1) % layers_.size();
  }

 private:
  void score(int thread) const {
    const int heads = layers_[next_]->heads();
    layers_[next_]->score_heads(heads * thread / team_.threads(), heads * (thread + 1) / team_.threads(),
                                thread);
  }

  Team& team_;
  std::vector<std::unique_ptr<Layer>> layers_;
  std::size_t next_ = 0;
  const Team::Part part_ = [this](int thread) { score(thread); };
};

KernelCase score_case(const std::string& policy, const CacheShape& shape, KvType type, int rows,
                      Source source, int threads) {
  KernelCase scores;
  scores.kernel = "scores";
  scores.shape = text_of(policy, shape, type, "n = " + std::to_string(rows)) + source_text(source, threads);
  scores.bytes = key_bytes(shape, type, rows);
  scores.threads = threads;
  scores.source = source;
  scores.reads = true;
  const int layers = source == Source::kCache ? 1 : static_cast<int>(std::ceil(kTurnBytes / scores.bytes));
  scores.prepare = [=](Team& team) {
    return Work([data = std::make_shared<Scores>(policy, shape, type, rows, layers, team)] { data->run(); });
  };
  return scores;
}

/// What is measured by its bytes, on one thread and in the caches.
KernelCase cached_case(const char* kernel, std::string shape, double bytes,
                       std::function<Work(Team&)> prepare) {
  KernelCase cached{.kernel = kernel, .shape = std::move(shape), .bytes = bytes};
  cached.prepare = std::move(prepare);
  return cached;
}

KernelCase evict_case(const std::string& policy, int budget, int block) {
  const auto prepare = [=](Team&) {
    auto layer = std::make_shared<Layer>(policy, kSmall, KvType::kF16, budget + block, block);
    return Work([layer] { layer->evict(); });
  };
  const std::string rows = "N = " + std::to_string(budget) + ", B = " + std::to_string(block);
  return cached_case("eviction", text_of(policy, kSmall, KvType::kF16, rows),
                     key_bytes(kSmall, KvType::kF16, budget + block), prepare);
}

struct Candidates {
  std::vector<float> scores;
  std::vector<Position> positions;
  std::vector<Row> kept;
};

KernelCase selection_case(int rows) {
  const auto prepare = [rows](Team&) {
    auto data = std::make_shared<Candidates>();
    data->scores = normal_numbers(size(rows));
    for (int i = 0; i < rows; ++i) data->positions.push_back(Position{i});
    return Work([data, keep = rows / 16 * 15] {
      select_top_k({data->scores, data->positions}, keep, data->kept);
    });
  };
  return cached_case("selection", std::to_string(rows / 16 * 15) + " of " + std::to_string(rows), 4.0 * rows,
                     prepare);
}

/// Compaction after a block of 128 on 2176 rows: what the tail keeps fills 100 holes anywhere.
KernelCase moves_case(int head_dim) {
  constexpr int kRows = 2048, kHoles = 100;
  const auto layout = PageLayout::make(KvType::kF16, head_dim, 0);
  const auto prepare = [layout](Team&) {
    auto heads = std::make_shared<Heads>(layout, 1, kRows + 128);
    std::mt19937 random(1);
    std::vector<Row> holes;
    for (int i = 0; i < kHoles; ++i) holes.push_back(Row{static_cast<std::int32_t>(random() % kRows)});
    std::sort(holes.begin(), holes.end());
    return Work([heads, holes] {
      std::int32_t from = kRows;
      for (const Row to : holes) move_row(heads->views()[0], Row{from++}, to);
    });
  };
  const double bytes = 4.0 * kHoles * static_cast<double>(row_bytes(layout.type, head_dim));
  return cached_case("rows", "100 rows moved, d = " + std::to_string(head_dim) + ", f16", bytes, prepare);
}

KernelCase writes_case(int head_dim, KvType type) {
  constexpr int kTokens = 128;
  const auto layout = PageLayout::make(type, head_dim, 0);
  const auto prepare = [layout, head_dim](Team&) {
    auto heads = std::make_shared<Heads>(layout, 1, 256);
    return Work([heads, numbers = normal_numbers(size(kTokens * head_dim)), stride = size(head_dim),
                 positions = std::vector<Position>(kTokens, Position{1})] {
      write_rows(heads->views()[0], Row{40}, kTokens, numbers.data(), stride, numbers.data(), stride,
                 positions.data());
    });
  };
  const double bytes = 2.0 * kTokens * (4.0 * head_dim + static_cast<double>(row_bytes(type, head_dim)));
  return cached_case("rows", "128 rows written, d = " + std::to_string(head_dim) + ", " + type_text(type),
                     bytes, prepare);
}

/// Keys that one layer has in the caches; those of several layers, or of a long one, come from memory.
void add_scores(std::vector<KernelCase>& cases, const std::string& policy, int threads) {
  for (const KvType type : {KvType::kF16, KvType::kF32}) {
    cases.push_back(score_case(policy, kLarge, type, 2176, Source::kCache, threads));
    cases.push_back(score_case(policy, kLarge, type, 2176, Source::kMemory, threads));
    cases.push_back(score_case(policy, kLarge, type, 32768, Source::kMemory, threads));
  }
}

}  // namespace

void add_cache_cases(std::vector<KernelCase>& cases, int threads) {
  for (const char* policy : {"keydiff", "nestedkv", "knorm"}) {
    cases.push_back(score_case(policy, kSmall, KvType::kF16, 2176, Source::kCache, 1));
    add_scores(cases, policy, 1);
  }
  if (threads > 1) add_scores(cases, "keydiff", threads);
  for (const char* policy : {"sink", "keydiff", "nestedkv", "knorm", "tova", "snapkv", "h2o"}) {
    for (const int block : {1, 64, 128, 256}) cases.push_back(evict_case(policy, 2048, block));
  }
  for (const int rows : {2176, 65536}) cases.push_back(selection_case(rows));
  for (const int head_dim : {64, 128}) cases.push_back(moves_case(head_dim));
  for (const int head_dim : {64, 128}) cases.push_back(writes_case(head_dim, KvType::kF16));
  cases.push_back(writes_case(64, KvType::kQ8_0));
}

}  // namespace keynest::bench
