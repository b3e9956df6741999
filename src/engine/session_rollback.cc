// Fork and rollback: two sessions from one, and going back to an earlier token.
#include <algorithm>
#include <string>

#include "engine/session_impl.h"

namespace keynest {

Result<std::unique_ptr<Session>> SessionImpl::fork() const {
  Sequence copy{sequence_.cache.fork(), sequence_.states,    sequence_.budgets,
                sequence_.seen,         sequence_.announced, sequence_.last_eviction,
                sequence_.records,      sequence_.shift,     sequence_.protected_ranges};
  std::unique_ptr<SessionImpl> session(
      new SessionImpl(model_, options_, evictor_, executor_, pool_, std::move(copy)));
  session->logits_ = logits_;
  session->budget_ = budget_;
  session->checkpoint_ = checkpoint_;
  session->stats_ = stats_;
  return std::unique_ptr<Session>(std::move(session));
}

Status SessionImpl::rollback(Position position) {
  const std::int32_t target = to_int(position);
  if (target < 0 || target > sequence_.seen) {
    return invalid_argument("cannot roll back to position " + std::to_string(target) +
                            ": the session has seen " + std::to_string(sequence_.seen) + " tokens");
  }
  if (target < sequence_.last_eviction) {
    return Error{ErrorCode::kRefused, "cannot roll back to position " + std::to_string(target) +
                                          ": entries were evicted at position " +
                                          std::to_string(sequence_.last_eviction) +
                                          " and are gone; the earliest position is that one"};
  }
  if (target == sequence_.seen) return {};
  Status restored;
  if (stateful()) {
    restored = restore(target);  // runs tokens again; where that fails, the session ends earlier
  } else {
    truncate(target);
  }
  logits_.clear();
  const Position end{std::min(target, sequence_.seen)};
  for (PositionRange& range : sequence_.protected_ranges) range.last = std::min(range.last, end);
  std::erase_if(sequence_.protected_ranges, [](const PositionRange& r) { return r.first >= r.last; });
  return restored;
}

/// Drops the newest entries: since the last eviction every token added one row to the end of every head.
void SessionImpl::truncate(std::int32_t position) {
  const std::int32_t dropped = sequence_.seen - position;
  for (int layer = 0; layer < sequence_.cache.layers(); ++layer) {
    for (int head = 0; head < sequence_.cache.kv_heads(); ++head) {
      sequence_.cache.truncate(layer, head, sequence_.cache.head(layer, head).rows() - dropped);
    }
  }
  sequence_.seen = position;
}

/// Copies the policy's per-entry floats from the pages into the checkpoint, or back.
void SessionImpl::copy_entry_state(bool restore) {
  const int floats = pool_->layout().state_floats;
  const SequenceCache& cache = sequence_.cache;
  checkpoint_.entry_state.resize(static_cast<std::size_t>(cache.layers() * cache.kv_heads()));
  for (int i = 0; i < cache.layers() * cache.kv_heads(); ++i) {
    const HeadRows rows = cache.rows(i / cache.kv_heads(), i % cache.kv_heads());
    auto& saved = checkpoint_.entry_state[static_cast<std::size_t>(i)];
    saved.resize(static_cast<std::size_t>(rows.page_count() * kPageRows * floats));
    for (int page = 0; page < rows.page_count(); ++page) {
      float* at = saved.data() + static_cast<std::ptrdiff_t>(page) * kPageRows * floats;
      if (restore) {
        std::copy_n(at, kPageRows * floats, rows.state(page, 0));
      } else {
        std::copy_n(rows.state(page, 0), kPageRows * floats, at);
      }
    }
  }
}

void SessionImpl::remember(const StepInput& input, bool evicted) {
  if (evicted) {
    checkpoint_.states = sequence_.states;
    copy_entry_state(false);
    checkpoint_.announced = sequence_.announced;
    checkpoint_.tokens.clear();
    checkpoint_.steps.clear();
    return;
  }
  checkpoint_.tokens.insert(checkpoint_.tokens.end(), input.tokens.begin(), input.tokens.end());
  checkpoint_.steps.push_back({static_cast<std::int32_t>(input.tokens.size()), sequence_.announced});
}

/// Goes back to `position` (not before the last eviction) with a policy that keeps state: from the checkpoint
/// the tokens up to there are processed again, in the same portions, since what they added cannot be
/// subtracted.
Status SessionImpl::restore(std::int32_t position) {
  KEYNEST_TRY(
      sequence_.cache.reserve(1, evictor_->needs().writes_rows()));  // pages shared with a fork are copied
  sequence_.cache.cancel();
  truncate(sequence_.last_eviction);
  sequence_.states = checkpoint_.states;
  copy_entry_state(true);
  sequence_.announced = checkpoint_.announced;
  const std::vector<Token> tokens = std::move(checkpoint_.tokens);
  const std::vector<Checkpoint::Portion> steps = std::move(checkpoint_.steps);
  checkpoint_.tokens.clear();
  checkpoint_.steps.clear();
  std::span<const Token> left(tokens);
  for (const Checkpoint::Portion& portion : steps) {
    const std::int32_t count = std::min(portion.tokens, position - sequence_.seen);
    if (count <= 0) break;
    sequence_.announced = portion.announced;
    StepInput input;
    input.tokens = left.first(static_cast<std::size_t>(count));
    left = left.subspan(static_cast<std::size_t>(count));
    KEYNEST_TRY(step(input));
  }
  return {};
}

}  // namespace keynest
