#include "model/escape.h"

#include <algorithm>

#include "model/utf8.h"

namespace keynest {
namespace {

bool is_private(std::string_view character) {
  return character.size() == 4 && character.starts_with("\xF4\x8F") &&
         static_cast<unsigned char>(character[2]) >= 0xBC;
}

/// Bytes of the first character when it passes unharmed, else 0.
std::size_t harmless(std::string_view text) {
  const std::size_t length = utf8_character(text);
  const std::string_view character = text.substr(0, length);
  return character == "\xE2\x96\x81" || is_private(character) ? 0 : length;
}

void append_escaped(std::string& out, char c) {
  const auto byte = static_cast<unsigned char>(c);
  out += "\xF4\x8F";
  out += static_cast<char>(0xBC | (byte >> 6));
  out += static_cast<char>(0x80 | (byte & 0x3F));
}

}  // namespace

bool needs_escape(std::string_view text) {
  while (!text.empty()) {
    const std::size_t length = harmless(text);
    if (length == 0) return true;
    text.remove_prefix(length);
  }
  return false;
}

std::string escape_bytes(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    std::size_t length = harmless(text);
    if (length == 0) {
      length = std::max<std::size_t>(utf8_character(text), 1);
      for (const char c : text.substr(0, length)) append_escaped(out, c);
    } else {
      out += text.substr(0, length);
    }
    text.remove_prefix(length);
  }
  return out;
}

void unescape_tokens(std::vector<Token>& tokens, std::size_t begin,
                     const std::array<Token, 256>& byte_tokens) {
  const auto last_two = [&](std::size_t at) {
    for (int byte = 0; byte < 256; ++byte) {
      const auto b = static_cast<std::size_t>(byte);
      if (byte_tokens[b] >= 0 && tokens[at] == byte_tokens[0xBC | (b >> 6)] &&
          tokens[at + 1] == byte_tokens[0x80 | (b & 0x3F)])
        return byte;
    }
    return -1;
  };
  std::size_t to = begin;
  for (std::size_t from = begin; from < tokens.size(); ++to) {
    const bool starts = from + 4 <= tokens.size() && tokens[from] == byte_tokens[0xF4] &&
                        tokens[from + 1] == byte_tokens[0x8F];
    const int byte = starts ? last_two(from + 2) : -1;
    tokens[to] = byte >= 0 ? byte_tokens[static_cast<std::size_t>(byte)] : tokens[from];
    from += byte >= 0 ? 4 : 1;
  }
  tokens.resize(to);
}

}  // namespace keynest
