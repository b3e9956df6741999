// Where a text stops, and starts again, to be valid UTF-8.
#pragma once

#include <cstddef>
#include <string_view>

namespace keynest {

/// Bytes of the valid UTF-8 `text` starts with: no overlong forms, no surrogates, nothing above U+10FFFF.
std::size_t valid_utf8_prefix(std::string_view text);

/// Bytes before the first valid character of `text`.
std::size_t invalid_utf8_prefix(std::string_view text);

}  // namespace keynest
