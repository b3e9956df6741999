#include "harness.h"

#include <ggml-cpu.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <new>
#include <random>

namespace keynest::bench {
namespace {

struct Shape {
  int k, n;
};
// Qwen2.5-0.5B: gate and up, down, query and output, key and value.
constexpr Shape kShapes[] = {{896, 4864}, {4864, 896}, {896, 896}, {896, 128}};
constexpr int kTokens[] = {64, 128, 256};
constexpr std::size_t kAllCopiesBytes = std::size_t{64} << 20;  // twice the largest cache
constexpr double kSeconds = 0.06;
constexpr double kAllowedError = 0.02;

std::vector<float> normal_floats(std::size_t count, float deviation, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, deviation);
  std::vector<float> numbers(count);
  for (float& number : numbers) number = normal(random);
  return numbers;
}

Weights random_weights(ggml_type type, Shape shape) {
  const auto count = static_cast<std::size_t>(shape.n) * static_cast<std::size_t>(shape.k);
  Weights w{type, shape.n, shape.k, {}, std::vector<float>(count), ggml_row_size(type, shape.k)};
  const std::vector<float> numbers = normal_floats(count, 0.02f, 1);
  w.stored.resize(w.row_bytes * static_cast<std::size_t>(shape.n));
  ggml_quantize_chunk(type, numbers.data(), w.stored.data(), 0, shape.n, shape.k, nullptr);
  ggml_get_type_traits(type)->to_float(w.stored.data(), w.values.data(), static_cast<std::int64_t>(count));
  return w;
}

/// Distance from the product in double precision over its size, for a sample of the tokens.
///   values: [n, k] of w.
double relative_error(const Weights& w, const float* values, const float* x, const float* y, int tokens) {
  double wrong = 0, size = 0;
  for (int token = tokens - 1; token >= 0; token -= 17) {
    const float* input = x + static_cast<std::size_t>(token) * static_cast<std::size_t>(w.k);
    for (int row = 0; row < w.n; ++row) {
      const float* weights = values + static_cast<std::size_t>(row) * static_cast<std::size_t>(w.k);
      double sum = 0;
      for (int i = 0; i < w.k; ++i) sum += static_cast<double>(weights[i]) * static_cast<double>(input[i]);
      const double got = static_cast<double>(
          y[static_cast<std::size_t>(token) * static_cast<std::size_t>(w.n) + static_cast<std::size_t>(row)]);
      wrong += (got - sum) * (got - sum);
      size += sum * sum;
    }
  }
  return std::sqrt(wrong / size);
}

/// Processor time of this process in seconds: what else runs on the core does not count.
double processor_seconds() {
  timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// Median time of a run in seconds, over all copies in turn.
double median_seconds(const Product& product, int copies, const float* x, float* y) {
  std::vector<double> times;
  double total = 0;
  for (int i = 0; total < kSeconds || times.size() < 5; ++i) {
    const double start = processor_seconds();
    product.run(i % copies, x, y);
    times.push_back(processor_seconds() - start);
    total += times.back();
  }
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2), times.end());
  return times[times.size() / 2];
}

/// False where the product is wrong.
bool measure(const Candidate& candidate, const Weights& w, int tokens) {
  const int copies = static_cast<int>(kAllCopiesBytes / w.stored.size() + 1);
  const std::optional<Product> product = candidate.make(w, copies, tokens);
  if (!product) return true;
  const auto t = static_cast<std::size_t>(tokens);
  const std::vector<float> x = normal_floats(t * static_cast<std::size_t>(w.k), 1.0f, 2);
  std::vector<float> y(t * static_cast<std::size_t>(w.n), -1.0f);
  product->run(copies - 1, x.data(), y.data());
  const std::vector<float>& values = product->values.empty() ? w.values : product->values;
  const double error = relative_error(w, values.data(), x.data(), y.data(), tokens);
  const double seconds = median_seconds(*product, copies, x.data(), y.data());
  std::printf("%s\t%s\t%d\t%d\t%d\t%.1f\t%.5f\t%zu\n", candidate.name.c_str(), ggml_type_name(w.type), w.k,
              w.n, tokens, 2e-9 * w.k * w.n * tokens / seconds, error, product->beside_bytes);
  std::fflush(stdout);
  return error < kAllowedError;
}

}  // namespace

Aligned::Aligned(std::size_t bytes) : data_(::operator new (bytes, std::align_val_t{64})) {}
Aligned::~Aligned() { ::operator delete (data_, std::align_val_t{64}); }

void to_bf16(const float* from, std::uint16_t* to, std::size_t count) {
  ggml_cpu_fp32_to_bf16(from, reinterpret_cast<ggml_bf16_t*>(to), static_cast<std::int64_t>(count));
}

int run_candidates(int argc, char** argv, const std::vector<Candidate>& candidates) {
  ggml_cpu_init();
  bool right = true;
  for (const Candidate& candidate : candidates) {
    if (argc > 1 && candidate.name.find(argv[1]) == std::string::npos) continue;
    for (const Shape shape : kShapes) {
      if (shape.k % ggml_blck_size(candidate.type) != 0)
        continue;  // no file has these; Q5_0 takes their place
      const Weights weights = random_weights(candidate.type, shape);
      for (const int tokens : kTokens) right = measure(candidate, weights, tokens) && right;
    }
  }
  return right ? 0 : 1;
}

}  // namespace keynest::bench
