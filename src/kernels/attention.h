// Attention of a block of queries over one KV head's pages. Causality and sliding windows come from
// positions; there is no mask tensor. One code path serves full, uniform and ragged caches.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/page.h"

namespace keynest {

/// The queries of one block that read one KV head (a group of query heads), and where results go.
struct QueryBlock {
  const float* queries =
      nullptr;  ///< token t, group member g at queries + t*token_stride + g*head_stride, [head_dim]
  std::size_t token_stride = 0, head_stride = 0;  ///< in floats
  int tokens = 0;
  int group = 0;                        ///< query heads per KV head
  const Position* positions = nullptr;  ///< [tokens], ascending
  float scale = 1.0f;                   ///< of the logits, usually 1/sqrt(head_dim)
  int window = 0;  ///< 0: none; else a key is visible iff query position - key position < window

  float* out = nullptr;  ///< same indexing, with the strides below
  std::size_t out_token_stride = 0, out_head_stride = 0;

  /// Optional, [tokens, group]: maximum of the scaled logits and sum of exp(logit - max) of every query.
  /// Needed by the second pass of attention-based policies; not computed into when null.
  float* row_max = nullptr;
  float* row_sum = nullptr;
};

/// Scratch bytes one thread needs for any call below.
std::size_t attention_scratch_bytes(const PageLayout& layout, int group);

/// How many tokens one task of `attend` should take.
int attention_tile_tokens(int group);

/// Prefill form: softmax(q k^T * scale) v for tokens [first, last) of the block over all rows. A query sees
/// the rows whose position is <= its own (and inside the window); where it sees none, its output is 0. The
/// result of a query does not depend on how tokens are shared by calls, to the last bit.
void attend(const HeadRows& rows, const QueryBlock& block, int first, int last, void* scratch);

/// What `attend` computes in. In float, outputs differ from double by a few 1e-6 of the largest value. In
/// fixed point (keys and values not stored as float, a block of 16 rows and more, a CPU with AVX-512 VNNI;
/// 16-bit integers times a unit each, sums over a page in 32 bits) they do by some 1e-4, a third of what
/// storing keys and values as f16 costs or less; row_max and row_sum are those of these logits. A head with
/// keys that are not finite is attended in float.
bool attends_in_fixed_point(const PageLayout& layout, const QueryBlock& block);

/// Decode form, split over keys so that one sequence can occupy several threads: partial results of all
/// queries of the block (few: tokens * group <= kMaxPartialQueries) over pages [first, last).
inline constexpr int kMaxPartialQueries = 64;

struct PartialAttention {
  float* max;  ///< [tokens*group] maximum of the scaled logits; -inf when nothing is visible
  float* sum;  ///< [tokens*group]
  float* out;  ///< [tokens*group, head_dim], not yet divided by sum
};

void attend_pages(const HeadRows& rows, const QueryBlock& block, int first_page, int last_page,
                  const PartialAttention& partial, void* scratch);

/// Merges `count` partial results into block.out (and row_max / row_sum when given).
void merge_partials(const QueryBlock& block, int head_dim, const PartialAttention* partials, int count);

/// First pass without values: only block.row_max and block.row_sum of tokens [first, last), for queries kept
/// from earlier blocks (SnapKV's window) whose statistics belong to another cache.
void attention_statistics(const HeadRows& rows, const QueryBlock& block, int first, int last, void* scratch);

/// Second pass: attention weights without ever holding the matrix. Adds, for every row r,
///   sum over tokens in [first, last) and group members of exp(logit - row_max) / row_sum
/// to column_sums[r] (float [rows]). Reads block.row_max and block.row_sum of the first pass.
void add_attention_columns(const HeadRows& rows, const QueryBlock& block, int first, int last,
                           float* column_sums, void* scratch);

/// The SIMD target chosen at run time, e.g. "AVX3", "AVX2", "NEON".
const char* simd_target();

}  // namespace keynest
