// Buffers of a step, grown when needed and reused: no allocation in the steady state.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <new>
#include <vector>

#include "kernels/attention.h"

namespace keynest {

/// A growing, uninitialised, 64-byte aligned buffer.
class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  AlignedBuffer(const AlignedBuffer&) = delete;
  AlignedBuffer& operator=(const AlignedBuffer&) = delete;
  AlignedBuffer(AlignedBuffer&& other) noexcept : data_(other.data_), bytes_(other.bytes_) {
    other.data_ = nullptr;
    other.bytes_ = 0;
  }
  ~AlignedBuffer() { release(); }

  void grow(std::size_t bytes) {
    if (bytes <= bytes_) return;
    release();
    data_ = ::operator new (bytes, std::align_val_t{64});
    bytes_ = bytes;
  }
  void* data() const { return data_; }
  float* floats() const { return static_cast<float*>(data_); }

 private:
  void release() {
    if (data_ != nullptr) ::operator delete (data_, std::align_val_t{64});
    data_ = nullptr;
  }

  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

/// How decode attention of one layer is split over threads: every head's pages into `splits` ranges, each
/// with a partial result of `queries` rows.
struct SplitPlan {
  static constexpr int kMostSplits = 64;

  int splits = 1;
  int queries = 0;
  int head_dim = 0;

  /// Of heads of up to `pages` pages. Goes by nothing else, so that results do not depend on threads.
  static SplitPlan of(int pages, int queries, int head_dim) {
    constexpr int kPagesPerSplit = 8;
    return {std::clamp((pages + kPagesPerSplit - 1) / kPagesPerSplit, 1, kMostSplits), queries, head_dim};
  }
  int first_page(int split, int pages) const { return pages * split / splits; }

  std::size_t floats_per_partial() const {
    return static_cast<std::size_t>(queries) * static_cast<std::size_t>(head_dim + 2);
  }
  PartialAttention partial(float* base, int head, int split) const {
    float* at = base + static_cast<std::size_t>(head * splits + split) * floats_per_partial();
    return {at, at + queries, at + 2 * queries};
  }
};

}  // namespace keynest
