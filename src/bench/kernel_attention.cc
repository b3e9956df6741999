// Attention of a block, and the sums over columns that h2o and snapkv need.
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

std::string text_of(const Shape& shape) {
  return "d = " + std::to_string(shape.head_dim) + ", " + std::to_string(shape.group) +
         " query heads, n = " + std::to_string(shape.entries) + ", B = " + std::to_string(shape.tokens) +
         ", " + type_text(shape.type);
}

/// A head, its queries, and everything attention writes to.
struct Attention {
  Heads heads;
  HeadQueries queries;
  Aligned scratch;
  std::vector<float> columns;

  explicit Attention(const Shape& shape)
      : heads(PageLayout::make(shape.type, shape.head_dim, 0), 1, shape.rows()),
        queries(heads, shape.tokens, shape.group),
        scratch(attention_scratch_bytes(heads.layout(), shape.group)),
        columns(size(shape.rows())) {}

  const HeadRows& rows() const { return heads.views()[0]; }
  const QueryBlock& block() const { return queries.blocks()[0]; }
  void prefill() const { attend(rows(), block(), 0, block().tokens, scratch.data()); }
  void add_columns() {
    add_attention_columns(rows(), block(), 0, block().tokens, columns.data(), scratch.data());
  }
};

std::function<Work()> by_ggml(const Shape& shape) {
  if (shape.type != KvType::kF16) return {};
  return [shape] {
    std::shared_ptr<GgmlOp> op = ggml_attention({shape.head_dim, shape.rows(), shape.tokens, shape.group});
    return Work([op] { op->run(); });
  };
}

KernelCase attention_case(const char* kernel, const Shape& shape, void (*run)(Attention&)) {
  KernelCase attention{.kernel = kernel, .shape = text_of(shape)};
  attention.flops = attention_flops(shape.head_dim, shape.rows(), shape.tokens, shape.group);
  attention.prepare = [shape, run](Team&) {
    auto data = std::make_shared<Attention>(shape);
    data->prefill();  // leaves the statistics that the sums of columns need
    return Work([data, run] { run(*data); });
  };
  return attention;
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
    cases.push_back(
        attention_case("columns", {head_dim, 7, 2048, 128}, [](Attention& data) { data.add_columns(); }));
    cases.back().flops /= 2;  // keys alone
  }
}

}  // namespace keynest::bench
