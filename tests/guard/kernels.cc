// Kernels on one thread and f16 pages. Sizes are small: a count needs no repetition, and callgrind takes a
// thousand times as long as the machine for a fused multiplication.
#include <cstring>
#include <string>
#include <vector>

#include "bench/fixtures.h"
#include "bench/layer.h"
#include "guard.h"
#include "kernels/matmul.h"
#include "kernels/rotate.h"
#include "kernels/rows.h"

namespace keynest::guard {
namespace {

using bench::Aligned;
using bench::Heads;
using bench::size;

constexpr int kBlock = 32;
constexpr int kRows = 256 + kBlock;

/// One head, the queries of its last tokens, and what attention needs besides.
struct Attention {
  Heads heads;
  bench::HeadQueries queries;
  Aligned scratch;

  Attention(int head_dim, int rows, int tokens, int group)
      : heads(PageLayout::make(KvType::kF16, head_dim, 0), 1, rows),
        queries(heads, tokens, group),
        scratch(attention_scratch_bytes(heads.layout(), group)) {}
  const HeadRows& rows() const { return heads.views()[0]; }
  const QueryBlock& block() const { return queries.blocks()[0]; }
};

void count_prefill(int head_dim, int group) {
  const Attention a(head_dim, kRows, kBlock, group);
  count_again("attention.prefill.d" + std::to_string(head_dim),
              [&] { attend(a.rows(), a.block(), 0, kBlock, a.scratch.data()); });
}

void count_decode(int head_dim, int group) {
  const Attention a(head_dim, 1024, 1, group);
  std::vector<float> max(size(group)), sum(size(group)), out(size(group * head_dim));
  const PartialAttention partial{max.data(), sum.data(), out.data()};
  count_again("attention.decode.d" + std::to_string(head_dim), [&] {
    attend_pages(a.rows(), a.block(), 0, a.rows().page_count(), partial, a.scratch.data());
    merge_partials(a.block(), head_dim, &partial, 1);
  });
}

/// What policies that look at attention take: the statistics of a window of queries, sums over its columns.
void count_columns() {
  const Attention a(64, kRows, kBlock, 7);
  std::vector<float> columns(size(kRows));
  count_again("attention.statistics",
              [&] { attention_statistics(a.rows(), a.block(), 0, kBlock, a.scratch.data()); });
  count_again("attention.column_sums", [&] {
    add_attention_columns(a.rows(), a.block(), 0, kBlock, columns.data(), a.scratch.data());
  });
}

/// Observing a block and scoring all entries of two heads, then the same with choosing what stays.
void count_policy(const std::string& policy, int head_dim) {
  bench::Layer layer(policy, {1, 2, 7, head_dim}, KvType::kF16, kRows, kBlock);
  const std::string of = policy + ".d" + std::to_string(head_dim);
  count_again("score." + of, [&] { layer.score(); });
  count_again("score_and_select." + of, [&] { layer.evict(); });
}

void count_rows(int head_dim) {
  const std::string of_dim = ".d" + std::to_string(head_dim);
  const Heads heads(PageLayout::make(KvType::kF16, head_dim, 0), 1, kRows);
  const HeadRows& rows = heads.views()[0];
  const std::vector<float> numbers = bench::normal_numbers(size(kBlock * head_dim));
  const std::vector<Position> positions(size(kBlock), Position{1});
  count_again("rows.append" + of_dim, [&] {
    write_rows(rows, Row{40}, kBlock, numbers.data(), size(head_dim), numbers.data(), size(head_dim),
               positions.data());
  });
  count_again("rows.move" + of_dim, [&] {
    for (std::int32_t i = 0; i < kBlock; ++i) move_row(rows, Row{256 + i}, Row{i * 8});
  });
  const std::vector<float> frequencies(size(head_dim / 2), 0.01f);
  std::vector<RowTurn> turns;
  for (std::int32_t i = 0; i < kBlock; ++i) turns.push_back({Row{i * 8}, -(i / 4)});
  count_again("rows.rotate" + of_dim, [&] { rotate_keys(rows, turns, {frequencies, false}); });
}

void copy_row(const void* row, float* out, std::int64_t columns) {
  std::memcpy(out, row, static_cast<std::size_t>(columns) * sizeof(float));
}

/// The panel that callgrind's CPU can run.
void count_products() {
  const std::vector<float> data = bench::normal_numbers(size(kPanelRows * kPanelDepth));
  const std::vector<float> activations = bench::normal_numbers(size(kBlock * kPanelDepth));
  WeightMatrix weights;
  weights.data = reinterpret_cast<const std::byte*>(data.data());
  weights.row_bytes = kPanelDepth * sizeof(float);
  weights.rows = kPanelRows;
  weights.columns = kPanelDepth;
  weights.to_float = copy_row;
  std::vector<float> out(size(kBlock * kPanelRows));
  const Aligned scratch(float_matmul_scratch_bytes());
  count_again("products.panel", [&] {
    float_matmul_panel(weights, 0, kPanelRows, activations.data(), kBlock, out.data(), size(kPanelRows),
                       scratch.data());
  });
}

}  // namespace

void count_kernels() {
  count_columns();
  for (const int head_dim : {64, 128}) {
    count_prefill(head_dim, head_dim == 64 ? 7 : 4);
    count_decode(head_dim, head_dim == 64 ? 7 : 4);
    count_policy("keydiff", head_dim);
    count_policy("nestedkv", head_dim);
    count_rows(head_dim);
  }
  count_products();
}

}  // namespace keynest::guard
