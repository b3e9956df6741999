#include <algorithm>
#include <chrono>
#include <string>
#include <thread>

#include "engine/budget.h"
#include "engine/session_impl.h"
#include "policy/pins.h"

namespace keynest {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

int default_threads() { return std::max(1, static_cast<int>(std::thread::hardware_concurrency())); }

Status check_options(const SessionOptions& options, const ModelInfo& info) {
  if (options.block < 1 || options.block > info.trained_context) {
    return invalid_argument("block " + std::to_string(options.block) + " is not allowed: give 1 to " +
                            std::to_string(info.trained_context) + " (the model's trained context)");
  }
  if (options.decode_block < 0 || options.decode_block > options.block) {
    return invalid_argument("decode block " + std::to_string(options.decode_block) +
                            " is not allowed: give 1 (evict after every token) to " +
                            std::to_string(options.block) + " (the block), or 0 for the block");
  }
  if (options.threads < 0 || options.threads > 512) {
    return invalid_argument("threads " + std::to_string(options.threads) +
                            " is not allowed: give 1 to 512, or 0 for all");
  }
  return {};
}

Status check_kv_type(KvType type, int head_dim) {
  const int unit = type == KvType::kQ8_0 ? 32 : 8;
  if (head_dim % unit == 0) return {};
  return Error{ErrorCode::kUnsupported, "the model's head size " + std::to_string(head_dim) +
                                            " is no multiple of " + std::to_string(unit) +
                                            ", which this KV type needs: choose another"};
}

/// Ranks are the same numbers in all layers only where none of them drops entries by itself.
Status check_positions(const PolicySpec& policy, const Hparams& hparams) {
  if (policy.positions == Positions::kTrue) return {};
  const auto& windows = hparams.layer_windows;
  const auto windowed =
      std::find_if(windows.begin(), windows.end(), [](std::int32_t window) { return window > 0; });
  if (windowed == windows.end()) return {};
  return Error{ErrorCode::kUnsupported,
               "policy option positions=cache needs layers that all hold the same number "
               "of entries, but layer " +
                   std::to_string(windowed - windows.begin()) + " of this model sees a sliding window of " +
                   std::to_string(*windowed) + " tokens; use positions=true"};
}

/// A budget given in entries or bytes must fit into memory before anything is loaded into it.
Status check_memory(std::int32_t budget, const Hparams& hparams, const PageLayout& layout, std::int32_t block,
                    bool ragged, std::size_t limit) {
  const std::size_t needed = cache_bytes(hparams, layout, budget, block, ragged);
  if (needed <= limit) return {};
  return Error{ErrorCode::kOutOfMemory,
               "a budget of " + std::to_string(budget) + " entries per head and a block of " +
                   std::to_string(block) + " take " + std::to_string(needed) + " bytes of cache, but " +
                   std::to_string(limit) +
                   " are available: use a smaller budget or block, or raise the cache limit"};
}

}  // namespace

Result<std::unique_ptr<Session>> Session::create(std::shared_ptr<const Model> model,
                                                 const SessionOptions& options) {
  auto graph_model = std::dynamic_pointer_cast<const GraphModel>(std::move(model));
  if (!graph_model) return invalid_argument("a session needs a model that Model::load returned");
  return SessionImpl::create(std::move(graph_model), options);
}

Result<std::unique_ptr<Session>> SessionImpl::create(std::shared_ptr<const GraphModel> model,
                                                     SessionOptions options) {
  const Hparams& hparams = model->hparams();
  KEYNEST_TRY(check_options(options, model->info()));
  KEYNEST_TRY(check_kv_type(options.kv_type, hparams.head_dim));
  KEYNEST_TRY(check_positions(options.policy, hparams));
  if (options.threads == 0) options.threads = default_threads();
  if (options.decode_block == 0) options.decode_block = options.block;
  if (options.cache_limit == 0) options.cache_limit = available_memory();

  auto evictor = Evictor::create(
      options.policy, {hparams.layers, hparams.kv_heads, hparams.heads / hparams.kv_heads, hparams.head_dim});
  if (!evictor) return evictor.error();
  const PageLayout layout =
      PageLayout::make(options.kv_type, hparams.head_dim, (*evictor)->needs().row_state);
  auto pool = std::make_shared<PagePool>(layout, options.cache_limit);
  auto executor = Executor::create(model, *evictor, options.threads);
  if (!executor) return executor.error();

  Sequence sequence{SequenceCache(pool, hparams.layers, hparams.kv_heads), {}, {}, 0, 0, 0, {}, 0, {}};
  for (int i = 0; i < hparams.layers; ++i) {
    const bool windowed = hparams.layer_windows[static_cast<std::size_t>(i)] > 0;
    if ((*evictor)->needs().unit_key_sum && !windowed) sequence.cache.keep_unit_sum(i);
  }
  if (options.record_scores) sequence.records.resize(static_cast<std::size_t>(hparams.layers));
  for (int i = 0; i < hparams.layers; ++i) sequence.states.push_back((*evictor)->new_state());
  std::unique_ptr<SessionImpl> session(new SessionImpl(std::move(model), std::move(options), *evictor,
                                                       *executor, std::move(pool), std::move(sequence)));
  // A share of the prompt waits for the prompt; everything else is checked now.
  if (session->options_.budget.unit != Budget::Unit::kShare) KEYNEST_TRY(session->settle_budget(0));
  return std::unique_ptr<Session>(std::move(session));
}

SessionImpl::SessionImpl(std::shared_ptr<const GraphModel> model, SessionOptions options,
                         std::shared_ptr<const Evictor> evictor, std::shared_ptr<Executor> executor,
                         std::shared_ptr<PagePool> pool, Sequence sequence)
    : model_(std::move(model)),
      options_(std::move(options)),
      evictor_(std::move(evictor)),
      executor_(std::move(executor)),
      pool_(std::move(pool)),
      sequence_(std::move(sequence)) {
  const auto layers = static_cast<std::size_t>(model_->hparams().layers);
  checkpoint_.states = sequence_.states;
  stats_.cache.peak_entries_per_layer.resize(layers);
  stats_.cache.entries_per_layer.resize(layers);
}

// ---------------------------------------------------------------------------------------- budget

/// Budgets may depend on the prompt's length: the first tokens that were processed have settled them. One
/// that was refused, or rolled back to nothing, has not.
Status SessionImpl::settle_budget(std::int64_t prompt) {
  if (sequence_.seen > 0) return {};
  const Hparams& hparams = model_->hparams();
  const bool ragged = options_.policy.heads == HeadAllocation::kAdaptive;
  auto budget = resolve_budget(options_.budget, hparams, pool_->layout(), options_.block, ragged, prompt);
  if (!budget) return budget.error();
  std::vector<std::int32_t> budgets;
  if (*budget > 0 && evictor_->evicts()) {
    KEYNEST_TRY(
        check_memory(*budget, hparams, pool_->layout(), options_.block, ragged, options_.cache_limit));
    auto layers = evictor_->layer_budgets(*budget, static_cast<std::int32_t>(prompt));
    if (!layers) return layers.error();
    budgets = std::move(layers).value();
  }
  KEYNEST_TRY(check_protected(sequence_.protected_ranges, budgets, 0));
  budget_ = evictor_->evicts() ? *budget : 0;
  sequence_.budgets = std::move(budgets);
  return {};
}

SessionImpl::Settlement::Settlement(SessionImpl& session)
    : session_(session),
      seen_(session.sequence_.seen),
      announced_(session.sequence_.announced),
      budget_(session.budget_) {
  if (seen_ == 0) budgets_ = session.sequence_.budgets;
}

SessionImpl::Settlement::~Settlement() {
  if (session_.sequence_.seen != seen_) return;
  session_.sequence_.announced = announced_;
  if (seen_ > 0) return;
  session_.budget_ = budget_;
  session_.sequence_.budgets = std::move(budgets_);
}

/// `length`: tokens after the prompt, 0 = unknown.
Status SessionImpl::check_protected(std::span<const PositionRange> ranges,
                                    std::span<const std::int32_t> budgets, std::int64_t length) const {
  if (ranges.empty()) return {};
  KEYNEST_TRY(check_pins(evictor_->spec(), nullptr, 0, ranges, static_cast<std::int32_t>(length)));
  if (budgets.empty()) return {};
  return evictor_->check_pins(*std::min_element(budgets.begin(), budgets.end()), ranges, 0);
}

/// Every head still has what it has seen of the range. Sliding windows are left out: nothing widens them.
bool SessionImpl::holds(PositionRange range) const {
  const std::int32_t last = std::min(to_int(range.last), sequence_.seen);
  const std::int32_t wanted = std::max(0, last - to_int(range.first));
  const Hparams& hparams = model_->hparams();
  for (int i = 0; i < hparams.layers * hparams.kv_heads; ++i) {
    const int layer = i / hparams.kv_heads;
    if (hparams.layer_windows[static_cast<std::size_t>(layer)] > 0) continue;
    const HeadRows rows = sequence_.cache.rows(layer, i % hparams.kv_heads);
    std::int32_t held = 0;
    for (std::int32_t r = 0; r < rows.rows; ++r) {
      const Position position = rows.position(Row{r});
      held += position >= range.first && position < range.last;
    }
    if (held < wanted) return false;
  }
  return true;
}

Status SessionImpl::protect(PositionRange range) {
  std::vector<PositionRange> ranges = sequence_.protected_ranges;
  ranges.push_back(range);
  KEYNEST_TRY(check_protected(ranges, sequence_.budgets, 0));
  if (!holds(range)) {
    return Error{ErrorCode::kRefused,
                 "protected range [" + std::to_string(to_int(range.first)) + ", " +
                     std::to_string(to_int(range.last)) +
                     ") has entries that were evicted already; protect it before its prompt"};
  }
  sequence_.protected_ranges = std::move(ranges);
  return {};
}

/// Without eviction during the prompt all of it has to fit.
Status SessionImpl::check_room(std::int64_t prompt) const {
  if (bounded() && options_.policy.schedule == Schedule::kBlock) return {};
  const std::int64_t entries = sequence_.cache.widest_layer() + prompt;
  const std::size_t needed = cache_bytes(model_->hparams(), pool_->layout(), entries, 0, false);
  if (needed <= pool_->byte_limit()) return {};
  return Error{ErrorCode::kOutOfMemory, "a prompt of " + std::to_string(prompt) +
                                            " tokens kept whole takes " + std::to_string(needed) +
                                            " bytes of cache, but the limit is " +
                                            std::to_string(pool_->byte_limit()) +
                                            ": set a budget with schedule=block, or raise the cache limit"};
}

// ---------------------------------------------------------------------------------------- processing

Status SessionImpl::check_tokens(std::span<const Token> tokens) const {
  if (tokens.empty()) return invalid_argument("the prompt is empty: give at least one token");
  const std::int32_t vocabulary = model_->hparams().vocabulary;
  for (const Token token : tokens) {
    if (token < 0 || token >= vocabulary) {
      return invalid_argument("token " + std::to_string(token) +
                              " is not in the vocabulary: allowed are 0 to " +
                              std::to_string(vocabulary - 1));
    }
  }
  constexpr std::int64_t kMostTokens = 1 << 30;
  if (sequence_.seen + static_cast<std::int64_t>(tokens.size()) > kMostTokens) {
    return invalid_argument("a session takes at most 2^30 tokens");
  }
  return {};
}

/// The whole block, or what the bound N + B leaves: after decoding, heads may hold more than N.
std::int32_t SessionImpl::next_block(std::int64_t left) const {
  std::int64_t tokens = std::min<std::int64_t>(left, options_.block);
  if (bounded() && options_.policy.schedule == Schedule::kBlock) {
    for (int layer = 0; layer < sequence_.cache.layers(); ++layer) {
      const std::int64_t most =
          std::int64_t{sequence_.budgets[static_cast<std::size_t>(layer)]} + options_.block;
      const std::int64_t heads = sequence_.cache.kv_heads();
      const std::int64_t room = (heads * most - sequence_.cache.entries(layer)) / heads;
      if (model_->hparams().layer_windows[static_cast<std::size_t>(layer)] == 0)
        tokens = std::min(tokens, room);
    }
  }
  return static_cast<std::int32_t>(std::max<std::int64_t>(tokens, 1));
}

Status SessionImpl::process(std::span<const Token> tokens, bool all_logits,
                            const BlockCallback& after_block) {
  KEYNEST_TRY(check_tokens(tokens));
  const auto total = static_cast<std::int64_t>(tokens.size());
  KEYNEST_TRY(check_protected(sequence_.protected_ranges, {}, sequence_.seen + total));
  const Settlement settlement(*this);
  KEYNEST_TRY(settle_budget(total));
  KEYNEST_TRY(check_room(total));
  sequence_.announced = static_cast<std::int32_t>(sequence_.seen + total);
  const Clock::time_point start = Clock::now();
  for (std::int64_t done = 0; done < total;) {
    const std::int32_t count = next_block(total - done);
    const bool last = done + count == total;
    StepInput input;
    input.tokens = tokens.subspan(static_cast<std::size_t>(done), static_cast<std::size_t>(count));
    input.outputs = all_logits ? count : last ? 1 : 0;
    input.evict = options_.policy.schedule == Schedule::kBlock || last;
    KEYNEST_TRY(step(input));
    if (input.outputs == 0) logits_.clear();
    done += count;
    stats_.prompt_tokens += count;
    stats_.prefill_seconds += seconds_since(start) - stats_.ttft_seconds;
    stats_.ttft_seconds = seconds_since(start);
    if (!after_block(done, count) && !last) {
      return Error{ErrorCode::kCancelled, "stopped after " + std::to_string(done) + " of " +
                                              std::to_string(total) + " prompt tokens"};
    }
  }
  pool_->trim();
  return {};
}

Status SessionImpl::prefill(std::span<const Token> tokens, const ProgressCallback& progress) {
  const auto total = static_cast<std::int64_t>(tokens.size());
  stats_.ttft_seconds = 0;
  return process(tokens, false,
                 [&](std::int64_t done, std::int32_t) { return !progress || progress(done, total); });
}

Status SessionImpl::prefill_with_logits(std::span<const Token> tokens, const LogitsSink& sink) {
  stats_.ttft_seconds = 0;
  const auto vocabulary = static_cast<std::size_t>(model_->hparams().vocabulary);
  const Status status = process(tokens, true, [&](std::int64_t done, std::int32_t count) {
    sink(done - count, count, logits_);
    logits_.erase(logits_.begin(), logits_.end() - static_cast<std::ptrdiff_t>(vocabulary));
    return true;
  });
  return status;
}

bool SessionImpl::decode_eviction_due() const {
  const Hparams& hparams = model_->hparams();
  for (int layer = 0; layer < hparams.layers; ++layer) {
    const auto i = static_cast<std::size_t>(layer);
    const bool windowed = hparams.layer_windows[i] > 0;
    if (!windowed && (!bounded() || options_.policy.decode == DecodeMode::kAppend)) continue;
    std::int64_t most = windowed ? hparams.layer_windows[i] : sequence_.budgets[i];
    if (windowed && bounded()) most = std::min<std::int64_t>(most, sequence_.budgets[i]);
    const std::int64_t heads = hparams.kv_heads;
    // The token that is about to be appended counts.
    if (sequence_.cache.entries(layer) + heads >= heads * (most + options_.decode_block)) return true;
  }
  return false;
}

Status SessionImpl::decode(Token token) {
  KEYNEST_TRY(check_tokens({&token, 1}));
  const Settlement settlement(*this);
  KEYNEST_TRY(settle_budget(1));
  const Clock::time_point start = Clock::now();
  StepInput input;
  input.tokens = {&token, 1};
  input.outputs = 1;
  input.evict = decode_eviction_due();
  KEYNEST_TRY(step(input));
  stats_.decode_seconds += seconds_since(start);
  ++stats_.generated_tokens;
  return {};
}

Status SessionImpl::step(const StepInput& given) {
  StepInput input = given;
  input.sequence = &sequence_;
  KEYNEST_TRY(sequence_.cache.reserve(static_cast<std::int32_t>(input.tokens.size()),
                                      evictor_->needs().writes_rows()));
  record_entries();
  StepTimes times;
  const Status status = executor_->run(input, logits_, times);
  if (!status) {
    sequence_.cache.cancel();
    // What the policy had already observed of this block is taken back too.
    if (stateful()) KEYNEST_TRY(restore(sequence_.seen));
    return status;
  }
  sequence_.seen += static_cast<std::int32_t>(input.tokens.size());
  if (times.evictions > 0) sequence_.last_eviction = sequence_.seen;
  if (times.evictions > 0 && options_.policy.positions == Positions::kCache)
    sequence_.shift = sequence_.seen - sequence_.cache.head(0, 0).rows();
  if (stateful()) remember(input, times.evictions > 0);
  stats_.attention_seconds += times.attention_seconds;
  stats_.evict_seconds += times.evict_seconds;
  stats_.evictions += times.evictions;
  return {};
}

void SessionImpl::record_entries() {
  for (int layer = 0; layer < sequence_.cache.layers(); ++layer) {
    auto& peak = stats_.cache.peak_entries_per_layer[static_cast<std::size_t>(layer)];
    peak = std::max(peak, sequence_.cache.entries(layer));
  }
}

// ---------------------------------------------------------------------------------------- report

std::vector<Position> SessionImpl::kept(int layer, int kv_head) const {
  const HeadRows rows = sequence_.cache.rows(layer, kv_head);
  std::vector<Position> positions;
  for (std::int32_t r = 0; r < rows.rows; ++r) positions.push_back(rows.position(Row{r}));
  std::sort(positions.begin(), positions.end());
  return positions;
}

Stats SessionImpl::stats() const {
  Stats stats = stats_;
  const Hparams& hparams = model_->hparams();
  const PageLayout& layout = pool_->layout();
  stats.policy = evictor_->spec().print();
  stats.budget = budget_;
  stats.block = options_.block;
  stats.threads = options_.threads;
  stats.simd_target = simd_target();
  stats.gemm = model_->info().gemm;
  stats.cache.bytes = pool_->bytes();
  stats.cache.peak_bytes = pool_->peak_bytes();
  stats.cache.page_bytes = layout.bytes;
  stats.cache.full_bytes =
      static_cast<std::size_t>(sequence_.seen) * static_cast<std::size_t>(hparams.layers) *
      static_cast<std::size_t>(hparams.kv_heads) * 2 * row_bytes(layout.type, layout.head_dim);
  stats.cache.seen = sequence_.seen;
  for (int layer = 0; layer < hparams.layers; ++layer) {
    stats.cache.entries_per_layer[static_cast<std::size_t>(layer)] = sequence_.cache.entries(layer);
  }
  return stats;
}

std::string version_text() {
  return std::string("keynest ") + KEYNEST_VERSION + " (SIMD target " + simd_target() + ", llama.cpp " +
         llama_version() + ")";
}

}  // namespace keynest
