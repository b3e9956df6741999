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

/// Floats between two output rows: head_dim rounded up to whole vectors.
inline std::size_t padded_dim(int head_dim) {
  return (static_cast<std::size_t>(head_dim) + kMaxLanes - 1) / kMaxLanes * kMaxLanes;
}

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
    const std::size_t rows = max_rows(group), d = padded_dim(layout.head_dim);
    AttentionScratch s{};
    s.keys = take(d * kPageRows);
    s.values = take(d * kPageRows);
    s.weights = take(kMaxGroupRows * kPageRows);
    s.rescale = take(kMaxGroupRows);
    s.queries = take(rows * d);
    s.out = take(rows * d);
    s.max = take((rows / kMinGroupRows + 1) * kMaxGroupRows);
    s.sums = take(rows * kMaxLanes);
    s.high = reinterpret_cast<std::int32_t*>(take(rows));
    s.low = reinterpret_cast<std::int32_t*>(take(rows));
    if (bytes != nullptr) *bytes = at - start + kPageAlignment;
    return s;
  }
};

}  // namespace keynest
