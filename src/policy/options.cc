#include "policy/options.h"

#include <algorithm>
#include <cassert>

#include "policy/numbers.h"
#include "policy/suggest.h"

namespace keynest {
namespace {

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (std::size_t from = 0; from <= text.size();) {
    const std::size_t to = std::min(text.find(separator, from), text.size());
    parts.push_back(text.substr(from, to - from));
    from = to + 1;
  }
  return parts;
}

bool contains(const std::vector<std::string_view>& words, std::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

std::string canonical_subset(const OptionRow& row, std::string_view value) {
  const std::vector<std::string_view> given = split(value, '+');
  std::vector<std::string_view> members;
  for (std::string_view word : row.allowed) {
    if (contains(given, word)) members.push_back(word);
  }
  return members.size() == given.size() ? join(members, "+") : std::string();  // a stranger or a repetition
}

std::string canonical_integer(const OptionRow& row, std::string_view value) {
  const auto number = read_integer(value);
  const bool fits =
      number && static_cast<double>(*number) >= row.least && static_cast<double>(*number) <= row.most;
  return fits && (!row.odd || *number % 2 == 1) ? std::to_string(*number) : std::string();
}

std::string canonical_number(const OptionRow& row, std::string_view value) {
  const auto number = read_number(value);
  return number && *number >= row.least && *number <= row.most ? print_number(*number) : std::string();
}

// Empty when the value is not allowed.
std::string canonical(const OptionRow& row, std::string_view value) {
  switch (row.kind) {
    case OptionKind::kChoice:
      return contains(row.allowed, value) ? std::string(value) : std::string();
    case OptionKind::kSubset:
      return canonical_subset(row, value);
    case OptionKind::kInteger:
      return canonical_integer(row, value);
    case OptionKind::kNumber:
      return canonical_number(row, value);
    case OptionKind::kShare: {
      const auto share = read_share(value);
      return share ? print_number(*share) : std::string();
    }
    case OptionKind::kAmount: {
      const auto amount = read_amount(value);
      return amount ? print_amount(*amount) : std::string();
    }
  }
  return {};
}

std::string range_text(const OptionRow& row) {
  const bool open = row.most >= 2147483647.0;
  return open ? " from " + print_number(row.least) + " up"
              : " from " + print_number(row.least) + " to " + print_number(row.most);
}

}  // namespace

std::string allowed_values(const OptionRow& row) {
  switch (row.kind) {
    case OptionKind::kChoice:
      return join(row.allowed, "|");
    case OptionKind::kSubset:
      return "one or more of " + join(row.allowed) + ", joined by +";
    case OptionKind::kInteger:
      return (row.odd ? "an odd whole number" : "a whole number") + range_text(row);
    case OptionKind::kNumber:
      return "a number" + range_text(row);
    case OptionKind::kShare:
      return "a share from 0 to 1, or a percentage like 20%";
    case OptionKind::kAmount:
      return "a count of entries like 64, or a share of the budget like 20%";
  }
  return {};
}

Result<std::string> canonical_value(const OptionRow& row, std::string_view value) {
  std::string text = canonical(row, value);
  if (!text.empty()) return text;
  return invalid_argument("policy option " + std::string(row.name) + "=" + quoted(value) + " is not allowed" +
                          did_you_mean(value, row.allowed) + "; allowed: " + allowed_values(row));
}

std::string_view OptionValues::text(std::string_view name) const {
  for (const auto& [key, value] : spec_.options) {
    if (key == name) return value;
  }
  for (const OptionRow& row : rows_) {
    if (row.name == name) return row.fallback;
  }
  assert(false && "no such option in the method's table");
  return {};
}

bool OptionValues::has(std::string_view name, std::string_view member) const {
  return contains(split(text(name), '+'), member);
}

std::int64_t OptionValues::integer(std::string_view name) const {
  return read_integer(text(name)).value_or(0);
}

Amount OptionValues::amount(std::string_view name) const {
  return read_amount(text(name)).value_or(Amount{});
}

}  // namespace keynest
