#include "bench/sessions.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <span>

#include "bench/rounds.h"
#include "bench/text.h"

namespace keynest::bench {
namespace {

using Clock = std::chrono::steady_clock;
using Tokens = std::span<const Token>;

double since(Clock::time_point started) {
  return std::chrono::duration<double>(Clock::now() - started).count();
}

/// A prompt that Ctrl-C stops.
Status process(Session& session, Tokens tokens, const Recorder& recorder) {
  return session.prefill(tokens, [&](std::int64_t, std::int64_t) { return !recorder.host().stopped(); });
}

Status record_peak(const SessionBench& bench, int round, Recorder& recorder) {
  return recorder.add(peak_run(bench.sessions.front().threads, round, bench.peak_seconds));
}

Json run_of(const char* part, const Stats& stats, std::int64_t length, int round) {
  return {{"part", part},           {"name", stats.policy}, {"length", length},  {"round", round},
          {"budget", stats.budget}, {"block", stats.block}, {"gemm", stats.gemm}};
}

std::string round_text(const char* part, int round) {
  return std::string(part) + " round " + std::to_string(round + 1) + ": ";
}

std::string label(const SessionOptions& options) {
  return options.policy.print() + ", B = " + std::to_string(options.block);
}

/// How long it takes to process some tokens, and how much of that is eviction.
struct Times {
  double seconds = 0, evict_seconds = 0;
  std::size_t evictions = 0;  // layers
};
using Measure = std::function<Result<Times>(Session& session, Tokens next)>;

Result<Times> timed(Session& session, const std::function<Status()>& work) {
  const Stats before = session.stats();
  const auto started = Clock::now();
  if (Status done = work(); !done) return done.error();
  const double seconds = since(started);
  const Stats after = session.stats();
  return Times{seconds, after.evict_seconds - before.evict_seconds, after.evictions - before.evictions};
}

/// One session that grows to every depth in turn and is measured there.
Status walk(const SessionBench& bench, const SessionOptions& options, const char* part, Tokens all, int round,
            Recorder& recorder, const Measure& measure) {
  auto session = Session::create(bench.model, options);
  if (!session) return session.error();
  const auto next = [&] { return all.subspan(static_cast<std::size_t>((*session)->seen())); };
  for (const std::int64_t length : bench.lengths) {
    recorder.tell(round_text(part, round) + label(options) + ", depth " + std::to_string(length));
    const std::int64_t missing = length - (*session)->seen();
    if (missing > 0)
      KEYNEST_TRY(process(**session, next().first(static_cast<std::size_t>(missing)), recorder));
    const auto measured = measure(**session, next());
    if (!measured) return measured.error();
    Json run = run_of(part, (*session)->stats(), length, round);
    run["tokens"] = bench.tokens;
    run["tokens_per_second"] = bench.tokens / measured->seconds;
    run["seconds"] = measured->seconds;
    run["evict_seconds"] = measured->evict_seconds;
    run["evictions"] = measured->evictions;
    KEYNEST_TRY(recorder.add(std::move(run)));
  }
  return {};
}

Status walk_all(const SessionBench& bench, const char* part, Recorder& recorder, const Measure& measure) {
  const auto extra = static_cast<std::size_t>(bench.tokens + 2) * bench.lengths.size();
  const auto all =
      text_tokens(*bench.model, bench.text, static_cast<std::size_t>(bench.lengths.back()) + extra);
  for (int round = 0; round < bench.rounds; ++round) {
    KEYNEST_TRY(record_peak(bench, round, recorder));
    for (const std::size_t i : order_of(bench.sessions.size(), round)) {
      KEYNEST_TRY(walk(bench, bench.sessions[i], part, all, round, recorder, measure));
    }
  }
  return {};
}

Status first_token(const SessionBench& bench, const SessionOptions& options, Tokens prompt, int round,
                   Recorder& recorder) {
  const auto length = static_cast<std::int64_t>(prompt.size());
  recorder.tell(round_text("policies", round) + label(options) + ", " + std::to_string(length) + " tokens");
  auto session = Session::create(bench.model, options);
  if (!session) return session.error();
  KEYNEST_TRY(process(**session, prompt, recorder));
  const Stats stats = (*session)->stats();
  Json run = run_of("policies", stats, length, round);
  run["ttft_seconds"] = stats.ttft_seconds;
  run["evict_seconds"] = stats.evict_seconds;
  run["attention_seconds"] = stats.attention_seconds;
  run["cache_bytes"] = stats.cache.peak_bytes;
  return recorder.add(std::move(run));
}

}  // namespace

Status bench_prefill(const SessionBench& bench, Recorder& recorder) {
  return walk_all(bench, "prefill", recorder, [&](Session& session, Tokens next) {
    return timed(session, [&] {
      return process(session, next.first(static_cast<std::size_t>(bench.tokens)), recorder);
    });
  });
}

Status bench_decode(const SessionBench& bench, Recorder& recorder) {
  return walk_all(bench, "decode", recorder, [&](Session& session, Tokens next) -> Result<Times> {
    // Not timed: the first one builds the graph of one token, and starts an empty session.
    const Status first = session.seen() == 0 ? session.prefill(next.first(1)) : session.decode(next[0]);
    if (!first) return first.error();
    return timed(session, [&]() -> Status {
      for (int i = 1; i <= bench.tokens; ++i) {
        KEYNEST_TRY(session.decode(next[static_cast<std::size_t>(i)]));
        KEYNEST_TRY(recorder.check());
      }
      return {};
    });
  });
}

Status bench_policies(const SessionBench& bench, Recorder& recorder) {
  const auto all = text_tokens(*bench.model, bench.text, static_cast<std::size_t>(bench.lengths.back()));
  for (int round = 0; round < bench.rounds; ++round) {
    for (const std::int64_t length : bench.lengths) {
      KEYNEST_TRY(record_peak(bench, round, recorder));
      const Tokens prompt = Tokens(all).first(static_cast<std::size_t>(length));
      for (const std::size_t i : order_of(bench.sessions.size(), round)) {
        KEYNEST_TRY(first_token(bench, bench.sessions[i], prompt, round, recorder));
      }
    }
  }
  return {};
}

}  // namespace keynest::bench
