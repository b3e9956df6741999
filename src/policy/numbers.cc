#include "policy/numbers.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>

namespace keynest {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// "12.5" -> 0.125, correctly rounded (dividing 12.5 by 100 would round twice).
std::optional<double> read_percent(std::string_view digits) {
  const bool plain =
      std::all_of(digits.begin(), digits.end(), [](char c) { return is_digit(c) || c == '.'; });
  if (!plain) return std::nullopt;
  const auto share = read_number(std::string(digits) + "e-2");
  return share && *share <= 1 ? share : std::nullopt;
}

// Shortest decimal text of value * 100, by moving the decimal point of its shortest text.
std::string percent_digits(double value) {
  std::array<char, 64> buffer;
  const auto end =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, std::chars_format::scientific).ptr;
  const std::string text(buffer.data(), end);
  const std::size_t e = text.find('e');
  std::string digits = text.substr(0, e);
  std::erase(digits, '.');
  const int point = std::stoi(text.substr(e + 1)) + 1 + 2;
  const int count = static_cast<int>(digits.size());
  if (point <= 0) return "0." + std::string(static_cast<std::size_t>(-point), '0') + digits;
  if (point >= count) return digits + std::string(static_cast<std::size_t>(point - count), '0');
  return digits.substr(0, static_cast<std::size_t>(point)) + "." +
         digits.substr(static_cast<std::size_t>(point));
}

}  // namespace

std::optional<std::int64_t> read_integer(std::string_view text) {
  std::int64_t value = 0;
  if (text.empty() || text.size() > 18 || !std::all_of(text.begin(), text.end(), is_digit))
    return std::nullopt;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

std::optional<double> read_number(std::string_view text) {
  double value = 0;
  if (text.empty() || !is_digit(text.front())) return std::nullopt;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

std::optional<double> read_share(std::string_view text) {
  if (text.ends_with('%')) return read_percent(text.substr(0, text.size() - 1));
  const auto value = read_number(text);
  return value && *value <= 1 ? value : std::nullopt;
}

std::optional<Amount> read_amount(std::string_view text) {
  if (text.ends_with('%')) {
    const auto share = read_percent(text.substr(0, text.size() - 1));
    if (!share) return std::nullopt;
    return *share == 0 ? Amount{} : Amount{*share, true};
  }
  const auto count = read_integer(text);
  if (!count || *count > std::numeric_limits<std::int32_t>::max()) return std::nullopt;
  return Amount{static_cast<double>(*count), false};
}

std::string print_number(double value) {
  std::array<char, 64> buffer;
  return {buffer.data(), std::to_chars(buffer.data(), buffer.data() + buffer.size(), value).ptr};
}

std::string print_amount(const Amount& amount) {
  if (amount.is_share) return percent_digits(amount.value) + "%";
  return std::to_string(static_cast<std::int64_t>(amount.value));
}

}  // namespace keynest
