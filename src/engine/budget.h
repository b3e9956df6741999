// From what a user asked for (entries, share of the prompt, bytes) to N.
#pragma once

#include <cstdint>

#include "kernels/page.h"
#include "keynest/result.h"
#include "keynest/session.h"
#include "model/graph.h"

namespace keynest {

/// Bytes of all pages of a sequence that holds `entries` per head (less in sliding-window layers).
/// `ragged`: heads may hold different amounts, which takes up to one page more each.
std::size_t cache_bytes(const Hparams& hparams, const PageLayout& layout, std::int64_t entries,
                        std::int32_t block, bool ragged);

/// N for a prompt of `prompt` tokens; 0 = unbounded.
/// Errors: a budget of 0 entries; bytes that do not hold one entry and a block.
Result<std::int32_t> resolve_budget(const Budget& budget, const Hparams& hparams, const PageLayout& layout,
                                    std::int32_t block, bool ragged, std::int64_t prompt);

/// Bytes the machine can still give, from the system's own estimate.
std::size_t available_memory();

}  // namespace keynest
