#include "model/utf8.h"

#include <cstdint>

namespace keynest {
namespace {

/// Bytes of the valid character `text` starts with, or 0. Ranges: The Unicode Standard, table 3-7.
std::size_t character_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
  const auto in = [&](std::size_t i, int low, int high) {
    return i < text.size() && byte(i) >= low && byte(i) <= high;
  };
  if (text.empty()) return 0;
  const int first = byte(0);
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

}  // namespace

std::size_t valid_utf8_prefix(std::string_view text) {
  std::size_t at = 0;
  while (const std::size_t length = character_length(text.substr(at))) at += length;
  return at;
}

std::size_t invalid_utf8_prefix(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size() && character_length(text.substr(at)) == 0) ++at;
  return at;
}

}  // namespace keynest
