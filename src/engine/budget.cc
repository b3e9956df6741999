#include "engine/budget.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <limits>
#include <string>

namespace keynest {
namespace {

struct Suffix {
  std::string_view text;
  double bytes;
};
constexpr std::array<Suffix, 7> kSuffixes{{{"KiB", 1024.0},
                                           {"MiB", 1024.0 * 1024},
                                           {"GiB", 1024.0 * 1024 * 1024},
                                           {"KB", 1e3},
                                           {"MB", 1e6},
                                           {"GB", 1e9},
                                           {"B", 1.0}}};

Error bad_budget(std::string_view text) {
  return invalid_argument(
      "budget \"" + std::string(text) +
      "\" is not understood: give entries per head (2048), a share of the prompt (25%), bytes of "
      "cache (64MiB), or full");
}

/// A plain number that is not negative, or nothing.
bool parse_number(std::string_view text, double& value) {
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed);
  return error == std::errc{} && end == text.data() + text.size() && std::isfinite(value) && value >= 0;
}

std::string print_number(double value) {
  std::array<char, 64> buffer{};
  const auto [end, error] = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  return error == std::errc{} ? std::string(buffer.data(), end) : std::to_string(value);
}

}  // namespace

Result<Budget> Budget::parse(std::string_view text) {
  if (text == "full") return Budget{};
  Budget budget;
  if (text.ends_with('%')) {
    budget.unit = Unit::kShare;
    if (!parse_number(text.substr(0, text.size() - 1), budget.value)) return bad_budget(text);
    budget.value /= 100;
    return budget;
  }
  for (const Suffix& suffix : kSuffixes) {
    if (!text.ends_with(suffix.text)) continue;
    budget.unit = Unit::kBytes;
    if (!parse_number(text.substr(0, text.size() - suffix.text.size()), budget.value))
      return bad_budget(text);
    budget.value *= suffix.bytes;
    return budget;
  }
  budget.unit = Unit::kEntries;
  if (!parse_number(text, budget.value) || budget.value != std::floor(budget.value)) return bad_budget(text);
  return budget;
}

std::string Budget::print() const {
  switch (unit) {
    case Unit::kUnbounded:
      return "full";
    case Unit::kEntries:
      return print_number(value);
    case Unit::kShare:
      return print_number(value * 100) + "%";
    case Unit::kBytes:
      return print_number(value) + "B";
  }
  return "full";
}

std::size_t cache_bytes(const Hparams& hparams, const PageLayout& layout, std::int64_t entries,
                        std::int32_t block, bool ragged) {
  std::size_t pages = 0;
  for (const std::int32_t window : hparams.layer_windows) {
    const std::int64_t kept = window > 0 ? std::min<std::int64_t>(entries, window) : entries;
    const std::int64_t per_head = (kept + block + kPageRows - 1) / kPageRows + (ragged ? 1 : 0);
    pages += static_cast<std::size_t>(per_head * hparams.kv_heads);
  }
  return pages * layout.bytes;
}

namespace {

Result<std::int32_t> entries_for_bytes(const Budget& budget, const Hparams& hparams, const PageLayout& layout,
                                       std::int32_t block, bool ragged) {
  const auto bytes = static_cast<std::size_t>(std::min(budget.value, 1e18));
  const std::size_t least = cache_bytes(hparams, layout, 1, block, ragged);
  if (least > bytes) {
    return invalid_argument("a budget of " + std::to_string(bytes) +
                            " bytes does not hold one entry per head and a block of " +
                            std::to_string(block) + " tokens, which take " + std::to_string(least) +
                            " bytes: give more, or a smaller block");
  }
  std::int64_t low = 1, high = std::numeric_limits<std::int32_t>::max() / 2;
  while (low < high) {
    const std::int64_t middle = (low + high + 1) / 2;
    if (cache_bytes(hparams, layout, middle, block, ragged) <= bytes) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return static_cast<std::int32_t>(low);
}

}  // namespace

Result<std::int32_t> resolve_budget(const Budget& budget, const Hparams& hparams, const PageLayout& layout,
                                    std::int32_t block, bool ragged, std::int64_t prompt) {
  constexpr double kMost = std::numeric_limits<std::int32_t>::max() / 2;
  switch (budget.unit) {
    case Budget::Unit::kUnbounded:
      return 0;
    case Budget::Unit::kEntries:
      if (budget.value < 1)
        return invalid_argument("a budget of 0 entries keeps nothing: give at least 1, or full");
      if (budget.value > kMost) {
        return invalid_argument("a budget of " + print_number(budget.value) +
                                " entries is not allowed: give at most " + print_number(kMost) + ", or full");
      }
      return static_cast<std::int32_t>(budget.value);
    case Budget::Unit::kShare:
      if (budget.value <= 0) return invalid_argument("a budget of 0% keeps nothing: give more, or full");
      return static_cast<std::int32_t>(std::clamp(budget.value * static_cast<double>(prompt), 1.0, kMost));
    case Budget::Unit::kBytes:
      return entries_for_bytes(budget, hparams, layout, block, ragged);
  }
  return 0;
}

std::size_t available_memory() {
  std::ifstream info("/proc/meminfo");
  for (std::string key; info >> key;) {
    std::size_t kib = 0;
    if (key == "MemAvailable:" && info >> kib) return kib * 1024;
    info.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  const long pages = sysconf(_SC_PHYS_PAGES);
  return pages > 0 ? static_cast<std::size_t>(pages) * static_cast<std::size_t>(sysconf(_SC_PAGESIZE)) / 2
                   : 0;
}

}  // namespace keynest
