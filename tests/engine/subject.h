// A session under random tests, beside what it should hold and a log from which it can be built again.
#pragma once

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "engine/law_test.h"
#include "policy/evictor.h"

namespace keynest::test {

/// What a session of a random test is made with.
struct Plan {
  std::shared_ptr<const Model> model;
  bool any_portion = false;  ///< attention gives the same bits however a prompt is cut into blocks
  Settings settings;
  PolicySpec spec;
  std::shared_ptr<const Evictor> evictor;  ///< for layer budgets and needs
};

/// Something that was done and has an effect still.
struct Deed {
  enum class Kind { kPrefill, kDecode, kProtect };
  Kind kind = Kind::kPrefill;
  std::vector<Token> tokens;
  std::size_t done = 0;   ///< of the tokens; the rest was not reached, or was rolled back
  bool at_block = true;   ///< `done` is where a block of the prompt ended
  PositionRange range{};  ///< kProtect
};

class Subject {
 public:
  /// `others`: how many sessions there are on the pool, this one included.
  Subject(const Plan& plan, std::unique_ptr<Session> session, const int& others);

  void prefill(const std::vector<Token>& tokens);
  void decode(Token token);
  void protect(PositionRange range);
  void rollback(std::mt19937& random);
  /// Nothing in case of an error that the plan allows.
  std::unique_ptr<Subject> fork() const;
  /// What a fresh session holds after the same deeds, and what both say to the next tokens.
  void compare_with_a_straight_run(std::mt19937& random);

  std::int32_t seen() const { return seen_; }

 private:
  std::int64_t limit(int layer) const;
  bool windowed(int layer) const;
  void settle(std::size_t prompt);
  bool decode_evicts() const;
  void expect_step(std::int32_t tokens, bool evict);
  /// What a session says of itself.
  struct Said {
    std::vector<std::vector<std::vector<Position>>> kept;
    std::vector<float> logits;
    std::int32_t budget = 0;
  };
  Said said() const;
  void expect_refusal(const Status& status, const Said& before);
  void check(bool evicted) const;
  void check_head(int layer, const std::vector<Position>& kept, bool evicted) const;
  void forget(std::int32_t position);
  std::int32_t rollback_target(std::mt19937& random) const;
  std::unique_ptr<Session> straight_run() const;

  Plan plan_;
  std::unique_ptr<Session> session_;
  const int& sessions_;  // on the pool
  std::vector<Deed> log_;
  std::vector<std::int32_t> budgets_;   // [layers], empty: unbounded
  std::vector<std::int64_t> expected_;  // [layers] entries
  std::vector<PositionRange> protected_;
  std::vector<std::int32_t> ends_;  // of portions since the last eviction
  std::int32_t seen_ = 0, last_eviction_ = 0;
  std::size_t evictions_ = 0;
};

}  // namespace keynest::test
