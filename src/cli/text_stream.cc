#include "cli/text_stream.h"

#include <algorithm>
#include <utility>

namespace keynest::cli {
namespace {

unsigned char byte_at(std::string_view text, std::size_t i) { return static_cast<unsigned char>(text[i]); }

bool is_continuation(unsigned char byte) { return (byte & 0xC0) == 0x80; }

/// Bytes of the character that `lead` begins; 1 for ASCII and for bytes that begin none.
std::size_t character_length(unsigned char lead) {
  if (lead >= 0xC2 && lead <= 0xDF) return 2;
  if (lead >= 0xE0 && lead <= 0xEF) return 3;
  if (lead >= 0xF0 && lead <= 0xF4) return 4;
  return 1;
}

/// No overlong forms, surrogates or values past U+10FFFF (RFC 3629, section 4).
bool second_byte_fits(unsigned char lead, unsigned char second) {
  switch (lead) {
    case 0xE0:
      return second >= 0xA0;
    case 0xED:
      return second <= 0x9F;
    case 0xF0:
      return second >= 0x90;
    case 0xF4:
      return second <= 0x8F;
    default:
      return true;
  }
}

/// Where the stop that is complete first begins and ends; npos if none is there. Choosing by the end makes
/// the result independent of how the text is cut into pieces.
std::pair<std::size_t, std::size_t> first_stop(const std::string& text,
                                               const std::vector<std::string>& stops) {
  std::pair<std::size_t, std::size_t> best{std::string::npos, std::string::npos};
  for (const std::string& stop : stops) {
    const std::size_t begin = text.find(stop);
    if (begin == std::string::npos) continue;
    const std::size_t end = begin + stop.size();
    if (end < best.second || (end == best.second && begin < best.first)) best = {begin, end};
  }
  return best;
}

/// The longest proper beginning of `stop` that `text` ends with.
std::size_t overlap(std::string_view text, std::string_view stop) {
  for (std::size_t n = std::min(text.size(), stop.size() - 1); n > 0; --n) {
    if (text.substr(text.size() - n) == stop.substr(0, n)) return n;
  }
  return 0;
}

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

/// The character that `\c` stands for; -1 if none.
int simple_escape(char c) {
  constexpr std::string_view kNames = "nrt0e\\\"'";
  constexpr std::string_view kValues{"\n\r\t\0\x1b\\\"'", 8};
  const std::size_t i = kNames.find(c);
  return i == std::string_view::npos ? -1 : static_cast<unsigned char>(kValues[i]);
}

}  // namespace

std::size_t incomplete_utf8_tail(std::string_view text) {
  for (std::size_t back = 1; back <= std::min<std::size_t>(3, text.size()); ++back) {
    const std::size_t begin = text.size() - back;
    const unsigned char lead = byte_at(text, begin);
    if (is_continuation(lead)) continue;
    const bool incomplete =
        character_length(lead) > back && (back == 1 || second_byte_fits(lead, byte_at(text, begin + 1)));
    return incomplete ? back : 0;
  }
  return 0;
}

Result<std::string> unescape(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\') {
      out += text[i];
      continue;
    }
    const std::string_view rest = text.substr(i + 1);
    if (!rest.empty() && simple_escape(rest[0]) >= 0) {
      out += static_cast<char>(simple_escape(rest[0]));
      i += 1;
    } else if (rest.size() >= 3 && rest[0] == 'x' && hex_value(rest[1]) >= 0 && hex_value(rest[2]) >= 0) {
      out += static_cast<char>(hex_value(rest[1]) * 16 + hex_value(rest[2]));
      i += 3;
    } else {
      return invalid_argument("unknown escape \"" + std::string(text.substr(i, 2)) + "\" in \"" +
                              std::string(text) + "\"; allowed: \\n \\r \\t \\0 \\e \\\\ \\\" \\' \\xHH");
    }
  }
  return out;
}

std::size_t TextStream::held_for_stops() const {
  std::size_t held = 0;
  for (const std::string& stop : stops_) held = std::max(held, overlap(held_, stop));
  return held;
}

std::string TextStream::push(std::string_view bytes) {
  if (stopped_) return {};
  held_ += bytes;
  const std::size_t stop = first_stop(held_, stops_).first;
  if (stop != std::string::npos) {
    stopped_ = true;
    return std::exchange(held_, {}).substr(0, stop);
  }
  std::size_t ready = held_.size() - held_for_stops();
  ready -= incomplete_utf8_tail(std::string_view(held_).substr(0, ready));
  std::string out = held_.substr(0, ready);
  held_.erase(0, ready);
  return out;
}

std::string TextStream::finish() { return std::exchange(held_, {}); }

}  // namespace keynest::cli
