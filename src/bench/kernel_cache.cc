// What an eviction is made of: scores, selection, moves of rows; and writing a block.
#include <algorithm>
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
         ", " + rows + (type == KvType::kF32 ? ", f32" : ", f16");
}

double key_bytes(const CacheShape& shape, KvType type, int rows) {
  return static_cast<double>(row_bytes(type, shape.head_dim)) * rows * shape.kv_heads;
}

KernelCase score_case(const std::string& policy, const CacheShape& shape, KvType type, int rows) {
  const auto prepare = [=] {
    auto layer = std::make_shared<Layer>(policy, shape, type, rows, 128);
    return Work([layer] { layer->score(); });
  };
  return {"scores", text_of(policy, shape, type, "n = " + std::to_string(rows)),
          0,        key_bytes(shape, type, rows),
          prepare,  {}};
}

KernelCase evict_case(const std::string& policy, int budget, int block) {
  const auto prepare = [=] {
    auto layer = std::make_shared<Layer>(policy, kSmall, KvType::kF16, budget + block, block);
    return Work([layer] { layer->evict(); });
  };
  const std::string rows = "N = " + std::to_string(budget) + ", B = " + std::to_string(block);
  return {"eviction", text_of(policy, kSmall, KvType::kF16, rows),
          0,          key_bytes(kSmall, KvType::kF16, budget + block),
          prepare,    {}};
}

struct Candidates {
  std::vector<float> scores;
  std::vector<Position> positions;
  std::vector<Row> kept;
};

KernelCase selection_case(int rows) {
  const auto prepare = [rows] {
    auto data = std::make_shared<Candidates>();
    data->scores = normal_numbers(size(rows));
    for (int i = 0; i < rows; ++i) data->positions.push_back(Position{i});
    return Work([data, keep = rows / 16 * 15] {
      select_top_k({data->scores, data->positions}, keep, data->kept);
    });
  };
  return {"selection", std::to_string(rows / 16 * 15) + " of " + std::to_string(rows), 0, 4.0 * rows, prepare,
          {}};
}

/// Compaction after a block of 128 on 2176 rows: what the tail keeps fills 100 holes anywhere.
KernelCase moves_case(int head_dim) {
  constexpr int kRows = 2048, kHoles = 100;
  const auto layout = PageLayout::make(KvType::kF16, head_dim, 0);
  const auto prepare = [layout] {
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
  return {"rows", "100 rows moved, d = " + std::to_string(head_dim) + ", f16", 0, bytes, prepare, {}};
}

KernelCase writes_case(int head_dim, KvType type) {
  constexpr int kTokens = 128;
  const auto layout = PageLayout::make(type, head_dim, 0);
  const auto prepare = [layout, head_dim] {
    auto heads = std::make_shared<Heads>(layout, 1, 256);
    return Work([heads, numbers = normal_numbers(size(kTokens * head_dim)), stride = size(head_dim),
                 positions = std::vector<Position>(kTokens, Position{1})] {
      write_rows(heads->views()[0], Row{40}, kTokens, numbers.data(), stride, numbers.data(), stride,
                 positions.data());
    });
  };
  const double bytes = 2.0 * kTokens * (4.0 * head_dim + static_cast<double>(row_bytes(type, head_dim)));
  return {"rows",
          "128 rows written, d = " + std::to_string(head_dim) + (type == KvType::kQ8_0 ? ", q8_0" : ", f16"),
          0,
          bytes,
          prepare,
          {}};
}

}  // namespace

void add_cache_cases(std::vector<KernelCase>& cases) {
  for (const char* policy : {"keydiff", "nestedkv", "knorm"}) {
    cases.push_back(score_case(policy, kSmall, KvType::kF16, 2176));
    cases.push_back(score_case(policy, kLarge, KvType::kF16, 2176));
    cases.push_back(score_case(policy, kLarge, KvType::kF32, 32768));
    cases.push_back(score_case(policy, kLarge, KvType::kF16, 32768));
  }
  for (const char* policy : {"sink", "keydiff", "nestedkv", "knorm", "tova", "snapkv", "h2o"}) {
    for (const int block : {64, 128, 256}) cases.push_back(evict_case(policy, 2048, block));
  }
  for (const int rows : {2176, 65536}) cases.push_back(selection_case(rows));
  for (const int head_dim : {64, 128}) cases.push_back(moves_case(head_dim));
  for (const int head_dim : {64, 128}) cases.push_back(writes_case(head_dim, KvType::kF16));
  cases.push_back(writes_case(64, KvType::kQ8_0));
}

}  // namespace keynest::bench
