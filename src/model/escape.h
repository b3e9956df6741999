// Bytes that a SentencePiece vocabulary would not give back, carried through libllama's tokenizer as
// characters of Unicode's last private-use block, which come out as byte tokens.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "keynest/types.h"

namespace keynest {

/// True when `text` has invalid UTF-8, U+2581 (which stands for a space), or a character of that block.
bool needs_escape(std::string_view text);

/// Every byte b of such characters becomes U+10FF00 + b.
std::string escape_bytes(std::string_view text);

/// Puts byte b's token where the tokens of U+10FF00 + b are, from `begin` on. `byte_tokens`: the token of
/// every byte.
void unescape_tokens(std::vector<Token>& tokens, std::size_t begin,
                     const std::array<Token, 256>& byte_tokens);

}  // namespace keynest
