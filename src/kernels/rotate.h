// Turning stored keys to another position.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/page.h"

namespace keynest {

/// Rotary embedding of a head: pair i turns by frequencies[i] for every position.
struct KeyRotation {
  std::span<const float> frequencies;  ///< [head_dim / 2], radians
  bool adjacent_pairs = false;         ///< pair i is (2i, 2i + 1); else (i, i + head_dim / 2)
};

/// A row whose key turns by so many positions; negative = back.
struct RowTurn {
  Row row{};
  std::int32_t by = 0;
};

/// Turns the keys of `turns` in the order given, in double, rounds them to the page's type again and sets
/// their norms from what is stored. Runs of equal `by` share their sines.
void rotate_keys(const HeadRows& head, std::span<const RowTurn> turns, const KeyRotation& rotation);

}  // namespace keynest
