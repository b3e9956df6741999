// The prompts of benchmarks: English text of a wanted number of tokens.
#pragma once

#include <string>
#include <vector>

#include "keynest/model.h"
#include "keynest/result.h"

namespace keynest::bench {

/// English text that every Debian machine has: the licences in /usr/share/common-licenses. Errors: none
/// there.
Result<std::string> licence_texts();

/// The first `count` tokens of `text`, which is repeated where it is too short.
std::vector<Token> text_tokens(const Model& model, const std::string& text, std::size_t count);

/// The start of `text` that has `count` tokens, or as near to that as cutting at a token allows; what
/// `keynest run --no-chat` reads it as.
std::string text_of(const Model& model, const std::string& text, std::size_t count);

}  // namespace keynest::bench
