// The session behind keynest::Session: when to evict, how large a block may be, and what is reported.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "engine/executor.h"
#include "engine/sampler.h"
#include "engine/step.h"
#include "keynest/session.h"
#include "model/graph.h"

namespace keynest {

class SessionImpl final : public Session {
 public:
  static Result<std::unique_ptr<Session>> create(std::shared_ptr<const GraphModel> model,
                                                 SessionOptions options);

  Status prefill(std::span<const Token> tokens, const ProgressCallback& progress) override;
  Status prefill_with_logits(std::span<const Token> tokens, const LogitsSink& sink) override;
  Status protect(PositionRange range) override;
  Status decode(Token token) override;
  std::span<const float> logits() const override { return logits_; }
  Token sample(const SamplingOptions& options) override { return sampler_.sample(logits_, options); }
  Result<std::unique_ptr<Session>> fork() const override;
  Status rollback(Position position) override;
  std::vector<Position> kept(int layer, int kv_head) const override;
  Result<HeadReport> inspect(int layer, int kv_head) const override;
  std::int64_t seen() const override { return sequence_.seen; }
  Stats stats() const override;

 private:
  SessionImpl(std::shared_ptr<const GraphModel> model, SessionOptions options,
              std::shared_ptr<const Evictor> evictor, std::shared_ptr<Executor> executor,
              std::shared_ptr<PagePool> pool, Sequence sequence);

  /// Called for every block of a prompt after it was processed; false stops.
  using BlockCallback = std::function<bool(std::int64_t done, std::int32_t count)>;

  /// What tokens settle before the first of them is processed; taken back at the end of its life unless one
  /// was.
  class Settlement {
   public:
    explicit Settlement(SessionImpl& session);
    ~Settlement();
    Settlement(const Settlement&) = delete;
    Settlement& operator=(const Settlement&) = delete;

   private:
    SessionImpl& session_;
    std::int32_t seen_, announced_, budget_;
    std::vector<std::int32_t> budgets_;  // empty where they are settled for good
  };

  Status check_tokens(std::span<const Token> tokens) const;
  Status settle_budget(std::int64_t prompt);
  Status check_protected(std::span<const PositionRange> ranges, std::span<const std::int32_t> budgets,
                         std::int64_t length) const;
  bool holds(PositionRange range) const;
  Status check_room(std::int64_t prompt) const;
  Status process(std::span<const Token> tokens, bool all_logits, const BlockCallback& after_block);
  Status step(const StepInput& input);
  std::int32_t next_block(std::int64_t left) const;
  bool decode_eviction_due() const;
  bool bounded() const { return budget_ > 0 && evictor_->evicts(); }
  void record_entries();

  /// What stateful policies remembered after the last eviction, to go back to.
  struct Checkpoint {
    struct Portion {
      std::int32_t tokens, announced;
    };
    std::vector<LayerState> states;               // [layers]
    std::vector<std::vector<float>> entry_state;  // [layers * kv_heads][row_state * rows]
    std::int32_t announced = 0;
    std::vector<Token> tokens;   // processed since
    std::vector<Portion> steps;  // and in which portions
  };
  bool stateful() const { return !evictor_->needs().stateless(); }
  void remember(const StepInput& input, bool evicted);
  Status restore(std::int32_t position);
  void truncate(std::int32_t position);
  void copy_entry_state(bool restore);

  std::shared_ptr<const GraphModel> model_;
  SessionOptions options_;
  std::shared_ptr<const Evictor> evictor_;
  std::shared_ptr<Executor> executor_;
  std::shared_ptr<PagePool> pool_;
  Sequence sequence_;
  Checkpoint checkpoint_;  // of stateful policies
  Sampler sampler_;
  std::vector<float> logits_;
  std::int32_t budget_ = 0;  // N; 0 = unbounded
  Stats stats_;
};

}  // namespace keynest
