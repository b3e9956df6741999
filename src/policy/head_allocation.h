// How the budget of a layer is shared over its heads: which rows stay, from scores in which pins are raised.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/select.h"

namespace keynest {

/// The `budget` best rows of a head, ascending; all of them when there are no more. Pins are raised.
void keep_best(const ScoredRows& head, std::int32_t budget, std::vector<Row>& kept);

/// Heads compete for heads.size() * budget entries: each secures its own best `secured` ones (all, if it has
/// fewer), the rest goes by score over (head, position). Feng et al., "Ada-KV: Optimizing KV Cache Eviction
/// by Adaptive Budget Allocation", algorithm 1 and the safeguard of section 4.1; tested against
/// golden/reference.py (compete).
void keep_across_heads(std::span<const ScoredRows> heads, std::int32_t budget, std::int32_t secured,
                       std::vector<std::vector<Row>>& kept);

}  // namespace keynest
