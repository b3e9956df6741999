// What a policy asks of the attention step, collected without ever holding an attention matrix.
#pragma once

#include <cstddef>
#include <span>

#include "kernels/attention.h"
#include "policy/policy.h"
#include "policy/scratch.h"

namespace keynest {

/// Where the last `window` queries of one head are kept: [window, group, head_dim], token p at p % window.
struct QueryRing {
  std::span<float> queries;
  int window = 0;
};

/// Copies the queries of a block, the last of which is token seen - 1, into the ring.
void remember_queries(const QueryRing& ring, const QueryBlock& block, int head_dim, std::int32_t seen);

/// The block's attention as `needs` asks for it, [rows] or [group, rows] (see HeadView::attention). `ring` is
/// used by kWindow when the block is shorter than the window.
std::span<const float> collect_attention(const PolicyNeeds& needs, const HeadRows& rows,
                                         const QueryBlock& block, const QueryRing& ring, std::int32_t seen,
                                         Scratch& scratch);

/// Scratch bytes collect_attention takes.
std::size_t attention_needs_bytes(const PolicyNeeds& needs, const PageLayout& layout, int group,
                                  std::int32_t rows);

}  // namespace keynest
