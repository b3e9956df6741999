// Kernels on one thread and one KV head, where nothing else is said. FLOPS: 4 * head_dim per visible (query,
// key) pair; bytes: of pages read.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "bench/ggml_ops.h"
#include "bench/peak.h"
#include "kernel_inputs.h"
#include "kernels/attention.h"
#include "kernels/key_scores.h"
#include "kernels/rows.h"
#include "kernels/select.h"

namespace keynest::bench {
namespace {

double attention_flops(int head_dim, int rows, int tokens, int group) {
  const double pairs = static_cast<double>(rows - tokens) * tokens + 0.5 * tokens * (tokens + 1);
  return 4.0 * head_dim * group * pairs;
}

void set_rates(benchmark::State& state, double flops, double bytes) {
  using benchmark::Counter;
  if (flops > 0)
    state.counters["FLOPS"] = Counter(flops, Counter::kIsIterationInvariantRate, Counter::kIs1000);
  if (bytes > 0)
    state.counters["bytes/s"] = Counter(bytes, Counter::kIsIterationInvariantRate, Counter::kIs1000);
}

double page_bytes(const Head& head) {
  return 2.0 * head.rows * static_cast<double>(row_bytes(head.layout.type, head.layout.head_dim));
}

// Arguments of the attention benchmarks: head_dim, group, entries, tokens, type.
struct Shape {
  int head_dim, group, rows, tokens;
  KvType type;
  explicit Shape(const benchmark::State& state)
      : head_dim(static_cast<int>(state.range(0))),
        group(static_cast<int>(state.range(1))),
        rows(static_cast<int>(state.range(2) + state.range(3))),
        tokens(static_cast<int>(state.range(3))),
        type(static_cast<KvType>(state.range(4))) {}
};

void fma_peak(benchmark::State& state) {
  double flops = 0;
  for (auto _ : state) flops = run_fma(1 << 18);
  set_rates(state, flops, 0);
}

void attend_block(benchmark::State& state) {
  const Shape shape(state);
  const Head head(shape.type, shape.head_dim, shape.rows);
  Queries q(head, shape.tokens, shape.group);
  std::vector<std::byte> scratch(attention_scratch_bytes(head.layout, shape.group));
  for (auto _ : state) {
    attend(head.view(), q.block, 0, shape.tokens, scratch.data());
    benchmark::ClobberMemory();
  }
  set_rates(state, attention_flops(shape.head_dim, shape.rows, shape.tokens, shape.group), 0);
}

void attend_block_ggml(benchmark::State& state) {
  const Shape shape(state);
  const auto attention = ggml_attention(shape.head_dim, shape.rows, shape.tokens, shape.group);
  for (auto _ : state) attention->run();
  set_rates(state, attention_flops(shape.head_dim, shape.rows, shape.tokens, shape.group), 0);
}

void attend_decode(benchmark::State& state) {
  const Shape shape(state);
  const Head head(shape.type, shape.head_dim, shape.rows);
  Queries q(head, shape.tokens, shape.group);
  std::vector<std::byte> scratch(attention_scratch_bytes(head.layout, shape.group));
  const auto queries = static_cast<std::size_t>(shape.group * shape.tokens);
  Floats max(queries), sum(queries), out(queries * static_cast<std::size_t>(shape.head_dim));
  const PartialAttention partial{max.data(), sum.data(), out.data()};
  for (auto _ : state) {
    attend_pages(head.view(), q.block, 0, head.view().page_count(), partial, scratch.data());
    merge_partials(q.block, shape.head_dim, &partial, 1);
    benchmark::ClobberMemory();
  }
  set_rates(state, attention_flops(shape.head_dim, shape.rows, shape.tokens, shape.group), page_bytes(head));
}

void attend_decode_ggml(benchmark::State& state) {
  const Shape shape(state);
  const auto attention = ggml_attention(shape.head_dim, shape.rows, shape.tokens, shape.group);
  for (auto _ : state) attention->run();
  set_rates(state, attention_flops(shape.head_dim, shape.rows, shape.tokens, shape.group),
            4.0 * shape.rows * shape.head_dim);
}

void column_sums(benchmark::State& state) {
  const Shape shape(state);
  const Head head(shape.type, shape.head_dim, shape.rows);
  Queries q(head, shape.tokens, shape.group);
  std::vector<std::byte> scratch(attention_scratch_bytes(head.layout, shape.group));
  Floats max(static_cast<std::size_t>(shape.tokens * shape.group)), sum(max.size());
  Floats columns(static_cast<std::size_t>(shape.rows));
  q.block.row_max = max.data();
  q.block.row_sum = sum.data();
  attention_statistics(head.view(), q.block, 0, shape.tokens, scratch.data());
  for (auto _ : state) {
    add_attention_columns(head.view(), q.block, 0, shape.tokens, columns.data(), scratch.data());
    benchmark::ClobberMemory();
  }
  set_rates(state, attention_flops(shape.head_dim, shape.rows, shape.tokens, shape.group) / 2, 0);
}

/// KeyDiff's scoring of one head: anchor, then cosine.
void keydiff_scores(benchmark::State& state) {
  const auto rows = static_cast<int>(state.range(1)), d = static_cast<int>(state.range(0));
  const Head head(KvType::kF16, d, rows);
  std::vector<double> anchor(static_cast<std::size_t>(d));
  Floats scores(static_cast<std::size_t>(rows));
  for (auto _ : state) {
    sum_unit_keys(head.view(), anchor.data());
    const Floats anchor_floats(anchor.begin(), anchor.end());
    cosine_keys(head.view(), anchor_floats.data(), scores.data());
    benchmark::ClobberMemory();
  }
  set_rates(state, 0, page_bytes(head));
}

/// KeyDiff's scoring of the 8 heads of a layer, shared out to the threads; bytes: of keys, once.
void keydiff_layer(benchmark::State& state) {
  const auto d = static_cast<int>(state.range(0)), rows = static_cast<int>(state.range(1));
  const auto type = static_cast<KvType>(state.range(2));
  const int heads = 8 / state.threads();
  std::vector<std::unique_ptr<Head>> layer;
  for (int h = 0; h < heads; ++h) layer.push_back(std::make_unique<Head>(type, d, rows));
  std::vector<double> sum(static_cast<std::size_t>(d));
  Floats anchor(sum.size()), scores(static_cast<std::size_t>(rows));
  for (auto _ : state) {
    for (const auto& head : layer) {
      sum_unit_keys(head->view(), sum.data());
      std::transform(sum.begin(), sum.end(), anchor.begin(), [](double x) { return static_cast<float>(-x); });
      cosine_keys(head->view(), anchor.data(), scores.data());
      benchmark::ClobberMemory();
    }
  }
  set_rates(state, 0, heads * page_bytes(*layer[0]) / 2);
}

/// Copies as many bytes as the keys of such a layer have; bytes: read and written.
void copy_peak(benchmark::State& state) {
  const std::size_t bytes =
      static_cast<std::size_t>(state.range(0)) / static_cast<std::size_t>(state.threads());
  std::vector<char> from(bytes, 1), to(bytes, 2);
  for (auto _ : state) {
    std::memcpy(to.data(), from.data(), bytes);
    benchmark::ClobberMemory();
  }
  set_rates(state, 0, 2.0 * static_cast<double>(bytes));
}

void top_k(benchmark::State& state) {
  const auto rows = static_cast<std::size_t>(state.range(0));
  const Floats scores = normal_floats(rows);
  std::vector<Position> positions;
  std::vector<Row> kept;
  for (std::size_t i = 0; i < rows; ++i) positions.push_back(Position{static_cast<std::int32_t>(i)});
  for (auto _ : state) select_top_k({scores, positions}, static_cast<std::int64_t>(rows * 15 / 16), kept);
}

void write_block(benchmark::State& state) {
  const auto d = static_cast<int>(state.range(0));
  const Head head(static_cast<KvType>(state.range(1)), d, 256);
  const Floats numbers = normal_floats(static_cast<std::size_t>(128 * d));
  const std::vector<Position> positions(128, Position{1});
  const auto stride = static_cast<std::size_t>(d);
  for (auto _ : state) {
    write_rows(head.view(), Row{40}, 128, numbers.data(), stride, numbers.data(), stride, positions.data());
    benchmark::ClobberMemory();
  }
}

/// Compaction after a block of 128 on 2176 rows: what the tail keeps fills holes anywhere.
void move_rows(benchmark::State& state) {
  const Head head(static_cast<KvType>(state.range(1)), static_cast<int>(state.range(0)), 2176);
  std::mt19937 random(1);
  std::vector<Row> holes;
  for (int i = 0; i < 100; ++i) holes.push_back(Row{static_cast<std::int32_t>(random() % 2048)});
  std::sort(holes.begin(), holes.end());
  for (auto _ : state) {
    std::int32_t from = 2048;
    for (const Row to : holes) move_row(head.view(), Row{from++}, to);
    benchmark::ClobberMemory();
  }
}

void prefill_shapes(benchmark::internal::Benchmark* b) {
  const auto f16 = static_cast<std::int64_t>(KvType::kF16);
  b->ArgNames({"d", "group", "n", "B", "type"});
  for (const std::int64_t d : {64, 128}) {
    for (const std::int64_t group : {4, 7}) b->Args({d, group, 4096, 128, f16});
  }
  b->Args({64, 3, 2048, 128, f16})->Args({64, 7, 2048, 128, f16})->Args({80, 4, 2048, 128, f16});
  b->Args({256, 4, 2048, 128, f16});
}

void decode_shapes(benchmark::internal::Benchmark* b) {
  const auto f16 = static_cast<std::int64_t>(KvType::kF16);
  b->ArgNames({"d", "group", "n", "B", "type"});
  for (const std::int64_t d : {64, 128}) {
    for (const std::int64_t n : {2048, 8192, 32768}) {
      for (const std::int64_t group : {1, 4, 5, 7}) b->Args({d, group, n, 1, f16});
    }
  }
}

void all_types(benchmark::internal::Benchmark* b) {
  b->ArgNames({"d", "group", "n", "B", "type"});
  for (const KvType type : {KvType::kF32, KvType::kBF16, KvType::kQ8_0}) {
    b->Args({64, 7, 4096, 1, static_cast<std::int64_t>(type)});
  }
}

BENCHMARK(fma_peak);
BENCHMARK(attend_block)->Apply(prefill_shapes);
BENCHMARK(attend_block_ggml)->Apply(prefill_shapes);
BENCHMARK(attend_decode)->Apply(decode_shapes)->Apply(all_types);
BENCHMARK(attend_decode_ggml)->Apply(decode_shapes);
BENCHMARK(column_sums)->Apply(prefill_shapes);
BENCHMARK(keydiff_scores)->ArgNames({"d", "n"})->Args({64, 2176})->Args({128, 2176});
BENCHMARK(keydiff_layer)
    ->ArgNames({"d", "n", "type"})
    ->ArgsProduct({{128}, {2176, 32768}, {0, 1}})
    ->ThreadRange(1, 2)
    ->UseRealTime();
BENCHMARK(copy_peak)
    ->ArgNames({"bytes"})
    ->Arg(8 * 2176 * 128 * 2)
    ->Arg(8 * 2176 * 128 * 4)
    ->Arg(8 * 32768 * 128 * 2)
    ->Arg(8 * 32768 * 128 * 4)
    ->ThreadRange(1, 2)
    ->UseRealTime();
BENCHMARK(top_k)->ArgNames({"n"})->Arg(2176)->Arg(65536);
BENCHMARK(move_rows)->ArgNames({"d", "type"})->Args({64, 1})->Args({128, 1});
BENCHMARK(write_block)->ArgNames({"d", "type"})->Args({64, 1})->Args({128, 1})->Args({64, 3});

}  // namespace
}  // namespace keynest::bench

BENCHMARK_MAIN();
