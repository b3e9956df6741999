// Cuts a long text where no token can reach across, since libllama's time grows faster than a text's length.
#pragma once

#include <cstddef>
#include <string_view>

namespace keynest {

/// Which cuts leave the tokens of a text as they are, for one vocabulary. Every tokenizer splits words at
/// spaces and line ends before anything else, or, without such rules, merges only into tokens it has.
struct CutRules {
  bool after_newline = false;  ///< between "word\n" and "word"
  bool before_space = false;   ///< between "word" and " word"
  bool drop_space = false;     ///< the next piece's own space is left out, as the tokenizer puts one in front

  /// Forbids cuts that a token with these bytes would reach across.
  void see_token(std::string_view piece);
};

inline constexpr std::size_t kChunkBytes = 32768;

/// Takes the next piece off the front of `text`: all of it up to twice kChunkBytes, else a cut between the
/// two sizes. Where the rules allow none: before a '<', which starts most control tokens, else anywhere
/// between characters.
std::string_view take_chunk(std::string_view& text, const CutRules& rules);

}  // namespace keynest
