#include "kernels/attention.h"

#include "kernels/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention.cc"
#include <algorithm>
#include <cmath>
#include <limits>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/attention_fixed-inl.h"
#include "kernels/attention_pages-inl.h"
#include "kernels/attention_scratch.h"
#include "kernels/attention_softmax-inl.h"

HWY_BEFORE_NAMESPACE();
namespace keynest {
namespace HWY_NAMESPACE {
namespace {

float sum_of_row(const AttentionScratch& s, int row) {
  const FloatTag d;
  return hn::GetLane(hn::SumOfLanes(d, hn::LoadU(d, s.sums + static_cast<std::size_t>(row) * kLanes)));
}

/// out[rows] = maxima of the scaled logits, -inf where nothing was visible; back from powers of two.
void write_maxima(const Tile& tile, float* out) {
  for (int g = 0; g < tile.groups(); ++g) {
    const float* max = tile.max_of_group(g);
    for (int row = tile.group_start(g); row < tile.group_start(g + 1); ++row, ++max) {
      out[row] = *max == kNoLogit ? -std::numeric_limits<float>::infinity() : *max * kLn2;
    }
  }
}

void write_sums(const Tile& tile, float* out) {
  for (int row = 0; row < tile.rows(); ++row) out[row] = sum_of_row(tile.scratch, row);
}

void write_statistics(const Tile& tile) {
  const QueryBlock& block = tile.block;
  const int offset = tile.first * block.group;
  if (block.row_max != nullptr) write_maxima(tile, block.row_max + offset);
  if (block.row_sum != nullptr) write_sums(tile, block.row_sum + offset);
}

void write_out(const Tile& tile) {
  const std::size_t stride = padded_dim(tile.head_dim());
  for (int row = 0; row < tile.rows(); ++row) {
    const float sum = sum_of_row(tile.scratch, row);
    const float factor = sum > 0.0f ? 1.0f / sum : 0.0f;
    const float* in = tile.scratch.out + static_cast<std::size_t>(row) * stride;
    float* out = tile.out(row);
    for (int dim = 0; dim < tile.head_dim(); ++dim) out[dim] = in[dim] * factor;
  }
}

/// Calls `work` with tiles that cover tokens [first, last).
template <class Work>
void for_each_tile(const HeadRows& rows, const QueryBlock& block, int first, int last, void* memory,
                   Work work) {
  const AttentionScratch scratch = AttentionScratch::carve(memory, *rows.layout, block.group);
  const int step = attention_tile_tokens(block.group);
  for (int token = first; token < last; token += step) {
    const Tile tile{rows, block, scratch, token, std::min(step, last - token)};
    prepare(tile);
    work(tile);
  }
}

void attend_tile(const Tile& tile) {
  if (!add_pages_fixed(tile)) add_pages<true>(tile, 0, tile.keys.page_count());
  write_out(tile);
  write_statistics(tile);
}

void attend(const HeadRows& rows, const QueryBlock& block, int first, int last, void* scratch) {
  for_each_tile(rows, block, first, last, scratch, attend_tile);
}

void statistics_of_tile(const Tile& tile) {
  add_pages<false>(tile, 0, tile.keys.page_count());
  write_statistics(tile);
}

void attention_statistics(const HeadRows& rows, const QueryBlock& block, int first, int last, void* scratch) {
  for_each_tile(rows, block, first, last, scratch, statistics_of_tile);
}

void attend_pages(const HeadRows& rows, const QueryBlock& block, int first_page, int last_page,
                  const PartialAttention& partial, void* memory) {
  const AttentionScratch scratch = AttentionScratch::carve(memory, *rows.layout, block.group);
  const Tile tile{rows, block, scratch, 0, block.tokens};
  const auto d = static_cast<std::size_t>(tile.head_dim());
  const std::size_t stride = padded_dim(tile.head_dim());
  prepare(tile);
  add_pages<true, true>(tile, first_page, last_page);
  write_maxima(tile, partial.max);
  write_sums(tile, partial.sum);
  for (int row = 0; row < tile.rows(); ++row) {
    const float* in = scratch.out + static_cast<std::size_t>(row) * stride;
    std::copy(in, in + d, partial.out + static_cast<std::size_t>(row) * d);
  }
}

/// sums[count] += over rows [begin, end) of the attention weights in scratch.weights [rows, 64], given as
/// logits.
void add_columns(const Tile& tile, int begin, int end, int count, float* sums) {
  const FloatTag d;
  const AttentionScratch& s = tile.scratch;
  HWY_ALIGN float columns[kPageRows] = {};
  for (int row = begin; row < end; ++row) {
    const int query = tile.first * tile.block.group + row;
    const float sum = tile.block.row_sum[query];
    float* weights = s.weights + (row - begin) * kPageRows;
    const float factor = sum > 0.0f ? 1.0f / sum : 0.0f;
    weights_of_row(weights, hn::Set(d, tile.block.row_max[query] * kLog2E));
    for (int column = 0; column < kPageRows; ++column) columns[column] += weights[column] * factor;
  }
  for (int column = 0; column < count; ++column) sums[column] += columns[column];
}

template <class Page>
void add_columns_of_page(const Tile& tile, const Page& page, const PagePositions& positions, int count,
                         float* sums) {
  for (int g = 0; g < tile.groups(); ++g) {
    const int begin = tile.group_start(g), end = tile.group_start(g + 1);
    const Meeting how = meeting(tile.scratch, begin, end, positions);
    if (how == Meeting::kNone) continue;
    masked_logits(tile, page, positions, begin, end, how);
    add_columns(tile, begin, end, count, sums);
  }
}

void add_columns_of_tile(const Tile& tile, float* column_sums) {
  PagePositions positions;
  for (int page = 0; page < tile.keys.page_count(); ++page) {
    positions.load(tile.keys, page);
    if (meeting(tile.scratch, 0, tile.rows(), positions) == Meeting::kNone) continue;
    const int count = tile.keys.rows_in_page(page);
    read_page_for_products<false, false>(tile, page, [&](const auto& reader) {
      add_columns_of_page(tile, reader, positions, count, column_sums + page * kPageRows);
    });
  }
}

struct AddColumns {
  float* column_sums;
  void operator()(const Tile& tile) const { add_columns_of_tile(tile, column_sums); }
};

void add_attention_columns(const HeadRows& rows, const QueryBlock& block, int first, int last,
                           float* column_sums, void* scratch) {
  for_each_tile(rows, block, first, last, scratch, AddColumns{column_sums});
}

const char* simd_target() { return hwy::TargetName(HWY_TARGET); }

}  // namespace
// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace keynest
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace keynest {
namespace {

HWY_EXPORT(attend);
HWY_EXPORT(takes_fixed_point);
HWY_EXPORT(attend_pages);
HWY_EXPORT(attention_statistics);
HWY_EXPORT(add_attention_columns);
HWY_EXPORT(simd_target);

}  // namespace

std::size_t attention_scratch_bytes(const PageLayout& layout, int group) {
  std::size_t bytes = 0;
  AttentionScratch::carve(nullptr, layout, group, &bytes);
  return bytes;
}

int attention_tile_tokens(int group) {
  // A power of two, so that blocks are shared evenly by tasks; up to 128 rows, so that converting a page is
  // cheap beside using it.
  int tokens = 1;
  while (2 * tokens * group <= 128 && tokens < 64) tokens *= 2;
  return tokens;
}

void attend(const HeadRows& rows, const QueryBlock& block, int first, int last, void* scratch) {
  HWY_DYNAMIC_DISPATCH(attend)(rows, block, first, last, scratch);
}

bool attends_in_fixed_point(const PageLayout& layout, const QueryBlock& block) {
  return HWY_DYNAMIC_DISPATCH(takes_fixed_point)(layout, block);
}

void attend_pages(const HeadRows& rows, const QueryBlock& block, int first_page, int last_page,
                  const PartialAttention& partial, void* scratch) {
  HWY_DYNAMIC_DISPATCH(attend_pages)(rows, block, first_page, last_page, partial, scratch);
}

void attention_statistics(const HeadRows& rows, const QueryBlock& block, int first, int last, void* scratch) {
  HWY_DYNAMIC_DISPATCH(attention_statistics)(rows, block, first, last, scratch);
}

void add_attention_columns(const HeadRows& rows, const QueryBlock& block, int first, int last,
                           float* column_sums, void* scratch) {
  HWY_DYNAMIC_DISPATCH(add_attention_columns)(rows, block, first, last, column_sums, scratch);
}

const char* simd_target() { return HWY_DYNAMIC_DISPATCH(simd_target)(); }

namespace {

/// Merges row `row` of all partial results into out[head_dim].
void merge_row(const PartialAttention* partials, int count, std::size_t row, std::size_t d, float& max,
               float& sum, float* out) {
  max = partials[0].max[row];
  for (int i = 1; i < count; ++i) max = std::max(max, partials[i].max[row]);
  sum = 0;
  std::fill(out, out + d, 0.0f);
  for (int i = 0; i < count; ++i) {
    if (!(partials[i].sum[row] > 0.0f)) continue;
    const float weight = std::exp(partials[i].max[row] - max);
    const float* in = partials[i].out + row * d;
    sum += weight * partials[i].sum[row];
    for (std::size_t dim = 0; dim < d; ++dim) out[dim] += weight * in[dim];
  }
  const float factor = sum > 0.0f ? 1.0f / sum : 0.0f;
  for (std::size_t dim = 0; dim < d; ++dim) out[dim] *= factor;
}

}  // namespace

void merge_partials(const QueryBlock& block, int head_dim, const PartialAttention* partials, int count) {
  for (int token = 0; token < block.tokens; ++token) {
    for (int member = 0; member < block.group; ++member) {
      const auto row = static_cast<std::size_t>(token) * static_cast<std::size_t>(block.group) +
                       static_cast<std::size_t>(member);
      float* out = block.out + static_cast<std::size_t>(token) * block.out_token_stride +
                   static_cast<std::size_t>(member) * block.out_head_stride;
      float max = 0, sum = 0;
      merge_row(partials, count, row, static_cast<std::size_t>(head_dim), max, sum, out);
      if (block.row_max != nullptr) block.row_max[row] = max;
      if (block.row_sum != nullptr) block.row_sum[row] = sum;
    }
  }
}

}  // namespace keynest
#endif  // HWY_ONCE
