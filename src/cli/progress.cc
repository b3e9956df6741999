#include "cli/progress.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include "cli/format.h"
#include "cli/terminal.h"

namespace keynest::cli {
namespace {

constexpr int kMinBar = 10, kMaxBar = 40;

std::string bar(double share, int cells) {
  const int filled = std::clamp(static_cast<int>(share * cells), 0, cells);
  std::string text(static_cast<std::size_t>(filled), '=');
  if (filled < cells) text += '>';
  text.resize(static_cast<std::size_t>(cells), ' ');
  return "[" + text + "] ";
}

std::string percent(double share) {
  std::array<char, 8> text{};
  std::snprintf(text.data(), text.size(), "%3d%%", static_cast<int>(share * 100));
  return text.data();
}

}  // namespace

std::string progress_line(const ProgressState& state, int width) {
  const double share =
      state.total > 0
          ? std::clamp(static_cast<double>(state.done) / static_cast<double>(state.total), 0.0, 1.0)
          : 0.0;
  const auto done = static_cast<double>(state.done), left = static_cast<double>(state.total - state.done);
  std::string line = "prompt " + percent(share) + " ";
  std::string rest = std::to_string(state.done) + "/" + std::to_string(state.total);
  if (state.done > 0 && state.seconds > 0) {
    rest += "  " + format_rate(done, state.seconds);
    rest += "  " + format_seconds(left * state.seconds / done) + " left";
  }
  rest += "  cache " + format_bytes(state.cache_bytes);
  const int room = width - static_cast<int>(line.size() + rest.size()) - 3;  // 3: the bar's own frame
  if (room >= kMinBar) line += bar(share, std::min(room, kMaxBar));
  line += rest;
  if (static_cast<int>(line.size()) > width) line.resize(static_cast<std::size_t>(std::max(width, 0)));
  return line;
}

ProgressBar::ProgressBar(bool wanted) : enabled_(wanted && is_terminal(kStandardError)) {}

bool ProgressBar::due(std::int64_t done, std::int64_t total) const {
  return enabled_ && (done >= total || Clock::now() - last_ >= std::chrono::milliseconds(100));
}

void ProgressBar::draw(std::int64_t done, std::int64_t total, std::size_t cache_bytes) {
  if (!due(done, total)) return;
  last_ = Clock::now();
  const double seconds = std::chrono::duration<double>(last_ - start_).count();
  // One column stays free: writing the last one makes some terminals wrap.
  const std::string line = progress_line({done, total, seconds, cache_bytes}, terminal_width() - 1);
  std::fprintf(stderr, "\r%s\x1b[K", line.c_str());
  std::fflush(stderr);
  drawn_ = true;
}

void ProgressBar::clear() {
  if (!drawn_) return;
  std::fputs("\r\x1b[K", stderr);
  std::fflush(stderr);
  drawn_ = false;
}

}  // namespace keynest::cli
