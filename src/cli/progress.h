// The progress bar of a prompt, one line on the terminal.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

namespace keynest::cli {

struct ProgressState {
  std::int64_t done = 0, total = 0;  ///< prompt tokens
  double seconds = 0;                ///< since the prompt began
  std::size_t cache_bytes = 0;
};

/// "prompt  45% [=====>      ] 7373/16384  1332 t/s  6.8 s left  cache 51.0 MiB", at most `width` columns;
/// what does not fit is left out from the right, the bar first.
std::string progress_line(const ProgressState& state, int width);

/// Draws on standard error, at most ten times a second, when it is a terminal and `wanted`.
class ProgressBar {
 public:
  explicit ProgressBar(bool wanted);
  ~ProgressBar() { clear(); }
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  /// Whether a drawing is due; asking first spares the caller the counting of cache bytes.
  bool due(std::int64_t done, std::int64_t total) const;
  void draw(std::int64_t done, std::int64_t total, std::size_t cache_bytes);

  /// Removes the line.
  void clear();

 private:
  using Clock = std::chrono::steady_clock;

  bool enabled_;
  bool drawn_ = false;
  Clock::time_point start_ = Clock::now();
  Clock::time_point last_{};
};

}  // namespace keynest::cli
