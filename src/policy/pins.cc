#include "policy/pins.h"

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

namespace keynest {
namespace {

std::string range_text(const PositionRange& range) {
  std::string text("[");
  text += std::to_string(to_int(range.first)) + ", " + std::to_string(to_int(range.last)) + ")";
  return text;
}

std::vector<PositionRange> ordered(std::span<const PositionRange> ranges) {
  std::vector<PositionRange> sorted(ranges.begin(), ranges.end());
  std::sort(sorted.begin(), sorted.end(),
            [](const PositionRange& a, const PositionRange& b) { return a.first < b.first; });
  return sorted;
}

Status check_ranges(const std::vector<PositionRange>& sorted, std::int32_t length) {
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    const PositionRange& range = sorted[i];
    if (to_int(range.first) < 0 || range.first >= range.last) {
      return invalid_argument("protected range " + range_text(range) +
                              " is empty; give first < last, counted from 0, last excluded");
    }
    if (length > 0 && to_int(range.last) > length) {
      return invalid_argument("protected range " + range_text(range) + " ends after the prompt of " +
                              std::to_string(length) + " tokens; shorten it");
    }
    if (i > 0 && range.first < sorted[i - 1].last) {
      return invalid_argument("protected ranges " + range_text(sorted[i - 1]) + " and " + range_text(range) +
                              " overlap; join them");
    }
  }
  return {};
}

// Positions of the ranges at or above `first`.
std::int64_t positions_above(const std::vector<PositionRange>& sorted, std::int32_t first) {
  std::int64_t count = 0;
  for (const PositionRange& range : sorted) {
    count += std::max(0, to_int(range.last) - std::max(to_int(range.first), first));
  }
  return count;
}

std::int32_t raise_page(const Pins& pins, std::span<const Position> positions, std::span<float> scores) {
  constexpr float kPinned = std::numeric_limits<float>::infinity();
  std::int32_t pinned = 0;
  for (std::size_t i = 0; i < scores.size(); ++i) {  // no branch: compilers vectorise it
    const std::int32_t p = to_int(positions[i]);
    const bool at_an_end = (p < pins.first) | (p >= pins.recent_from);
    const float score = p < pins.wanted_first ? std::numeric_limits<float>::max() : scores[i];
    scores[i] = at_an_end ? kPinned : score;
    pinned += at_an_end ? 1 : 0;
  }
  for (std::size_t i = 0; i < scores.size() && !pins.ranges.empty(); ++i) {
    if (scores[i] == kPinned || !pins.hold(positions[i])) continue;
    scores[i] = kPinned;
    ++pinned;
  }
  return pinned;
}

}  // namespace

bool Pins::hold(Position position) const {
  const std::int32_t p = to_int(position);
  if (p < first || p >= recent_from) return true;
  return std::any_of(ranges.begin(), ranges.end(),
                     [=](const PositionRange& r) { return position >= r.first && position < r.last; });
}

bool Pins::any(std::int32_t seen) const {
  return first > 0 || recent_from < seen || !ranges.empty() || wanted_first > 0;
}

std::int32_t Pins::raise(const HeadRows& head, std::span<float> scores) const {
  std::int32_t pinned = 0;
  for (int page = 0; page < head.page_count(); ++page) {
    const auto count = static_cast<std::size_t>(head.rows_in_page(page));
    pinned += raise_page(*this, {head.positions(page), count},
                         scores.subspan(static_cast<std::size_t>(page) * kPageRows, count));
  }
  return pinned;
}

Pins make_pins(const PolicySpec& spec, const Policy& policy, std::int32_t budget, std::int32_t seen,
               std::span<const PositionRange> ranges) {
  const std::int32_t recent = std::max(spec.keep_last.entries(budget), policy.recent_pins(budget));
  return {spec.keep_first.entries(budget), std::max(0, seen - recent), ranges, policy.first_pins()};
}

Error pins_above_budget(std::int64_t pinned, std::int32_t budget, std::int64_t first, std::int64_t recent) {
  return invalid_argument(
      "a budget of " + std::to_string(budget) + " entries cannot hold " + std::to_string(pinned) +
      " pinned ones (first " + std::to_string(first) + ", most recent " + std::to_string(recent) +
      ", protected " + std::to_string(std::max<std::int64_t>(0, pinned - first - recent)) +
      "); raise the budget, or pin fewer: keep_first=, keep_last=, the method's own first or "
      "recent entries (first=, window=, recent=), protected ranges");
}

Status check_pins(const PolicySpec& spec, const Policy* policy, std::int32_t budget,
                  std::span<const PositionRange> ranges, std::int32_t length) {
  const std::vector<PositionRange> sorted = ordered(ranges);
  KEYNEST_TRY(check_ranges(sorted, length));
  if (policy == nullptr) return {};
  if (budget < 1)
    return invalid_argument("a budget of " + std::to_string(budget) +
                            " entries keeps nothing; give 1 or more");
  const std::int32_t first = std::max(spec.keep_first.entries(budget), policy->first_pins());
  const std::int32_t recent = std::max(spec.keep_last.entries(budget), policy->recent_pins(budget));
  const std::int64_t inside = positions_above(sorted, first);
  const std::int64_t pinned = std::int64_t{first} + recent + inside;
  if (pinned <= budget) return {};
  return pins_above_budget(pinned, budget, first, recent);
}

}  // namespace keynest
