// Attention of a block and of a generated token, and the sums over columns that h2o and snapkv need.
#include <algorithm>
#include <memory>

#include "bench/fixtures.h"
#include "bench/ggml_ops.h"
#include "bench/kernel_cases.h"

namespace keynest::bench {
namespace {

struct Shape {
  int head_dim, group, entries, tokens;
  KvType type = KvType::kF16;
  int rows() const { return entries + tokens; }
};

const char* type_name(KvType type) {
  constexpr const char* kNames[] = {"f32", "f16", "bf16", "q8_0"};
  return kNames[static_cast<int>(type)];
}

std::string text_of(const Shape& shape) {
  return "d = " + std::to_string(shape.head_dim) + ", " + std::to_string(shape.group) +
         " query heads, n = " + std::to_string(shape.entries) + ", B = " + std::to_string(shape.tokens) +
         ", " + type_name(shape.type);
}

/// A head, its queries, and everything attention writes to.
struct Attention {
  Heads heads;
  HeadQueries queries;
  Aligned scratch;
  std::vector<float> max, sum, out, columns;

  explicit Attention(const Shape& shape)
      : heads(PageLayout::make(shape.type, shape.head_dim, 0), 1, shape.rows()),
        queries(heads, shape.tokens, shape.group),
        scratch(attention_scratch_bytes(heads.layout(), shape.group)),
        max(size(shape.tokens * shape.group)),
        sum(max.size()),
        out(max.size() * size(shape.head_dim)),
        columns(size(shape.rows())) {}

  const HeadRows& rows() const { return heads.views()[0]; }
  const QueryBlock& block() const { return queries.blocks()[0]; }
  void prefill() const { attend(rows(), block(), 0, block().tokens, scratch.data()); }
  void decode() {
    const PartialAttention partial{max.data(), sum.data(), out.data()};
    attend_pages(rows(), block(), 0, rows().page_count(), partial, scratch.data());
    merge_partials(block(), heads.layout().head_dim, &partial, 1);
  }
  void add_columns() {
    add_attention_columns(rows(), block(), 0, block().tokens, columns.data(), scratch.data());
  }
};

std::function<Work()> by_ggml(const Shape& shape) {
  if (shape.type != KvType::kF16) return {};
  return [shape] {
    std::shared_ptr<GgmlOp> op = ggml_attention(shape.head_dim, shape.rows(), shape.tokens, shape.group);
    return Work([op] { op->run(); });
  };
}

KernelCase attention_case(const char* kernel, const Shape& shape, void (*run)(Attention&)) {
  const double flops = attention_flops(shape.head_dim, shape.rows(), shape.tokens, shape.group);
  const auto prepare = [shape, run] {
    auto data = std::make_shared<Attention>(shape);
    data->prefill();  // leaves the statistics that the sums of columns need
    return Work([data, run] { run(*data); });
  };
  return {kernel, text_of(shape), flops, 0, prepare, {}};
}

void add_decode(std::vector<KernelCase>& cases, const Shape& shape) {
  KernelCase decode = attention_case("decode", shape, [](Attention& data) { data.decode(); });
  decode.flops = 0;
  decode.bytes = 2.0 * shape.rows() * static_cast<double>(row_bytes(shape.type, shape.head_dim));
  decode.ggml = by_ggml(shape);
  cases.push_back(std::move(decode));
}

}  // namespace

void add_attention_cases(std::vector<KernelCase>& cases) {
  const Shape blocks[] = {{64, 7, 4096, 128},
                          {64, 4, 4096, 128},
                          {128, 7, 4096, 128},
                          {128, 4, 4096, 128},
                          {64, 7, 2048, 64},
                          {64, 7, 2048, 128},
                          {64, 7, 2048, 256},
                          {64, 3, 2048, 128},
                          {80, 4, 2048, 128},
                          {256, 4, 2048, 128},
                          {64, 7, 2048, 128, KvType::kQ8_0}};
  for (const Shape& shape : blocks) {
    cases.push_back(attention_case("prefill", shape, [](Attention& data) { data.prefill(); }));
    cases.back().ggml = by_ggml(shape);
  }
  for (const int head_dim : {64, 128}) {
    for (const int entries : {2048, 8192, 32768}) {
      for (const int group : {7, 4, 1}) add_decode(cases, {head_dim, group, entries, 1});
    }
  }
  for (const KvType type : {KvType::kF32, KvType::kBF16, KvType::kQ8_0})
    add_decode(cases, {64, 7, 8192, 1, type});
  for (const int head_dim : {64, 128}) {
    cases.push_back(
        attention_case("columns", {head_dim, 7, 2048, 128}, [](Attention& data) { data.add_columns(); }));
    cases.back().flops /= 2;  // keys alone
  }
}

}  // namespace keynest::bench
