// "Did you mean": the closest known name to one that is not known.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace keynest {

/// The candidate with the fewest single-letter edits (insert, delete, replace, swap of neighbours), or empty
/// when none is close enough to be a slip.
std::string_view closest_name(std::string_view name, std::span<const std::string_view> candidates);

/// `; did you mean "x"?` or nothing.
std::string did_you_mean(std::string_view name, std::span<const std::string_view> candidates);

/// "a, b, c".
std::string join(std::span<const std::string_view> names, std::string_view separator = ", ");

/// The text in quotes, for messages: control characters as \xNN, long text cut.
std::string quoted(std::string_view text);

}  // namespace keynest
