// The layout of one page: 64 entries of one (layer, KV head). Stated once, used by store and kernels.
//
//   keys       [head_dim, 64]   transposed: for each dimension the 64 rows side by side
//   values     [64, head_dim]   row-major
//   positions  [64] int32       token index of each row
//   inv_norms  [64] float       1 / max(|key|, 1e-12), from the key as stored
//   state      [state_floats, 64] float   what the policy declared per entry
//
// kQ8_0 keys: int8 [head_dim, 64] followed by float16 scales [head_dim / 32, 64]; kQ8_0 values: int8
// [64, head_dim] followed by float16 scales [64, head_dim / 32].
#pragma once

#include <cstddef>
#include <cstdint>

#include "keynest/types.h"

namespace keynest {

inline constexpr int kPageRows = 64;
inline constexpr std::size_t kPageAlignment = 64;

/// Byte offsets inside a page. All sections are 64-byte aligned.
struct PageLayout {
  KvType type = KvType::kF16;
  int head_dim = 0;      ///< of keys and of values; a multiple of 8 (of 32 for kQ8_0)
  int state_floats = 0;  ///< floats the policy stores per entry
  std::size_t keys = 0, values = 0, positions = 0, inv_norms = 0, state = 0;
  std::size_t bytes = 0;  ///< of a whole page

  static PageLayout make(KvType type, int head_dim, int state_floats);
};

/// Bytes of `head_dim` numbers of one row stored as `type`, scales included.
std::size_t row_bytes(KvType type, int head_dim);

/// A non-owning view of one KV head's entries: row r is row r % 64 of pages[r / 64]. All pages but the
/// last are full. The order of rows has no meaning.
struct HeadRows {
  const PageLayout* layout = nullptr;
  std::byte* const* pages = nullptr;  ///< [ceil(rows / 64)]
  std::int32_t rows = 0;
  /// [head_dim] sum_unit_keys() of rows [0, summed_rows), where the store keeps it.
  const double* unit_sum = nullptr;
  std::int32_t summed_rows = 0;

  int page_count() const { return (rows + kPageRows - 1) / kPageRows; }
  int rows_in_page(int page) const {
    const int left = rows - page * kPageRows;
    return left < kPageRows ? left : kPageRows;
  }
  std::byte* keys(int page) const { return pages[page] + layout->keys; }
  std::byte* values(int page) const { return pages[page] + layout->values; }
  Position* positions(int page) const { return reinterpret_cast<Position*>(pages[page] + layout->positions); }
  float* inv_norms(int page) const { return reinterpret_cast<float*>(pages[page] + layout->inv_norms); }
  /// [64] floats of per-entry state number `index`.
  float* state(int page, int index) const {
    return reinterpret_cast<float*>(pages[page] + layout->state) + index * kPageRows;
  }
  Position position(Row row) const { return positions(to_int(row) / kPageRows)[to_int(row) % kPageRows]; }
};

}  // namespace keynest
