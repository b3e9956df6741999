// The characters of a text that may not be valid UTF-8.
#pragma once

#include <cstddef>
#include <string_view>

namespace keynest {

/// Bytes of the valid character `text` starts with, 1 to 4; 0 when it starts with none: no overlong forms, no
/// surrogates, nothing above U+10FFFF.
std::size_t utf8_character(std::string_view text);

}  // namespace keynest
