// A tile of query rows and its walk over the pages of a head.
#if defined(KEYNEST_KERNELS_ATTENTION_PAGES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KEYNEST_KERNELS_ATTENTION_PAGES_INL_H_
#undef KEYNEST_KERNELS_ATTENTION_PAGES_INL_H_
#else
#define KEYNEST_KERNELS_ATTENTION_PAGES_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"
#include "kernels/attention.h"
#include "kernels/attention_quants-inl.h"
#include "kernels/attention_scratch.h"
#include "kernels/attention_softmax-inl.h"
#include "kernels/attention_tile-inl.h"
#include "kernels/convert-inl.h"

HWY_BEFORE_NAMESPACE();
namespace keynest {
namespace HWY_NAMESPACE {
namespace {

/// Tokens [first, first + tokens) of a block, with all members of the group: row = token * group + member.
struct Tile {
  const HeadRows& keys;
  const QueryBlock& block;
  AttentionScratch scratch;
  int first, tokens;

  int rows() const { return tokens * block.group; }
  int head_dim() const { return keys.layout->head_dim; }
  /// Rows are handled in groups of nearly equal size: one if they fit, else of at most kTileRows.
  int groups() const { return rows() <= kMaxRows ? 1 : (rows() + kTileRows - 1) / kTileRows; }
  int group_start(int index) const { return rows() * index / groups(); }
  float* max_of_group(int index) const {
    return scratch.max + static_cast<std::size_t>(index) * kMaxGroupRows;
  }
  float* unit_of_group(int index) const {
    return scratch.fixed.query_units + static_cast<std::size_t>(index) * kMaxGroupRows;
  }
  const float* query(int row) const {
    return block.queries + static_cast<std::size_t>(first + row / block.group) * block.token_stride +
           static_cast<std::size_t>(row % block.group) * block.head_stride;
  }
  float* out(int row) const {
    return block.out + static_cast<std::size_t>(first + row / block.group) * block.out_token_stride +
           static_cast<std::size_t>(row % block.group) * block.out_head_stride;
  }
};

/// Scaled queries of rows [begin, end) interleaved: out[head_dim, end - begin].
inline void pack_group(const Tile& tile, int begin, int end, float* out) {
  const float scale = tile.block.scale * kLog2E;
  const int rows = end - begin;
  for (int r = 0; r < rows; ++r) {
    const float* query = tile.query(begin + r);
    for (int dim = 0; dim < tile.head_dim(); ++dim) out[dim * rows + r] = query[dim] * scale;
  }
}

inline void prepare(const Tile& tile) {
  const AttentionScratch& s = tile.scratch;
  const int rows = tile.rows(), d = tile.head_dim();
  for (int g = 0; g < tile.groups(); ++g) {
    const int begin = tile.group_start(g);
    pack_group(tile, begin, tile.group_start(g + 1), s.queries + static_cast<std::size_t>(begin) * d);
  }
  for (int row = 0; row < rows; ++row) {
    const std::int32_t position = to_int(tile.block.positions[tile.first + row / tile.block.group]);
    s.high[row] = position;
    s.low[row] = tile.block.window > 0 ? position - tile.block.window : -1;
  }
  std::fill(s.max, tile.max_of_group(tile.groups()), kNoLogit);
  std::fill(s.sums, s.sums + static_cast<std::size_t>(rows) * kLanes, 0.0f);
}

/// How a group of rows meets a page. Positions ascend with rows, so the first and last row tell.
enum class Meeting { kNone, kPartly, kWhole };

inline Meeting meeting(const AttentionScratch& s, int begin, int end, const PagePositions& page) {
  if (page.lowest > s.high[end - 1] || page.highest <= s.low[begin]) return Meeting::kNone;
  const bool whole = page.highest <= s.high[begin] && page.lowest > s.low[end - 1];
  return whole ? Meeting::kWhole : Meeting::kPartly;
}

/// logits[end - begin, 64] of rows [begin, end) = -inf where not visible.
inline void mask_rows(const Tile& tile, const PagePositions& positions, int begin, int end, Meeting how,
                      float* logits) {
  const AttentionScratch& s = tile.scratch;
  if (how == Meeting::kWhole) return;
  for (int row = begin; row < end; ++row) {
    mask_row(positions, {s.low[row], s.high[row]}, logits + (row - begin) * kPageRows);
  }
}

/// scratch.weights = logits of rows [begin, end) with the page, -inf where not visible.
template <class Page>
void masked_logits(const Tile& tile, const Page& page, const PagePositions& positions, int begin, int end,
                   Meeting how) {
  const AttentionScratch& s = tile.scratch;
  logits(end - begin, page, s.queries + static_cast<std::size_t>(begin) * tile.head_dim(), tile.head_dim(),
         s.weights);
  mask_rows(tile, positions, begin, end, how, s.weights);
}

static_assert(kTileRows >= kMinGroupRows && kMaxRows <= kMaxGroupRows);

/// Adds one page to the maxima and sums, and with kValues to the outputs, of all rows of the tile.
template <bool kValues, class Page>
void add_page(const Tile& tile, Page page, const PagePositions& positions, int count) {
  const AttentionScratch& s = tile.scratch;
  const std::size_t stride = padded_dim(tile.head_dim());
  const int vectors = static_cast<int>((static_cast<std::size_t>(tile.head_dim()) + kLanes - 1) / kLanes);
  for (int g = 0; g < tile.groups(); ++g) {
    const int begin = tile.group_start(g), end = tile.group_start(g + 1);
    const Meeting how = meeting(s, begin, end, positions);
    if (how == Meeting::kNone) continue;
    masked_logits(tile, page, positions, begin, end, how);
    softmax_step(end - begin, s.weights, tile.max_of_group(g),
                 s.sums + static_cast<std::size_t>(begin) * kLanes, s.rescale);
    if constexpr (kValues) {
      add_values(end - begin, vectors, page,
                 {s.weights, s.rescale, count, s.out + static_cast<std::size_t>(begin) * stride, stride});
    }
    page.next_keys = page.next_values = nullptr;  // has been asked for
  }
}

/// What is asked for: the next page; with kOnce the values while keys are read, and while those are read the
/// next page's keys.
template <class Stored, bool kOnce>
PageReader<Stored, kOnce> stored_page(const Tile& tile, int page) {
  const HeadRows& rows = tile.keys;
  const int next = std::min(page + 1, rows.page_count() - 1);
  const auto at = [](const std::byte* section) { return reinterpret_cast<const Stored*>(section); };
  const auto dim = static_cast<std::size_t>(tile.head_dim());
  if constexpr (kOnce) {
    return {at(rows.keys(page)), at(rows.values(page)), dim, at(rows.values(page)), at(rows.keys(next))};
  } else {
    return {at(rows.keys(page)), at(rows.values(page)), dim, at(rows.keys(next)), at(rows.values(next))};
  }
}

/// A page of q8_0, of half the bytes: a whole one ahead is best with kOnce too.
template <bool kOnce>
QuantPage<kOnce> quant_page(const Tile& tile, int page) {
  const HeadRows& rows = tile.keys;
  const int next = std::min(page + 1, rows.page_count() - 1);
  const auto dim = static_cast<std::size_t>(tile.head_dim());
  const Quants keys(rows.keys(page), dim), values(rows.values(page), dim);
  return {keys, values, dim, rows.keys(next), rows.values(next)};
}

/// A page of q8_0, its scales (of values too) converted into the scratch.
template <bool kValues>
ScaledPage scaled_page(const Tile& tile, int page) {
  const QuantPage<false> stored = quant_page<false>(tile, page);
  const AttentionScratch& s = tile.scratch;
  const std::size_t scales = stored.head_dim / kBlockDims * kPageRows;
  half_to_f32(stored.keys.scales, scales, s.keys);
  if constexpr (kValues) half_to_f32(stored.values.scales, scales, s.values);
  return {stored.keys,      stored.values,     s.keys, s.values, stored.head_dim,
          stored.next_keys, stored.next_values};
}

/// The page's keys (and values) converted into the scratch.
template <bool kValues>
PageReader<float> converted_page(const Tile& tile, int page) {
  const PageLayout& layout = *tile.keys.layout;
  const AttentionScratch& s = tile.scratch;
  const std::size_t stride = padded_dim(layout.head_dim);
  keys_to_f32(layout, tile.keys.keys(page), 0, layout.head_dim, s.keys);
  if constexpr (kValues) {
    for (int row = 0; row < tile.keys.rows_in_page(page); ++row) {
      value_row_to_f32(layout, tile.keys.values(page), row,
                       s.values + static_cast<std::size_t>(row) * stride);
    }
  }
  return {s.keys, s.values, stride, nullptr, nullptr};
}

/// Calls work(reader) with the page as stored where its numbers can be read one by one, else converted.
/// kOnce: no other tile will read it.
template <bool kValues, bool kOnce = false, class Work>
void read_page(const Tile& tile, int page, const Work& work) {
  const KvType type = tile.keys.layout->type;
  if (type == KvType::kF32) return work(stored_page<float, kOnce>(tile, page));
  if constexpr (kReadsHalf) {
    if (type == KvType::kF16) return work(stored_page<hwy::float16_t, kOnce>(tile, page));
    // BF16 was measured to gain nothing from kOnce, and to lose with many rows.
    if (type == KvType::kBF16) return work(stored_page<hwy::bfloat16_t, false>(tile, page));
  }
  work(converted_page<kValues>(tile, page));
}

/// Up to so many query rows q8_0 is read as it is stored; for more, a page is converted once.
inline constexpr int kMaxQuantRows = 16;

/// read_page for products of few rows, which may read q8_0 as it is stored. Logits without values are those
/// of converted keys to the bit, so that policies choose as they do over the same numbers in float.
template <bool kValues, bool kOnce, class Work>
void read_page_for_products(const Tile& tile, int page, const Work& work) {
  if (tile.keys.layout->type == KvType::kQ8_0) {
    if constexpr (kValues) {
      // Known from the whole block, so that it is the same for every tile.
      const bool few = tile.block.tokens * tile.block.group <= kMaxQuantRows;
      if (few) return work(quant_page<kOnce>(tile, page));
    } else {
      if (tile.groups() == 1) return work(scaled_page<false>(tile, page));
    }
  }
  read_page<kValues, kOnce>(tile, page, work);
}

/// Online softmax of all rows of the tile over pages [first, last).
template <bool kValues, bool kOnce = false>
void add_pages(const Tile& tile, int first, int last) {
  const AttentionScratch& s = tile.scratch;
  if constexpr (kValues) {
    std::fill(s.out, s.out + static_cast<std::size_t>(tile.rows()) * padded_dim(tile.head_dim()), 0.0f);
  }
  PagePositions positions;
  for (int page = first; page < last; ++page) {
    positions.load(tile.keys, page);
    if (meeting(s, 0, tile.rows(), positions) == Meeting::kNone) continue;
    const int count = tile.keys.rows_in_page(page);
    read_page_for_products<kValues, kOnce>(
        tile, page, [&](const auto& reader) { add_page<kValues>(tile, reader, positions, count); });
  }
}

}  // namespace
// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace keynest
HWY_AFTER_NAMESPACE();

#endif  // KEYNEST_KERNELS_ATTENTION_PAGES_INL_H_
