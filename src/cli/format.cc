#include "cli/format.h"

#include <array>
#include <cmath>
#include <cstdio>

namespace keynest::cli {
namespace {

template <typename... Values>
std::string print(const char* format, Values... values) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), format, values...);
  return text.data();
}

}  // namespace

std::string format_bytes(std::size_t bytes) {
  constexpr double kKiB = 1024, kMiB = kKiB * 1024, kGiB = kMiB * 1024;
  const auto value = static_cast<double>(bytes);
  if (value < kKiB) return print("%zu B", bytes);
  if (value < kMiB) return print("%.1f KiB", value / kKiB);
  if (value < kGiB) return print("%.1f MiB", value / kMiB);
  return print("%.2f GiB", value / kGiB);
}

std::string format_seconds(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "-";
  if (seconds < 9.995) return print("%.2f s", seconds);
  if (seconds < 59.95) return print("%.1f s", seconds);
  const long total = std::lround(seconds);
  if (total < 3600) return print("%ld min %02ld s", total / 60, total % 60);
  return print("%ld h %02ld min", total / 3600, total % 3600 / 60);
}

double rate(double tokens, double seconds) { return seconds > 0 ? tokens / seconds : 0; }

std::string format_rate(double tokens, double seconds) {
  if (seconds <= 0) return "-";
  const double value = tokens / seconds;
  return print(value < 99.95 ? "%.1f t/s" : "%.0f t/s", value);
}

std::string format_tokens(std::int64_t tokens) {
  return std::to_string(tokens) + (tokens == 1 ? " token" : " tokens");
}

}  // namespace keynest::cli
