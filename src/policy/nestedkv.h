// NestedKV, in a form that never needs more than the entries present. One-shot it equals the published
// method.
#pragma once

#include "policy/nested_combine.h"
#include "policy/policy.h"

namespace keynest {

/// Per head and sequence, whatever became of the entries (doubles, see HeadView::state): the sum of all unit
/// keys seen and of those of the open episode, the last 63 unit keys. Per entry (floats): its distance (1 -
/// cos) from its episode, once that is complete, and from the 64 tokens up to itself, fixed at arrival.
class NestedKV final : public Policy {
 public:
  /// first: sinks; episode: tokens per episode, 0 = from the announced prompt length.
  NestedKV(const NestedOptions& options, std::int32_t first, std::int32_t episode, int head_dim)
      : options_(options), first_(first), episode_(episode), head_dim_(static_cast<std::size_t>(head_dim)) {}

  PolicyNeeds needs() const override;
  std::int32_t first_pins() const override { return first_; }
  std::int32_t least_secured() const override { return 0; }
  std::size_t scratch_bytes(std::int32_t rows) const override;
  void observe(const HeadView& head) const override;
  void score(const HeadView& head, std::span<float> scores) const override;

  /// Every vector on the way to the scores, [rows]; anomalies are distances, 1 + the paper's. Cut off
  /// head.scratch.
  NestedVectors vectors(const HeadView& head) const;

 private:
  struct State;  // names for parts of HeadView::state
  struct Room;   // scratch of observe

  void arrive(const HeadView& head, State& state, Room& room, std::int32_t position, Row row,
              std::span<const double> unit) const;
  void close_episode(const HeadView& head, const State& state, Room& room, std::int32_t episode) const;

  NestedOptions options_;
  std::int32_t first_, episode_;
  std::size_t head_dim_;
};

}  // namespace keynest
