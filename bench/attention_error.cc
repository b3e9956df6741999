// How far attention of a block over f16 keys and values is from its value in double: keynest's, ggml's, and
// forms made of BF16 dot products, of which only the rounding of what is multiplied is imitated (their sums
// are in double). Beside them, how far that value is from the one of the numbers before they were stored as
// f16, an error that every engine with such a cache makes. docs/performance.md says what follows.
#include <ggml-cpu.h>
#include <ggml.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <random>
#include <vector>

#include "bench/fixtures.h"
#include "kernels/attention.h"
#include "kernels/numbers.h"
#include "kernels/rows.h"

namespace keynest::bench {
namespace {

constexpr int kKeys = 4096, kTokens = 128;

using Floats = std::vector<float>;
using Doubles = std::vector<double>;

/// What keys and queries look like.
struct Kind {
  const char* name;
  int head_dim;
  float logits;  // their standard deviation
  bool large_dimensions;
};

/// One head: queries [kTokens, d] at the end of kKeys keys and values [kKeys, d], as f16 holds them and
/// before.
struct Problem {
  int d;
  Floats queries, whole_keys, whole_values, keys, values;

  explicit Problem(const Kind& kind) : d(kind.head_dim) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    const auto fill = [&](Floats& numbers, std::size_t count) {
      numbers.resize(count);
      for (float& x : numbers) x = normal(random);
    };
    fill(whole_keys, size(kKeys * d));
    fill(whole_values, size(kKeys * d));
    fill(queries, size(kTokens * d));
    for (float& x : queries) x *= kind.logits;
    if (kind.large_dimensions) enlarge();
    keys = stored(whole_keys);
    values = stored(whole_values);
  }
  double scale() const { return 1.0 / std::sqrt(static_cast<double>(d)); }

 private:
  /// As in Qwen2.5: a few dimensions of the keys in the hundreds, hardly changing, which most of a logit
  /// comes of.
  void enlarge() {
    for (std::size_t i = 0; i < whole_keys.size(); ++i) {
      const std::size_t dim = i % size(d);
      if (dim % 24 == 5) whole_keys[i] = (dim == 5 ? 250.0f : -80.0f) + 4 * whole_keys[i];
    }
  }
  static Floats stored(Floats numbers) {
    for (float& x : numbers) x = from_f16(to_f16(x));
    return numbers;
  }
};

/// How a number enters a product: whole, or as the sum of so many BF16 numbers.
struct Parts {
  int count;  // 0: whole
  double operator()(double x) const {
    if (count == 0) return x;
    double sum = 0;
    for (int i = 0; i < count; ++i) sum += from_bf16(to_bf16(static_cast<float>(x - sum)));
    return sum;
  }
};

struct Form {
  const char* name;
  const char* cost;  // instructions, in those of F32
  Parts queries, keys, weights, values;
};

constexpr Form kExact = {"", "", {0}, {0}, {0}, {0}};
constexpr Form kForms[] = {
    {"BF16, all rounded once", "0.5", {1}, {1}, {1}, {1}},
    {"BF16, keys and values in two parts", "1", {1}, {2}, {1}, {2}},
    {"BF16, everything in two parts", "1.5 to 2", {2}, {2}, {2}, {2}},
};

void convert(const Floats& in, Parts parts, Doubles& out) {
  out.resize(in.size());
  for (std::size_t i = 0; i < in.size(); ++i) out[i] = parts(in[i]);
}

/// [kTokens, d]
Doubles attend_as(const Form& form, const Problem& p, const Floats& all_keys, const Floats& all_values) {
  const auto d = size(p.d);
  Doubles queries, keys, values, out(p.queries.size(), 0.0), weights;
  convert(p.queries, form.queries, queries);
  convert(all_keys, form.keys, keys);
  convert(all_values, form.values, values);
  for (int t = 0; t < kTokens; ++t) {
    weights.clear();
    const double* query = queries.data() + size(t) * d;
    for (int key = 0; key <= kKeys - kTokens + t; ++key) {
      double dot = 0;
      for (std::size_t j = 0; j < d; ++j) dot += query[j] * keys[size(key) * d + j];
      weights.push_back(dot * p.scale());
    }
    const double most = *std::max_element(weights.begin(), weights.end());
    double sum = 0;
    for (double& weight : weights) sum += weight = std::exp(weight - most);
    double* result = out.data() + size(t) * d;
    for (std::size_t key = 0; key < weights.size(); ++key) {
      const double weight = form.weights(weights[key]) / sum;
      for (std::size_t j = 0; j < d; ++j) result[j] += weight * values[key * d + j];
    }
  }
  return out;
}

Doubles attend_by_keynest(const Problem& p, KvType type) {
  const auto layout = PageLayout::make(type, p.d, 0);
  const Aligned memory(kKeys / kPageRows * layout.bytes);
  std::vector<std::byte*> list;
  for (std::size_t i = 0; i < kKeys / kPageRows; ++i) list.push_back(memory.data() + i * layout.bytes);
  const HeadRows head{&layout, list.data(), kKeys};
  std::vector<Position> positions;
  for (int i = 0; i < kKeys; ++i) positions.push_back(Position{i});
  write_rows(head, Row{0}, kKeys, p.keys.data(), size(p.d), p.values.data(), size(p.d), positions.data());
  Floats out(p.queries.size());
  QueryBlock block;
  block.queries = p.queries.data();
  block.token_stride = block.out_token_stride = size(p.d);
  block.tokens = kTokens;
  block.group = 1;
  block.positions = positions.data() + kKeys - kTokens;
  block.scale = static_cast<float>(p.scale());
  block.out = out.data();
  std::vector<std::byte> scratch(attention_scratch_bytes(layout, 1));
  attend(head, block, 0, kTokens, scratch.data());
  return {out.begin(), out.end()};
}

void to_half(const Floats& in, ggml_tensor* out) {
  ggml_fp32_to_fp16_row(in.data(), static_cast<ggml_fp16_t*>(out->data),
                        static_cast<std::int64_t>(in.size()));
}

Doubles attend_by_ggml(const Problem& p) {
  const std::unique_ptr<ggml_context, decltype(&ggml_free)> context(ggml_init({64u << 20, nullptr, false}),
                                                                    ggml_free);
  ggml_context* c = context.get();
  ggml_tensor* q = ggml_new_tensor_3d(c, GGML_TYPE_F32, p.d, kTokens, 1);
  ggml_tensor* k = ggml_new_tensor_3d(c, GGML_TYPE_F16, p.d, kKeys, 1);
  ggml_tensor* v = ggml_new_tensor_3d(c, GGML_TYPE_F16, p.d, kKeys, 1);
  ggml_tensor* mask = ggml_new_tensor_2d(c, GGML_TYPE_F16, kKeys, kTokens);
  std::copy(p.queries.begin(), p.queries.end(), static_cast<float*>(q->data));
  to_half(p.keys, k);
  to_half(p.values, v);
  auto* visible = static_cast<ggml_fp16_t*>(mask->data);
  for (int t = 0; t < kTokens; ++t) {
    for (int key = 0; key < kKeys; ++key)
      *visible++ = ggml_fp32_to_fp16(key <= kKeys - kTokens + t ? 0 : -INFINITY);
  }
  ggml_tensor* out = ggml_flash_attn_ext(c, q, k, v, mask, static_cast<float>(p.scale()), 0.0f, 0.0f);
  ggml_cgraph* graph = ggml_new_graph(c);
  ggml_build_forward_expand(graph, out);
  ggml_cplan plan = ggml_graph_plan(graph, 1, nullptr);
  std::vector<std::uint8_t> work(plan.work_size);
  plan.work_data = work.data();
  ggml_graph_compute(graph, &plan);
  const auto* result = static_cast<const float*>(out->data);
  return {result, result + p.queries.size()};
}

/// Errors relative to the root mean square of the exact outputs.
void print_row(const char* form, const char* cost, const Doubles& out, const Doubles& exact) {
  double most = 0, squares = 0, of_exact = 0;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    const double error = std::fabs(out[i] - exact[i]);
    most = std::max(most, error);
    squares += error * error;
    of_exact += exact[i] * exact[i];
  }
  const double size_of_exact = std::sqrt(of_exact / static_cast<double>(exact.size()));
  std::printf("| %s | %s | %.1e | %.1e |\n", form, cost, most / size_of_exact,
              std::sqrt(squares / static_cast<double>(exact.size())) / size_of_exact);
}

void print_table(const Kind& kind) {
  const Problem p(kind);
  const Doubles exact = attend_as(kExact, p, p.keys, p.values);
  std::printf("d = %d, n = %d, B = %d, %s:\n\n", kind.head_dim, kKeys, kTokens, kind.name);
  std::printf("| form | multiplications | largest error | root mean square |\n| --- | --- | --- | --- |\n");
  print_row("keys and values stored as f16", "", attend_as(kExact, p, p.whole_keys, p.whole_values), exact);
  print_row("keynest, f16 cache", "0.5 with VNNI, else 1", attend_by_keynest(p, KvType::kF16), exact);
  print_row("keynest, f32 cache", "1", attend_by_keynest(p, KvType::kF32), exact);
  print_row("`ggml_flash_attn_ext`", "1", attend_by_ggml(p), exact);
  for (const Form& form : kForms)
    print_row(form.name, form.cost, attend_as(form, p, p.keys, p.values), exact);
  std::printf("\n");
}

constexpr Kind kKinds[] = {
    {"flat: logits with a deviation of 0.1", 64, 0.1f, false},
    {"logits with a deviation of 1", 64, 1.0f, false},
    {"logits with a deviation of 4", 64, 4.0f, false},
    {"logits with a deviation of 4", 128, 4.0f, false},
    {"peaked: logits with a deviation of 12", 64, 12.0f, false},
    {"three dimensions of the keys in the hundreds", 64, 1.0f, true},
};

}  // namespace
}  // namespace keynest::bench

int main() {
  for (const auto& kind : keynest::bench::kKinds) keynest::bench::print_table(kind);
}
