// A session: one sequence of tokens, its bounded cache, and generation from it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "keynest/model.h"
#include "keynest/policy.h"
#include "keynest/result.h"
#include "keynest/stats.h"
#include "keynest/types.h"

namespace keynest {

/// How much the cache may keep.
struct Budget {
  enum class Unit { kUnbounded, kEntries, kShare, kBytes };
  Unit unit = Unit::kUnbounded;
  double value = 0;  ///< entries per (layer, KV head); share of the prompt, 0..1; bytes of all pages at N + B

  /// "2048", "25%", "64MiB" (KiB, MiB, GiB; KB, MB, GB), "full". Errors list the forms.
  static Result<Budget> parse(std::string_view text);
  std::string print() const;
};

struct SessionOptions {
  PolicySpec policy;         ///< default keydiff
  Budget budget;             ///< unbounded: the policy never evicts
  std::int32_t block = 128;  ///< B, prompt tokens between two evictions
  std::int32_t decode_block =
      0;            ///< generated tokens between two evictions; 0 = block (amortised), 1 = every token
  int threads = 0;  ///< 0 = all cores
  KvType kv_type = KvType::kF16;
  std::size_t cache_limit = 0;  ///< bytes the page pool may hold; 0 = what the machine has free
  bool record_scores = false;   ///< remember the scores of the last eviction, for inspect()
};

/// What one KV head holds and why.
struct HeadReport {
  std::vector<Position> positions;  ///< of its entries, ascending
  /// [positions] as published (see `keynest score --scores`) at the last eviction of the layer; NaN for
  /// entries that came later, and for all without record_scores or an eviction by score.
  std::vector<float> scores;
  std::vector<float> cosines;  ///< [positions] of each key to the anchor
  std::vector<float> anchor;   ///< [head_dim] mean of the unit keys of the entries
};

struct SamplingOptions {
  float temperature = 0.0f;       ///< 0 = greedy
  std::int32_t top_k = 40;        ///< 0 = off
  float top_p = 0.95f;            ///< 1 = off
  float min_p = 0.05f;            ///< 0 = off
  float repeat_penalty = 1.0f;    ///< 1 = off
  std::int32_t repeat_last = 64;  ///< tokens the penalty looks back
  std::uint32_t seed = 0;         ///< same seed, same text

  bool operator==(const SamplingOptions&) const = default;
};

/// Tells of progress on a prompt; return false to stop at this block (the session stays usable).
using ProgressCallback = std::function<bool(std::int64_t done, std::int64_t total)>;

/// Not thread-safe; forks and sessions on the same model may run on different threads.
class Session {
 public:
  /// Errors: budget 0, budget below the policy's pins, budget larger than memory, block 0, block above the
  /// trained context, unsupported KV type for the head size.
  static Result<std::unique_ptr<Session>> create(std::shared_ptr<const Model> model,
                                                 const SessionOptions& options);
  virtual ~Session() = default;

  /// Processes prompt tokens block by block, evicting as the policy's schedule says; logits of the last one
  /// are ready afterwards. Errors: empty prompt, token out of the vocabulary, pool exhausted, kCancelled;
  /// each leaves the session as it was after the last completed block.
  virtual Status prefill(std::span<const Token> tokens, const ProgressCallback& progress = {}) = 0;

  /// Keeps the entries at these positions whatever their score, from now on; they count in the budget. Before
  /// the prompt or between two. Errors: a range that is empty or overlaps another one; ranges and pins that
  /// do not fit the budget; kRefused when some of its entries were evicted already. A prompt that ends before
  /// a range does is an error of `prefill`; rolling back cuts ranges. Layers with a sliding window drop what
  /// it has passed all the same.
  virtual Status protect(PositionRange range) = 0;

  /// Processes one generated token; logits of it are ready afterwards.
  virtual Status decode(Token token) = 0;

  /// Logits after the last processed token, [vocabulary].
  virtual std::span<const float> logits() const = 0;

  /// Logits of every token of a prompt, as `prefill` would process it, handed out block by block: `sink` gets
  /// [count, vocabulary] for tokens first .. first+count-1.
  using LogitsSink =
      std::function<void(std::int64_t first, std::int32_t count, std::span<const float> logits)>;
  virtual Status prefill_with_logits(std::span<const Token> tokens, const LogitsSink& sink) = 0;

  /// Picks a token from logits(); successive calls with the same options continue one random sequence.
  virtual Token sample(const SamplingOptions& options) = 0;

  /// A second session that shares this one's pages until either writes to them (copy on write).
  virtual Result<std::unique_ptr<Session>> fork() const = 0;

  /// Forgets the tokens from `position` on, and what was protected of them. Errors: kRefused when an eviction
  /// happened at or after that position.
  virtual Status rollback(Position position) = 0;

  /// Positions of the entries one KV head holds, ascending.
  virtual std::vector<Position> kept(int layer, int kv_head) const = 0;

  /// The same entries with their scores and cosines, computed when asked. Errors: no such layer or head.
  virtual Result<HeadReport> inspect(int layer, int kv_head) const = 0;

  virtual std::int64_t seen() const = 0;  ///< tokens seen = next position
  virtual Stats stats() const = 0;
};

/// keynest's version, SIMD target and engine, for `--version`.
std::string version_text();

}  // namespace keynest
