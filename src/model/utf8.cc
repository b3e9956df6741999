#include "model/utf8.h"

#include <cstdint>

namespace keynest {

// Ranges: The Unicode Standard, table 3-7.
std::size_t utf8_character(std::string_view text) {
  const auto in = [&](std::size_t i, int low, int high) {
    return i < text.size() && static_cast<std::uint8_t>(text[i]) >= low &&
           static_cast<std::uint8_t>(text[i]) <= high;
  };
  if (text.empty()) return 0;
  const int first = static_cast<std::uint8_t>(text[0]);
  if (first < 0x80) return 1;
  if (first < 0xC2 || first > 0xF4) return 0;
  if (first < 0xE0) return in(1, 0x80, 0xBF) ? 2 : 0;
  if (first < 0xF0) {
    const int low = first == 0xE0 ? 0xA0 : 0x80, high = first == 0xED ? 0x9F : 0xBF;
    return in(1, low, high) && in(2, 0x80, 0xBF) ? 3 : 0;
  }
  const int low = first == 0xF0 ? 0x90 : 0x80, high = first == 0xF4 ? 0x8F : 0xBF;
  return in(1, low, high) && in(2, 0x80, 0xBF) && in(3, 0x80, 0xBF) ? 4 : 0;
}

}  // namespace keynest
