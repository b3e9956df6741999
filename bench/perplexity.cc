// What ggml's and keynest's own matrix products do to a model's predictions: perplexity of a text with the
// full cache, and with a reference (the same weights as F32) the distance from its probabilities.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "keynest/session.h"

namespace keynest::bench {
namespace {

struct Flags {
  std::string model, reference, text;
  std::size_t tokens = 4096;
  std::int32_t block = 128;
  int threads = 0;
};

/// A session that reads the text, and what its predictions came to.
struct Reader {
  std::string name;
  std::unique_ptr<Session> session;
  std::vector<float> logits;  // [block, vocabulary] of the last block
  double surprise = 0;        // sum of -log p(next token)
  double divergence = 0;      // sum of KL(reference || this)
  std::size_t same_choice = 0;
};

Result<Reader> open(const std::string& name, const std::string& path, Gemm gemm, const Flags& flags) {
  auto model = Model::load(path, {.gemm = gemm});
  if (!model) return model.error();
  SessionOptions options;
  auto policy = PolicySpec::parse("full");
  if (!policy) return policy.error();
  options.policy = *policy;
  options.block = flags.block;
  options.threads = flags.threads;
  auto session = Session::create(*model, options);
  if (!session) return session.error();
  Reader reader;
  reader.name = name;
  reader.session = std::move(*session);
  return reader;
}

/// logits[vocabulary] to log-probabilities.
std::vector<double> log_probabilities(std::span<const float> logits) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - largest);
  const double norm = largest + std::log(sum);
  std::vector<double> all(logits.size());
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = logits[i] - norm;
  return all;
}

std::size_t choice(const std::vector<double>& log_p) {
  return static_cast<std::size_t>(std::max_element(log_p.begin(), log_p.end()) - log_p.begin());
}

/// Adds what the readers predicted after one token; the first one is the reference of the others.
void add_predictions(std::vector<Reader>& readers, std::size_t row, std::size_t vocabulary, Token next) {
  std::vector<double> reference;
  for (Reader& reader : readers) {
    const std::vector<double> log_p =
        log_probabilities(std::span(reader.logits).subspan(row * vocabulary, vocabulary));
    reader.surprise -= log_p[static_cast<std::size_t>(next)];
    if (reference.empty()) reference = log_p;
    for (std::size_t i = 0; i < vocabulary; ++i)
      reader.divergence += std::exp(reference[i]) * (reference[i] - log_p[i]);
    reader.same_choice += choice(log_p) == choice(reference);
  }
}

Status read_text(std::vector<Reader>& readers, std::span<const Token> tokens, const Flags& flags) {
  const auto block = static_cast<std::size_t>(flags.block);
  for (std::size_t first = 0; first < tokens.size(); first += block) {
    const auto part = tokens.subspan(first, std::min(block, tokens.size() - first));
    for (Reader& reader : readers) {
      const auto keep = [&](std::int64_t, std::int32_t, std::span<const float> logits) {
        reader.logits.insert(reader.logits.end(), logits.begin(), logits.end());
      };
      reader.logits.clear();
      const Status status = reader.session->prefill_with_logits(part, keep);
      if (!status.ok()) return status;
    }
    const std::size_t vocabulary = readers[0].logits.size() / part.size();
    for (std::size_t row = 0; row < part.size() && first + row + 1 < tokens.size(); ++row) {
      add_predictions(readers, row, vocabulary, tokens[first + row + 1]);
    }
    std::fprintf(stderr, "\r%zu of %zu tokens", first + part.size(), tokens.size());
  }
  std::fprintf(stderr, "\n");
  return {};
}

void print(const std::vector<Reader>& readers, std::size_t predictions) {
  const auto count = static_cast<double>(predictions);
  const double reference = std::exp(readers[0].surprise / count);
  std::printf(
      "| products | perplexity | change, %% | KL divergence | same choice, %% |\n|---|---|---|---|---|\n");
  for (const Reader& reader : readers) {
    const double perplexity = std::exp(reader.surprise / count);
    std::printf("| %s | %.4f | %+.3f | %.2e | %.2f |\n", reader.name.c_str(), perplexity,
                100 * (perplexity / reference - 1), reader.divergence / count,
                100 * static_cast<double>(reader.same_choice) / count);
  }
}

Status measure(const Flags& flags) {
  std::vector<Reader> readers;
  const auto add = [&](const char* name, const std::string& path, Gemm gemm) -> Status {
    auto reader = open(name, path, gemm, flags);
    if (!reader) return reader.error();
    readers.push_back(std::move(*reader));
    return {};
  };
  if (!flags.reference.empty()) {
    if (const Status status = add("reference", flags.reference, Gemm::kGgml); !status.ok()) return status;
  }
  if (const Status status = add("ggml", flags.model, Gemm::kGgml); !status.ok()) return status;
  if (const Status status = add("native", flags.model, Gemm::kNative); !status.ok()) return status;
  if (const Status status = add("bf16", flags.model, Gemm::kBf16); !status.ok()) return status;

  auto model = Model::load(flags.model);
  if (!model) return model.error();
  std::ifstream file(flags.text, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  std::vector<Token> tokens = (*model)->tokenize(text, true, false);
  if (tokens.size() > flags.tokens) tokens.resize(flags.tokens);
  if (tokens.size() < 2)
    return Error{ErrorCode::kInvalidArgument, flags.text + " holds less than two tokens"};
  const Status status = read_text(readers, tokens, flags);
  if (status.ok()) print(readers, tokens.size() - 1);
  return status;
}

int run(int argc, char** argv) {
  Flags flags;
  CLI::App app{"Perplexity of a text with ggml's and with keynest's own matrix products"};
  app.add_option("-m,--model", flags.model, "GGUF file")->required();
  app.add_option("--reference", flags.reference, "The same weights as F32 (bench_quantize MODEL OUT f32)");
  app.add_option("-f,--file", flags.text, "The text")->required();
  app.add_option("--tokens", flags.tokens, "At most so many tokens of it")->capture_default_str();
  app.add_option("--block", flags.block, "Tokens read at a time")->capture_default_str();
  app.add_option("-t,--threads", flags.threads, "0 = all cores")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  const Status status = measure(flags);
  if (status.ok()) return 0;
  std::fprintf(stderr, "bench_perplexity: %s\n", status.error().message.c_str());
  return 1;
}

}  // namespace
}  // namespace keynest::bench

int main(int argc, char** argv) { return keynest::bench::run(argc, argv); }
