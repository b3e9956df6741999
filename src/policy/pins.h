// Entries kept whatever their score: the first positions, the most recent ones, ranges the caller protects.
#pragma once

#include <cstdint>
#include <span>

#include "keynest/policy.h"
#include "keynest/result.h"
#include "policy/policy.h"

namespace keynest {

/// The pins of one layer at one moment.
struct Pins {
  std::int32_t first = 0;        ///< positions below are kept
  std::int32_t recent_from = 0;  ///< positions from here on are kept
  std::span<const PositionRange> ranges;
  /// Positions below are wanted by the method (sinks): above every score, below the pins; a small budget
  /// keeps only the first of them.
  std::int32_t wanted_first = 0;

  bool hold(Position position) const;
  /// False when no entry of `seen` tokens is held or wanted.
  bool any(std::int32_t seen) const;

  /// Scores of pinned entries become +inf, those of wanted ones the largest finite float. Returns how many
  /// are pinned.
  std::int32_t raise(const HeadRows& head, std::span<float> scores) const;
};

/// seen: tokens so far; budget: N of the layer.
Pins make_pins(const PolicySpec& spec, const Policy& policy, std::int32_t budget, std::int32_t seen,
               std::span<const PositionRange> ranges);

/// Errors: see Evictor::check_pins. `policy` null: only the ranges are looked at.
Status check_pins(const PolicySpec& spec, const Policy* policy, std::int32_t budget,
                  std::span<const PositionRange> ranges, std::int32_t length);

/// The error of `pinned` entries in a budget of `budget`: the `first` positions, the most `recent` ones, and
/// what is protected outside of both.
Error pins_above_budget(std::int64_t pinned, std::int32_t budget, std::int64_t first, std::int64_t recent);

}  // namespace keynest
