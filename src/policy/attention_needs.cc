#include "policy/attention_needs.h"

#include <algorithm>
#include <cassert>

namespace keynest {
namespace {

// Consecutive queries whose weights are wanted: a part of the current block (statistics known from its
// attention pass) or of the ring (statistics belong to another cache and are computed again).
struct QuerySpan {
  QueryBlock block;
  int first = 0, last = 0;
  bool remembered = false;
};

struct Statistics {
  std::span<float> row_max, row_sum;  // [window, group]
};

// One member of the group as a block of its own; known statistics are copied next to each other.
QueryBlock member_of(const QuerySpan& span, int member, const Statistics& room) {
  QueryBlock block = span.block;
  block.queries += static_cast<std::size_t>(member) * block.head_stride;
  block.group = 1;
  for (int t = span.first; t < span.last && !span.remembered; ++t) {
    const auto from = static_cast<std::size_t>(t) * static_cast<std::size_t>(span.block.group) +
                      static_cast<std::size_t>(member);
    const auto to = static_cast<std::size_t>(t - span.first);
    room.row_max[to] = span.block.row_max[from];
    room.row_sum[to] = span.block.row_sum[from];
  }
  block.row_max = room.row_max.data();
  block.row_sum = room.row_sum.data();
  block.queries += static_cast<std::size_t>(span.first) * block.token_stride;
  block.positions += span.first;
  block.tokens = span.last - span.first;
  return block;
}

void add_columns(const HeadRows& rows, const QuerySpan& span, QueryBlock block, int first, int last,
                 const Statistics& room, float* columns, std::byte* scratch) {
  if (span.remembered) {
    block.row_max = room.row_max.data();
    block.row_sum = room.row_sum.data();
    attention_statistics(rows, block, first, last, scratch);
  }
  add_attention_columns(rows, block, first, last, columns, scratch);
}

// The last `count` queries: of the block when it holds them all, else from the ring in at most two pieces.
int spans_of_last(int count, const QueryBlock& block, const QueryRing& ring, int head_dim, std::int32_t seen,
                  std::span<Position> positions, QuerySpan* out) {
  if (block.tokens >= count) {
    out[0] = {block, block.tokens - count, block.tokens, false};
    return 1;
  }
  const auto row = static_cast<std::size_t>(block.group) * static_cast<std::size_t>(head_dim);
  for (int i = 0; i < count; ++i) positions[static_cast<std::size_t>(i)] = Position{seen - count + i};
  int spans = 0;
  for (int done = 0; done < count; ++spans) {
    const int slot = (seen - count + done) % ring.window;
    const int length = std::min(count - done, ring.window - slot);
    QueryBlock part = block;
    part.queries = ring.queries.data() + static_cast<std::size_t>(slot) * row;
    part.token_stride = row;
    part.head_stride = static_cast<std::size_t>(head_dim);
    part.tokens = length;
    part.positions = positions.data() + done;
    out[spans] = {part, 0, length, true};
    done += length;
  }
  return spans;
}

int wanted_queries(const PolicyNeeds& needs, const QueryBlock& block, std::int32_t seen) {
  switch (needs.attention) {
    case AttentionNeed::kLastQuery:
      return 1;
    case AttentionNeed::kWindow:
      return std::min(needs.window, seen);
    default:
      return block.tokens;
  }
}

std::size_t size_of(int a, int b) { return static_cast<std::size_t>(a) * static_cast<std::size_t>(b); }

}  // namespace

void remember_queries(const QueryRing& ring, const QueryBlock& block, int head_dim, std::int32_t seen) {
  const auto dim = static_cast<std::size_t>(head_dim);
  for (int t = std::max(0, block.tokens - ring.window); t < block.tokens; ++t) {
    const int slot = (seen - block.tokens + t) % ring.window;
    for (int g = 0; g < block.group; ++g) {
      const float* query = block.queries + static_cast<std::size_t>(t) * block.token_stride +
                           static_cast<std::size_t>(g) * block.head_stride;
      std::copy(query, query + dim,
                ring.queries.data() + (size_of(slot, block.group) + static_cast<std::size_t>(g)) * dim);
    }
  }
}

std::span<const float> collect_attention(const PolicyNeeds& needs, const HeadRows& rows,
                                         const QueryBlock& block, const QueryRing& ring, std::int32_t seen,
                                         Scratch& scratch) {
  const auto row_count = static_cast<std::size_t>(rows.rows);
  const std::size_t room = size_of(needs.window, block.group);
  const std::span<float> columns =
      scratch.take<float>(row_count * (needs.per_query_head ? static_cast<std::size_t>(block.group) : 1));
  const Statistics statistics{scratch.take<float>(room), scratch.take<float>(room)};
  const std::span<Position> positions = scratch.take<Position>(static_cast<std::size_t>(needs.window));
  std::fill(columns.begin(), columns.end(), 0.0f);

  QuerySpan spans[2];
  const int count = wanted_queries(needs, block, seen);
  const int pieces = spans_of_last(count, block, ring, rows.layout->head_dim, seen, positions, spans);
  for (int i = 0; i < pieces; ++i) {
    if (!needs.per_query_head) {
      add_columns(rows, spans[i], spans[i].block, spans[i].first, spans[i].last, statistics, columns.data(),
                  scratch.rest());
      continue;
    }
    for (int g = 0; g < block.group; ++g) {
      const QueryBlock member = member_of(spans[i], g, statistics);
      add_columns(rows, spans[i], member, 0, member.tokens, statistics,
                  columns.data() + static_cast<std::size_t>(g) * row_count, scratch.rest());
    }
  }
  const int queries = needs.attention == AttentionNeed::kAccumulated ? 1 : count;  // sums stay sums
  const float factor = 1.0f / static_cast<float>(queries * (needs.per_query_head ? 1 : block.group));
  for (float& x : columns) x *= factor;
  return columns;
}

std::size_t attention_needs_bytes(const PolicyNeeds& needs, const PageLayout& layout, int group,
                                  std::int32_t rows) {
  if (needs.attention == AttentionNeed::kNone) return 0;
  const std::size_t room = size_of(needs.window, group);
  return scratch_size<float>(static_cast<std::size_t>(rows) *
                             static_cast<std::size_t>(needs.per_query_head ? group : 1)) +
         2 * scratch_size<float>(room) + scratch_size<Position>(static_cast<std::size_t>(needs.window)) +
         attention_scratch_bytes(layout, group);
}

}  // namespace keynest
