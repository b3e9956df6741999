// Numbers on the command line: what is allowed is said in words.
#pragma once

#include <CLI/CLI.hpp>
#include <charconv>
#include <limits>
#include <string>
#include <system_error>

namespace keynest::cli {

/// Accepts numbers from `low` to `high`, not NaN; `allowed` ends the sentence "give ...".
template <typename Number>
CLI::Validator number_from(Number low, Number high, const std::string& allowed) {
  const auto check = [low, high, allowed](std::string& text) {
    Number value{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool is_number = error == std::errc() && end == text.data() + text.size();
    if (is_number && value >= low && value <= high) return std::string();
    return "\"" + text + "\" is not allowed; give " + allowed;
  };
  return CLI::Validator(check, "");
}

/// From `low` up.
template <typename Number>
CLI::Validator number_from(Number low, const std::string& allowed) {
  return number_from(low, std::numeric_limits<Number>::max(), allowed);
}

}  // namespace keynest::cli
