// Vocabulary's way from text to tokens.
#include <algorithm>
#include <exception>

#include "model/escape.h"
#include "model/large_stack.h"
#include "model/utf8.h"
#include "model/vocabulary.h"

namespace keynest {
namespace {

constexpr std::size_t kSmallText = 1024;  // needs no large stack, whatever the vocabulary does with it

}  // namespace

std::vector<Token> Vocabulary::tokenize(std::string_view text, bool add_special, bool parse_special) const {
  Tokens tokens;
  if (add_special && llama_vocab_get_add_bos(get())) tokens.push_back(llama_vocab_bos(get()));
  const auto append = [&] {
    sentence_piece() ? append_sentence_piece(text, parse_special, tokens)
                     : append_byte_level(text, parse_special, tokens);
  };
  text.size() <= kSmallText ? append() : run_on_large_stack(append);
  if (add_special && llama_vocab_get_add_eos(get())) tokens.push_back(llama_vocab_eos(get()));
  return tokens;
}

void Vocabulary::append_sentence_piece(std::string_view text, bool parse_special, Tokens& out) const {
  if (!needs_escape(text)) return append_text(text, parse_special, out);
  const std::size_t begin = out.size();
  append_text(escape_bytes(text), parse_special, out);
  unescape_tokens(out, begin, byte_tokens_);
}

/// Bytes of the first character when it is valid and the vocabulary has a token for each of its bytes, else
/// 0.
std::size_t Vocabulary::plain_character(std::string_view text) const {
  const std::size_t length = utf8_character(text);
  const std::string_view character = text.substr(0, length);
  const bool known = std::all_of(character.begin(), character.end(), [&](char c) {
    return byte_tokens_[static_cast<unsigned char>(c)] != LLAMA_TOKEN_NULL;
  });
  return known ? length : 0;
}

void Vocabulary::append_byte_level(std::string_view text, bool parse_special, Tokens& out) const {
  while (!text.empty()) {
    std::size_t plain = 0;
    while (const std::size_t length = plain_character(text.substr(plain))) plain += length;
    append_text(text.substr(0, plain), parse_special, out);
    text.remove_prefix(plain);
    std::size_t odd = 0;
    while (odd < text.size() && plain_character(text.substr(odd)) == 0) {
      odd += std::max<std::size_t>(utf8_character(text.substr(odd)), 1);
    }
    append_odd_bytes(text.substr(0, odd), out);
    text.remove_prefix(odd);
  }
}

void Vocabulary::append_odd_bytes(std::string_view bytes, Tokens& out) const {
  while (!bytes.empty()) {
    const std::size_t length = std::max<std::size_t>(utf8_character(bytes), 1);
    const Token token = byte_tokens_[static_cast<unsigned char>(bytes[0])];
    if (length == 1 && token != LLAMA_TOKEN_NULL) {
      out.push_back(token);
    } else {
      out.insert(out.end(), replacement_.begin(), replacement_.end());
    }
    bytes.remove_prefix(length);
  }
}

void Vocabulary::append_text(std::string_view text, bool parse_special, Tokens& out) const {
  while (!text.empty()) append_chunk(take_chunk(text, cuts_), parse_special, out);
}

/// Where libllama cannot take a chunk whole (its regular expressions have limits), half of it may pass.
void Vocabulary::append_chunk(std::string_view text, bool parse_special, Tokens& out) const {
  if (try_chunk(text, parse_special, out)) return;
  std::size_t half = text.size() / 2;
  while (half > 0 && utf8_character(text.substr(half)) == 0) --half;
  if (half == 0) return append_odd_bytes(text, out);
  append_chunk(text.substr(0, half), parse_special, out);
  append_chunk(text.substr(half), parse_special, out);
}

bool Vocabulary::try_chunk(std::string_view text, bool parse_special, Tokens& out) const {
  const std::size_t before = out.size();
  std::size_t room = text.size() + 2;  // a token for every byte, and the space some vocabularies put in front
  try {
    for (int attempt = 0; attempt < 2; ++attempt) {
      out.resize(before + room);
      const std::int32_t count =
          llama_tokenize(get(), text.data(), static_cast<std::int32_t>(text.size()), out.data() + before,
                         static_cast<std::int32_t>(room), false, parse_special);
      out.resize(before + static_cast<std::size_t>(std::max(count, 0)));
      if (count >= 0) return true;
      room = static_cast<std::size_t>(-(count + 1)) + 1;
    }
  } catch (const std::exception&) {
    out.resize(before);
  }
  return false;
}

}  // namespace keynest
