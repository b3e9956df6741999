// Whether a block late in a long prompt takes longer than an early one: the times of all blocks of one run,
// beside those of a chain of multiplications, which follow the core's clock and nothing else.
#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "bench/markdown.h"
#include "bench/text.h"
#include "keynest/session.h"

namespace keynest::bench {
namespace {

struct Flags {
  std::string model, policy = "keydiff", budget = "2048";
  std::size_t tokens = 65536, part = 4096;
  std::int32_t block = 128;
  int threads = 0;
};

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Seconds of a million multiplications each of which waits for the one before.
double chain_seconds() {
  const double started = seconds_now();
  volatile std::uint64_t seed = 3;
  std::uint64_t x = seed;
  for (int i = 0; i < 1'000'000; ++i) x = x * x + 1;
  seed = x;
  return seconds_now() - started;
}

/// Milliseconds of the blocks of one part of the prompt.
struct Part {
  std::vector<double> blocks, attention, eviction, chains;
};

/// Fills `parts`, block after block.
Status read(Session& session, std::span<const Token> tokens, const Flags& flags, std::vector<Part>& parts) {
  Stats before = session.stats();
  double started = seconds_now();
  return session.prefill(tokens, [&](std::int64_t done, std::int64_t total) {
    const double took = seconds_now() - started;
    const Stats now = session.stats();
    const std::size_t part = (static_cast<std::size_t>(done) - 1) / flags.part;
    parts.resize(part + 1);
    parts[part].blocks.push_back(took * 1e3);
    parts[part].attention.push_back((now.attention_seconds - before.attention_seconds) * 1e3);
    parts[part].eviction.push_back((now.evict_seconds - before.evict_seconds) * 1e3);
    parts[part].chains.push_back(chain_seconds() * 1e3);
    std::fprintf(stderr, "\r%lld of %lld tokens", static_cast<long long>(done),
                 static_cast<long long>(total));
    before = now;
    started = seconds_now();
    return true;
  });
}

void print(const std::vector<Part>& parts, const Flags& flags) {
  Table table;
  table.header = {"tokens before", "block, ms", "of it attention", "eviction", "clock: chain, ms"};
  for (std::size_t i = 0; i < parts.size(); ++i) {
    table.rows.push_back({std::to_string(i * flags.part), spread(parts[i].blocks),
                          spread({median(parts[i].attention)}), spread({median(parts[i].eviction)}),
                          spread({median(parts[i].chains)})});
  }
  std::fprintf(stderr, "\n");
  std::printf("%s", table.print().c_str());
}

Status measure(const Flags& flags) {
  auto model = Model::load(flags.model);
  if (!model) return model.error();
  auto policy = PolicySpec::parse(flags.policy);
  if (!policy) return policy.error();
  auto budget = Budget::parse(flags.budget);
  if (!budget) return budget.error();
  auto text = licence_texts();
  if (!text) return text.error();
  SessionOptions options;
  options.policy = *policy;
  options.budget = *budget;
  options.block = flags.block;
  options.threads = flags.threads;
  auto session = Session::create(*model, options);
  if (!session) return session.error();
  std::vector<Part> parts;
  const Status status = read(**session, text_tokens(**model, *text, flags.tokens), flags, parts);
  if (status.ok()) print(parts, flags);
  return status;
}

}  // namespace
}  // namespace keynest::bench

int main(int argc, char** argv) {
  keynest::bench::Flags flags;
  CLI::App app("Times of the blocks of one long prompt, as a Markdown table");
  app.add_option("-m,--model", flags.model, "model file")->required();
  app.add_option("--policy", flags.policy, "policy (keydiff)");
  app.add_option("--budget", flags.budget, "budget (2048)");
  app.add_option("--block", flags.block, "tokens of a block (128)");
  app.add_option("--tokens", flags.tokens, "tokens of the prompt (65536)");
  app.add_option("--part", flags.part, "tokens of a row of the table (4096)")->check(CLI::PositiveNumber);
  app.add_option("--threads", flags.threads, "threads; 0 = all cores (0)");
  CLI11_PARSE(app, argc, argv);
  const keynest::Status status = keynest::bench::measure(flags);
  if (status.ok()) return 0;
  std::fprintf(stderr, "bench_long_prompt: %s\n", status.error().message.c_str());
  return 1;
}
