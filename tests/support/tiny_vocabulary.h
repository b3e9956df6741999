// The vocabularies of tiny models.
#pragma once

#include <gguf.h>

#include "support/tiny_gguf.h"

namespace keynest::test {

/// Tokens of either kind of tokenizer: control tokens, all 256 bytes, some words, padding.
inline constexpr int kTinyVocabulary = 320;

/// Writes the "tokenizer.*" keys.
void set_tiny_vocabulary(gguf_context* gguf, const TinyModel& model);

}  // namespace keynest::test
