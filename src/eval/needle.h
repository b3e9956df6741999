// Needle in a haystack: a number hidden in a long text, to be read out of it. Makes the tasks and scores
// answers.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "keynest/result.h"

namespace keynest::eval {

/// Counts the tokens of a text.
using TokenCounter = std::function<std::size_t(std::string_view text)>;

struct NeedleOptions {
  int depths = 10;            ///< places, evenly spread: the middles of that many parts of the text
  int needles = 3;            ///< tasks per depth
  std::size_t tokens = 4096;  ///< of the text and the question, at most
  std::uint64_t seed = 1;     ///< same seed, same tasks
  std::size_t digits = 7;     ///< of the number, the first of them not 0
};

struct NeedleTask {
  int depth = 0, needle = 0;  ///< index of its place, and among the tasks of that place
  double share = 0;           ///< where in the text the needle is, 0 = at its start
  std::string city, number;
  std::string prompt;  ///< text with the needle in it, then the question; not yet in a chat template
};

/// All tasks, depth by depth. `haystack` is repeated where it is too short. The first tasks of all depths
/// hide their numbers in the same part of it, the second ones in another, and so on: what stands before a
/// number can be read once for all that come later (see answer_all). Errors: no depths, needles or digits, an
/// empty haystack, a length that holds no more than the question.
Result<std::vector<NeedleTask>> make_needle_tasks(std::string_view haystack, const NeedleOptions& options,
                                                  const TokenCounter& count);

/// The longest start of `text` that ends with a sentence and has at most `most` tokens; where no sentence
/// ends, the longest that ends with a word.
std::string_view fit_text(std::string_view text, std::size_t most, const TokenCounter& count);

/// `sentence` put between two sentences of `text`, as near to `share` of it as there is a place.
std::string place_sentence(std::string_view text, std::string_view sentence, double share);

struct NeedleScore {
  bool exact = false;  ///< the number is in the answer, no digit more or less
  double leading = 0;  ///< the best share of its leading digits that a number of the answer starts with
};

/// Commas, spaces and points between groups of three digits do not count.
NeedleScore score_number(std::string_view answer, std::string_view number);

}  // namespace keynest::eval
