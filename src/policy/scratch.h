// Cuts typed arrays off a caller's scratch memory.
#pragma once

#include <cstddef>
#include <span>

namespace keynest {

inline constexpr std::size_t kScratchAlignment = 64;

/// Bytes an array of `count` T takes in a Scratch.
template <typename T>
constexpr std::size_t scratch_size(std::size_t count) {
  return (count * sizeof(T) + kScratchAlignment - 1) / kScratchAlignment * kScratchAlignment;
}

class Scratch {
 public:
  explicit Scratch(std::byte* memory) : next_(memory) {}

  /// [count], content undefined.
  template <typename T>
  std::span<T> take(std::size_t count) {
    std::byte* const memory = next_;
    next_ += scratch_size<T>(count);
    return {reinterpret_cast<T*>(memory), count};
  }

  std::byte* rest() const { return next_; }

 private:
  std::byte* next_;
};

}  // namespace keynest
