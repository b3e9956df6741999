#include "eval/needle.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <random>

namespace keynest::eval {
namespace {

constexpr std::array<std::string_view, 24> kCities = {
    "Lisbon", "Nairobi", "Oslo",   "Quito",  "Hanoi",  "Ottawa",  "Tunis",  "Riga",
    "Dakar",  "Lima",    "Prague", "Kyoto",  "Havana", "Cardiff", "Ankara", "Bergen",
    "Zagreb", "Perth",   "Accra",  "Bogota", "Geneva", "Jakarta", "Krakow", "Seville"};

bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }
bool is_space(char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; }

/// True when a sentence ends right before `at`: a full stop, question or exclamation mark, then a space.
bool sentence_ends(std::string_view text, std::size_t at) {
  if (at == 0 || at >= text.size() || !is_space(text[at])) return false;
  const char before = text[at - 1];
  return before == '.' || before == '?' || before == '!';
}

// Not std::uniform_int_distribution, whose numbers differ between standard libraries.
std::size_t pick(std::mt19937_64& random, std::size_t below) { return random() % below; }

std::string random_number(std::mt19937_64& random, std::size_t digits) {
  std::string number(1, static_cast<char>('1' + pick(random, 9)));
  while (number.size() < digits) number += static_cast<char>('0' + pick(random, 10));
  return number;
}

std::string sentence_of(const NeedleTask& task) {
  return "The magic number of " + task.city + " is " + task.number + ".";
}

std::string question_of(const NeedleTask& task) {
  return "What is the magic number of " + task.city + "? Answer with the number alone.";
}

/// `size` bytes of the haystack from a sentence at or after `start`, going round at its end.
std::string part_of(std::string_view haystack, std::size_t start, std::size_t size) {
  std::size_t from = start;
  while (from < haystack.size() && !sentence_ends(haystack, from)) ++from;
  while (from < haystack.size() && is_space(haystack[from])) ++from;
  std::string part(haystack.substr(std::min(from, haystack.size()), size));
  while (part.size() < size) {
    if (!part.empty()) part += '\n';
    part += haystack.substr(0, size - part.size());
  }
  return part;
}

Status check(std::string_view haystack, const NeedleOptions& options) {
  if (options.depths < 1 || options.needles < 1) {
    return invalid_argument(std::to_string(options.depths) + " depths with " +
                            std::to_string(options.needles) +
                            " needles each make no task; give 1 or more of both");
  }
  if (options.digits < 1) return invalid_argument("a number of 0 digits cannot be found; give 1 or more");
  if (std::all_of(haystack.begin(), haystack.end(), is_space)) {
    return invalid_argument("the haystack is empty; give a text");
  }
  return {};
}

/// Fills in the prompt of a task. An estimate of 8 bytes a token is enough text for any tokenizer's English.
Status write_prompt(NeedleTask& task, std::string_view haystack, std::size_t start,
                    const NeedleOptions& options, const TokenCounter& count) {
  const std::string sentence = sentence_of(task), question = question_of(task);
  const std::size_t taken = count(" " + sentence + "\n\n" + question);
  if (taken >= options.tokens) {
    return invalid_argument("a prompt of " + std::to_string(options.tokens) +
                            " tokens holds no text beside the " + std::to_string(taken) +
                            " tokens of needle and question; give more");
  }
  const std::string part = part_of(haystack, start, options.tokens * 8);
  const std::string_view text = fit_text(part, options.tokens - taken, count);
  task.prompt = place_sentence(text, sentence, task.share) + "\n\n" + question;
  return {};
}

/// True when a separator of thousands is at `at`: then come three digits and no fourth.
bool separates_thousands(std::string_view text, std::size_t at) {
  if (text[at] != ',' && text[at] != ' ' && text[at] != '.') return false;
  const auto group = text.substr(at + 1, 3);
  if (group.size() < 3 || !std::all_of(group.begin(), group.end(), is_digit)) return false;
  return at + 4 >= text.size() || !is_digit(text[at + 4]);
}

/// The numbers of a text, separators of thousands taken out.
std::vector<std::string> numbers_in(std::string_view text) {
  std::vector<std::string> numbers;
  std::size_t group = 0;  // digits since the number or its last separator began; 0: in no number
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (is_digit(text[i])) {
      if (group++ == 0) numbers.emplace_back();
      numbers.back() += text[i];
    } else if (group > 0 && group <= 3 && separates_thousands(text, i)) {
      numbers.back() += text[++i];
      group = 1;
    } else {
      group = 0;
    }
  }
  return numbers;
}

}  // namespace

std::string_view fit_text(std::string_view text, std::size_t most, const TokenCounter& count) {
  std::size_t fits = 0, too_long = text.size() + 1;
  while (too_long - fits > 1) {
    const std::size_t middle = fits + (too_long - fits) / 2;
    (count(text.substr(0, middle)) <= most ? fits : too_long) = middle;
  }
  if (fits == text.size()) return text;
  std::size_t end = fits;
  while (end > 0 && !sentence_ends(text, end)) --end;
  if (end > 0) return text.substr(0, end);
  for (end = fits; end > 0 && !is_space(text[end]);) --end;
  return text.substr(0, end > 0 ? end : fits);
}

std::string place_sentence(std::string_view text, std::string_view sentence, double share) {
  const auto wanted = static_cast<std::size_t>(std::lround(share * static_cast<double>(text.size())));
  for (std::size_t distance = 0; distance <= text.size(); ++distance) {
    for (const std::size_t at : {wanted - distance, wanted + distance}) {
      if (at > text.size()) continue;  // also what wrapped around below 0
      if (at == 0) return std::string(sentence) + " " + std::string(text);
      if (at == text.size() || sentence_ends(text, at)) {
        return std::string(text.substr(0, at)) + " " + std::string(sentence) + std::string(text.substr(at));
      }
    }
  }
  return std::string(text) + " " + std::string(sentence);
}

Result<std::vector<NeedleTask>> make_needle_tasks(std::string_view haystack, const NeedleOptions& options,
                                                  const TokenCounter& count) {
  KEYNEST_TRY(check(haystack, options));
  std::mt19937_64 random(options.seed);
  std::vector<std::size_t> starts;  // [needles]
  for (int needle = 0; needle < options.needles; ++needle) starts.push_back(pick(random, haystack.size()));
  std::vector<NeedleTask> tasks;
  for (int depth = 0; depth < options.depths; ++depth) {
    for (int needle = 0; needle < options.needles; ++needle) {
      NeedleTask task;
      task.depth = depth;
      task.needle = needle;
      task.share = (depth + 0.5) / options.depths;
      task.city = kCities[pick(random, kCities.size())];
      task.number = random_number(random, options.digits);
      const std::size_t start = starts[static_cast<std::size_t>(needle)];
      KEYNEST_TRY(write_prompt(task, haystack, start, options, count));
      tasks.push_back(std::move(task));
    }
  }
  return tasks;
}

NeedleScore score_number(std::string_view answer, std::string_view number) {
  NeedleScore score;
  for (const std::string& found : numbers_in(answer)) {
    const auto differs = std::mismatch(found.begin(), found.end(), number.begin(), number.end());
    const auto right = static_cast<double>(differs.second - number.begin());
    score.leading = std::max(score.leading, right / static_cast<double>(number.size()));
    score.exact = score.exact || found == number;
  }
  return score;
}

}  // namespace keynest::eval
