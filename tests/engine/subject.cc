#include "engine/subject.h"

#include <algorithm>
#include <numeric>

namespace keynest::test {
namespace {

bool within(Position p, const PositionRange& range) { return p >= range.first && p < range.last; }

std::string text(const Status& status) { return status ? "" : status.error().message; }

}  // namespace

Subject::Subject(const Plan& plan, std::unique_ptr<Session> session, const int& others)
    : plan_(plan),
      session_(std::move(session)),
      sessions_(others),
      expected_(static_cast<std::size_t>(plan.model->info().layers)) {
  settle(0);
}

// ---------------------------------------------------------------------------------------- what is expected

bool Subject::windowed(int layer) const {
  return plan_.model->info().layer_windows[static_cast<std::size_t>(layer)] > 0;
}

/// Entries per head, on average, that an eviction leaves at most.
std::int64_t Subject::limit(int layer) const {
  const auto i = static_cast<std::size_t>(layer);
  const std::int64_t bound = budgets_.empty() ? 1 << 30 : budgets_[i];
  return windowed(layer) ? std::min<std::int64_t>(bound, plan_.model->info().layer_windows[i]) : bound;
}

/// The first tokens decide the budgets.
void Subject::settle(std::size_t prompt) {
  if (seen_ > 0 || !plan_.evictor->evicts() || plan_.settings.budget == 0) return;
  const auto budgets = plan_.evictor->layer_budgets(plan_.settings.budget, static_cast<std::int32_t>(prompt));
  if (budgets) budgets_ = *budgets;
}

/// While generating, eviction waits until some layer reaches its bound.
bool Subject::decode_evicts() const {
  const std::int64_t heads = plan_.model->info().kv_heads;
  const Settings& s = plan_.settings;
  const std::int64_t block = s.decode_block > 0 ? s.decode_block : s.block;
  for (int layer = 0; layer < plan_.model->info().layers; ++layer) {
    const bool bound = !budgets_.empty() && plan_.spec.decode == DecodeMode::kEvict;
    if (!bound && !windowed(layer)) continue;
    if (expected_[static_cast<std::size_t>(layer)] + heads >= heads * (limit(layer) + block)) return true;
  }
  return false;
}

void Subject::expect_step(std::int32_t tokens, bool evict) {
  const std::int64_t heads = plan_.model->info().kv_heads;
  const bool bounded =
      !budgets_.empty() && plan_.spec.schedule == Schedule::kBlock && plan_.spec.decode == DecodeMode::kEvict;
  seen_ += tokens;
  std::size_t evictions = 0;
  for (int layer = 0; layer < plan_.model->info().layers; ++layer) {
    std::int64_t& entries = expected_[static_cast<std::size_t>(layer)];
    entries += heads * tokens;
    if (bounded && !windowed(layer)) {
      EXPECT_LE(entries, heads * (limit(layer) + plan_.settings.block)) << "law L2, layer " << layer;
    }
    if (!evict || entries <= heads * limit(layer)) continue;
    entries = heads * limit(layer);
    ++evictions;
  }
  evictions_ += evictions;
  if (evictions > 0) {
    last_eviction_ = seen_;
    ends_.clear();
  }
  ends_.push_back(seen_);
  check(evictions > 0);
}

Subject::Said Subject::said() const {
  return {kept_everywhere(*session_, *plan_.model), logits_of(*session_), session_->stats().budget};
}

/// An error leaves a session as it was.
void Subject::expect_refusal(const Status& status, const Said& before) {
  const bool full = plan_.settings.cache_limit > 0 && status.error().code == ErrorCode::kOutOfMemory;
  const bool pins = status.error().message.find("protected") != std::string::npos;
  EXPECT_TRUE(full || pins) << status.error().message;
  const Said now = said();
  EXPECT_EQ(now.kept, before.kept) << status.error().message;
  EXPECT_EQ(now.logits, before.logits) << status.error().message;
  EXPECT_EQ(now.budget, before.budget) << status.error().message;
  check(false);
}

void Subject::check_head(int layer, const std::vector<Position>& kept, bool evicted) const {
  const auto strictly = [](Position a, Position b) { return a >= b; };
  EXPECT_EQ(std::adjacent_find(kept.begin(), kept.end(), strictly), kept.end()) << "not ascending";
  if (kept.empty()) return;
  EXPECT_GE(to_int(kept.front()), 0);
  EXPECT_LT(to_int(kept.back()), seen_);
  if (windowed(layer)) return;
  const std::int32_t n = budgets_.empty() ? 0 : budgets_[static_cast<std::size_t>(layer)];
  const std::int32_t first = budgets_.empty() ? 0 : plan_.spec.keep_first.entries(n);
  const std::int32_t last = evicted ? seen_ - plan_.spec.keep_last.entries(n) : seen_;
  const auto wanted = [&](std::int32_t p) {
    const auto protects = [&](const PositionRange& r) { return within(Position{p}, r); };
    return p < first || p >= last || std::any_of(protected_.begin(), protected_.end(), protects);
  };
  for (std::int32_t p = 0; p < seen_; ++p) {
    if (wanted(p)) EXPECT_TRUE(std::binary_search(kept.begin(), kept.end(), Position{p})) << p << " is gone";
  }
}

void Subject::check(bool evicted) const {
  const Stats stats = session_->stats();
  EXPECT_EQ(session_->seen(), seen_);
  EXPECT_EQ(stats.cache.entries_per_layer, expected_);
  EXPECT_EQ(stats.evictions, evictions_);
  std::size_t pages = 0;
  for (int layer = 0; layer < plan_.model->info().layers; ++layer) {
    std::int64_t sum = 0;
    for (int head = 0; head < plan_.model->info().kv_heads; ++head) {
      SCOPED_TRACE("layer " + std::to_string(layer) + ", head " + std::to_string(head));
      const std::vector<Position> kept = session_->kept(layer, head);
      check_head(layer, kept, evicted);
      const std::int64_t share = expected_[static_cast<std::size_t>(layer)] / plan_.model->info().kv_heads;
      if (plan_.spec.heads == HeadAllocation::kUniform) EXPECT_EQ(std::ssize(kept), share);
      sum += std::ssize(kept);
      pages += (kept.size() + 63) / 64;
    }
    EXPECT_EQ(sum, expected_[static_cast<std::size_t>(layer)]) << "layer " << layer;
  }
  if (sessions_ == 1) EXPECT_EQ(stats.cache.bytes, pages * stats.cache.page_bytes);
  EXPECT_GE(stats.cache.bytes, pages * stats.cache.page_bytes);
}

// ---------------------------------------------------------------------------------------- deeds

void Subject::prefill(const std::vector<Token>& tokens) {
  const Said before = said();
  Deed deed{Deed::Kind::kPrefill, tokens, 0, true, {}};
  const auto progress = [&](std::int64_t done, std::int64_t total) {
    if (deed.done == 0) settle(tokens.size());
    const bool evict = plan_.spec.schedule == Schedule::kBlock || done == total;
    const auto block = static_cast<std::int32_t>(done) - static_cast<std::int32_t>(deed.done);
    deed.done = static_cast<std::size_t>(done);
    expect_step(block, evict);
    return true;
  };
  const Status status = session_->prefill(tokens, progress);
  if (deed.done == 0) {
    ASSERT_FALSE(status.ok());
    return expect_refusal(status, before);
  }
  EXPECT_EQ(status.ok(), deed.done == tokens.size()) << text(status);
  if (!status) {
    EXPECT_TRUE(plan_.settings.cache_limit > 0 && status.error().code == ErrorCode::kOutOfMemory)
        << status.error().message;
    check(false);
  }
  log_.push_back(std::move(deed));
}

void Subject::decode(Token token) {
  const Said before = said();
  const Status status = session_->decode(token);
  if (!status) return expect_refusal(status, before);
  settle(1);
  log_.push_back({Deed::Kind::kDecode, {token}, 1, true, {}});
  expect_step(1, decode_evicts());
}

void Subject::protect(PositionRange range) {
  const Status status = session_->protect(range);
  if (status) {
    log_.push_back({Deed::Kind::kProtect, {}, 0, true, range});
    protected_.push_back(range);
  }
  check(false);
}

std::unique_ptr<Subject> Subject::fork() const {
  const std::size_t bytes = session_->stats().cache.bytes;
  auto session = session_->fork();
  EXPECT_TRUE(session.ok());
  if (!session) return nullptr;
  EXPECT_EQ(session_->stats().cache.bytes, bytes) << "a fork shares its pages";
  auto copy = std::make_unique<Subject>(plan_, std::move(*session), sessions_);
  copy->log_ = log_;
  copy->budgets_ = budgets_;
  copy->expected_ = expected_;
  copy->protected_ = protected_;
  copy->ends_ = ends_;
  copy->seen_ = seen_;
  copy->last_eviction_ = last_eviction_;
  copy->evictions_ = evictions_;
  return copy;
}

// ---------------------------------------------------------------------------------------- rollback

/// Anywhere since the last eviction, where what stays has the same bits as without the rest.
std::int32_t Subject::rollback_target(std::mt19937& random) const {
  const bool whole = plan_.spec.layers == LayerAllocation::kPyramid ||
                     (plan_.evictor->needs().stateless() && !plan_.any_portion);
  if (!whole) return last_eviction_ + static_cast<std::int32_t>(random() % (seen_ - last_eviction_ + 1u));
  const std::size_t end = random() % (ends_.size() + 1);
  return end < ends_.size() ? ends_[end] : last_eviction_;
}

void Subject::forget(std::int32_t position) {
  const bool block_end =
      position == last_eviction_ || std::find(ends_.begin(), ends_.end(), position) != ends_.end();
  std::int32_t at = 0;
  for (Deed& deed : log_) {
    const auto done = static_cast<std::int32_t>(deed.done);
    if (at + done > position) {
      deed.done = static_cast<std::size_t>(std::max(0, position - at));
      deed.at_block = block_end;
    }
    at += done;
    deed.range.last = std::min(deed.range.last, Position{position});
  }
  std::erase_if(log_, [](const Deed& deed) {
    return deed.kind == Deed::Kind::kProtect ? deed.range.first >= deed.range.last : deed.done == 0;
  });
  for (PositionRange& range : protected_) range.last = std::min(range.last, Position{position});
  std::erase_if(protected_, [](const PositionRange& r) { return r.first >= r.last; });
  std::erase_if(ends_, [=](std::int32_t end) { return end > position; });
  if (position > last_eviction_ && !block_end) ends_.push_back(position);
}

void Subject::rollback(std::mt19937& random) {
  if (last_eviction_ > 0) {
    const Status refused = session_->rollback(
        Position{static_cast<std::int32_t>(random() % static_cast<unsigned>(last_eviction_))});
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, ErrorCode::kRefused) << refused.error().message;
    check(false);
  }
  const std::int32_t target = rollback_target(random);
  const Status status = session_->rollback(Position{target});
  if (!status) {
    EXPECT_TRUE(plan_.settings.cache_limit > 0 && status.error().code == ErrorCode::kOutOfMemory)
        << status.error().message;
    return check(false);
  }
  const std::int64_t dropped = plan_.model->info().kv_heads * std::int64_t{seen_ - target};
  for (std::int64_t& entries : expected_) entries -= dropped;
  if (target < seen_) forget(target);
  seen_ = target;
  if (seen_ == 0) settle(0);
  check(false);
}

// ---------------------------------------------------------------------------------------- the same once more

std::unique_ptr<Session> Subject::straight_run() const {
  Settings settings = plan_.settings;
  settings.cache_limit = 0;
  auto session = make_session(plan_.model, settings);
  for (const Deed& deed : log_) {
    const auto done = static_cast<std::int64_t>(deed.done);
    const std::span<const Token> tokens(deed.tokens);
    Status status;
    if (deed.kind == Deed::Kind::kProtect) status = session->protect(deed.range);
    if (deed.kind == Deed::Kind::kDecode) status = session->decode(deed.tokens[0]);
    if (deed.kind == Deed::Kind::kPrefill && deed.at_block)
      status = session->prefill(tokens, [=](std::int64_t now, std::int64_t) { return now < done; });
    if (deed.kind == Deed::Kind::kPrefill && !deed.at_block)
      status = session->prefill(tokens.first(deed.done));
    const bool stopped = !status && status.error().code == ErrorCode::kCancelled;
    EXPECT_TRUE(status.ok() || (stopped && deed.done < deed.tokens.size())) << text(status);
  }
  return session;
}

void Subject::compare_with_a_straight_run(std::mt19937& random) {
  const auto straight = straight_run();
  ASSERT_TRUE(straight);
  EXPECT_EQ(straight->seen(), seen_);
  EXPECT_EQ(kept_everywhere(*straight, *plan_.model), kept_everywhere(*session_, *plan_.model));
  if (!session_->logits().empty()) EXPECT_EQ(logits_of(*straight), logits_of(*session_));
  if (plan_.settings.cache_limit > 0) return;  // what follows might not fit
  for (const Token token : random_tokens(*plan_.model, 3, random())) {
    ASSERT_TRUE(straight->decode(token).ok());
    decode(token);
    EXPECT_EQ(logits_of(*straight), logits_of(*session_));
  }
}

}  // namespace keynest::test
