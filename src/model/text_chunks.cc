#include "model/text_chunks.h"

#include "model/utf8.h"

namespace keynest {
namespace {

bool ascii_word(unsigned char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}
bool ends_ascii_word(unsigned char c) {
  return ascii_word(c) || c == ',' || c == '.' || c == ';' || c == ':';
}

/// First bytes of Greek, Cyrillic, Han and Hangul letters; none of those blocks has a space in it.
bool starts_letter(unsigned char c) { return (c >= 0xCE && c <= 0xD3) || (c >= 0xE4 && c <= 0xED); }

bool word_starts(std::string_view text, std::size_t at) {
  const auto c = static_cast<unsigned char>(text[at]);
  return ascii_word(c) || starts_letter(c);
}

bool word_ends(std::string_view text, std::size_t end) {
  std::size_t at = end - 1;
  while (at > 0 && end - at < 4 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
  const auto c = static_cast<unsigned char>(text[at]);
  return ends_ascii_word(c) || starts_letter(c);
}

bool cuts_after_newline(std::string_view text, std::size_t at) {
  return at >= 2 && at < text.size() && text[at - 1] == '\n' && word_starts(text, at) &&
         word_ends(text, at - 1);
}

bool cuts_before_space(std::string_view text, std::size_t at) {
  return at >= 1 && at + 1 < text.size() && text[at] == ' ' && word_starts(text, at + 1) &&
         word_ends(text, at);
}

/// Where to cut text[kChunkBytes .. most] when no rule helps.
std::size_t forced_cut(std::string_view text, std::size_t most) {
  const std::size_t bracket = text.substr(0, most).rfind('<');
  if (bracket != std::string_view::npos && bracket >= kChunkBytes) return bracket;
  for (std::size_t at = most; at > most - 4; --at) {
    if (utf8_character(text.substr(at)) != 0) return at;
  }
  return most;
}

}  // namespace

void CutRules::see_token(std::string_view piece) {
  // A token may hold parts of characters, so any byte above ASCII counts as part of a word.
  const auto word = [&](std::size_t i) {
    const auto c = static_cast<unsigned char>(piece[i]);
    return c >= 0x80 || ends_ascii_word(c);
  };
  for (std::size_t i = 0; i + 1 < piece.size(); ++i) {
    if (!word(i + 1)) continue;
    if (piece[i] == '\n') after_newline = false;
    if (piece[i] == ' ' && i >= 1 && word(i - 1)) before_space = false;
  }
}

std::string_view take_chunk(std::string_view& text, const CutRules& rules) {
  std::size_t cut = text.size();
  std::size_t skip = 0;
  if (text.size() > 2 * kChunkBytes) {
    // A vocabulary that puts a space in front of every piece must not be given a piece that had none.
    const std::size_t most = rules.drop_space ? text.size() : 2 * kChunkBytes;
    if (!rules.drop_space) cut = forced_cut(text, most);
    for (std::size_t at = kChunkBytes; at < most; ++at) {
      const bool space = rules.before_space && cuts_before_space(text, at);
      if (!space && !(rules.after_newline && cuts_after_newline(text, at))) continue;
      cut = at;
      skip = space && rules.drop_space ? 1 : 0;
      break;
    }
  }
  const std::string_view chunk = text.substr(0, cut);
  text.remove_prefix(cut + skip);
  return chunk;
}

}  // namespace keynest
