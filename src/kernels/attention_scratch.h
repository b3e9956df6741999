// How a thread's scratch memory is shared out by the attention kernels.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/attention.h"
#include "kernels/page.h"

namespace keynest {

inline constexpr std::size_t kMaxLanes = 16;     // floats per vector, at most
inline constexpr std::size_t kMaxGroupRows = 8;  // query rows handled together, at most
inline constexpr std::size_t kMinGroupRows = 6;  // what every SIMD target takes at least
inline constexpr std::size_t kFixedGroups = 4;   // groups that take each step in fixed point together

/// Floats between two output rows: head_dim rounded up to whole vectors.
inline std::size_t padded_dim(int head_dim) {
  return (static_cast<std::size_t>(head_dim) + kMaxLanes - 1) / kMaxLanes * kMaxLanes;
}

/// What attention in fixed point works on (attention_round-inl.h): pairs of 16-bit integers, and the units
/// they count.
struct FixedScratch {
  std::int32_t* keys;     ///< [head_dim / 2, 64]
  std::int32_t* values;   ///< [32, padded_dim]
  float* logits;          ///< [kFixedGroups, kMaxGroupRows, 64], then softmax weights
  std::int32_t* weights;  ///< [kFixedGroups, kMaxGroupRows, 32]
  std::int32_t* queries;  ///< groups of g rows each, interleaved [head_dim / 2, g]
  float* query_units;     ///< [groups, kMaxGroupRows], logits of one
  float* value_units;     ///< [padded_dim], of the page
  float* key_limits;      ///< [padded_dim], the largest absolute values of the head
  float* key_units;       ///< [padded_dim]
  float* key_inverses;    ///< [padded_dim], 1 / key_units
};

/// A tile of query rows (token x group member) and the page under work.
struct AttentionScratch {
  float* keys;         ///< [head_dim, 64], the page's keys
  float* values;       ///< [64, padded_dim]
  float* weights;      ///< [kMaxGroupRows, 64], logits, then softmax weights
  float* rescale;      ///< [kMaxGroupRows]
  float* queries;      ///< groups of g rows each, interleaved [head_dim, g]; times scale and log2(e)
  float* out;          ///< [rows, padded_dim]
  float* max;          ///< [groups, kMaxGroupRows], in powers of two
  float* sums;         ///< [rows, kMaxLanes]
  std::int32_t* high;  ///< [rows], position of the query
  std::int32_t* low;   ///< [rows], positions up to this one are outside its window
  FixedScratch fixed;

  static std::size_t max_rows(int group) {
    return static_cast<std::size_t>(std::max(attention_tile_tokens(group) * group, kMaxPartialQueries));
  }

  static AttentionScratch carve(void* memory, const PageLayout& layout, int group,
                                std::size_t* bytes = nullptr) {
    const auto start = reinterpret_cast<std::uintptr_t>(memory);
    std::uintptr_t at = (start + kPageAlignment - 1) / kPageAlignment * kPageAlignment;
    const auto take = [&at](std::size_t floats) {
      auto* taken = reinterpret_cast<float*>(at);
      at += (floats * sizeof(float) + kPageAlignment - 1) / kPageAlignment * kPageAlignment;
      return taken;
    };
    const auto take_integers = [&take](std::size_t count) {
      return reinterpret_cast<std::int32_t*>(take(count));
    };
    const std::size_t rows = max_rows(group), d = padded_dim(layout.head_dim);
    const std::size_t groups = rows / kMinGroupRows + 1;
    AttentionScratch s{};
    s.keys = take(d * kPageRows);
    s.values = take(d * kPageRows);
    s.weights = take(kMaxGroupRows * kPageRows);
    s.rescale = take(kMaxGroupRows);
    s.queries = take(rows * d);
    s.out = take(rows * d);
    s.max = take(groups * kMaxGroupRows);
    s.sums = take(rows * kMaxLanes);
    s.high = take_integers(rows);
    s.low = take_integers(rows);
    s.fixed.keys = take_integers(d / 2 * kPageRows);
    s.fixed.values = take_integers(d * kPageRows / 2);
    s.fixed.logits = take(kFixedGroups * kMaxGroupRows * kPageRows);
    s.fixed.weights = take_integers(kFixedGroups * kMaxGroupRows * kPageRows / 2);
    s.fixed.queries = take_integers(rows * d / 2);
    s.fixed.query_units = take(groups * kMaxGroupRows);
    for (float** units :
         {&s.fixed.value_units, &s.fixed.key_limits, &s.fixed.key_units, &s.fixed.key_inverses})
      *units = take(d);
    if (bytes != nullptr) *bytes = at - start + kPageAlignment;
    return s;
  }
};

}  // namespace keynest
