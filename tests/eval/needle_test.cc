// Needle tasks with a tokenizer of words, scores of answers, and an answer of a tiny model.
#include "eval/needle.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "eval/answer.h"
#include "support/tiny_gguf.h"

namespace keynest::eval {
namespace {

std::size_t count_words(std::string_view text) {
  std::size_t words = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool inside = text[i] != ' ' && text[i] != '\n';
    const bool before = i > 0 && text[i - 1] != ' ' && text[i - 1] != '\n';
    words += inside && !before;
  }
  return words;
}

std::string sentences(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += (i > 0 ? " " : "") + std::string("Some words make a sentence.");
  return text;
}

NeedleOptions small_options() {
  NeedleOptions options;
  options.depths = 4;
  options.needles = 2;
  options.tokens = 200;
  return options;
}

TEST(NeedleTasks, HideTheirNumberAtTheirDepthWithinTheLength) {
  const auto tasks = make_needle_tasks(sentences(1000), small_options(), count_words);
  ASSERT_TRUE(tasks.ok()) << tasks.error().message;
  ASSERT_EQ(tasks->size(), 8u);
  for (const NeedleTask& task : *tasks) {
    SCOPED_TRACE(task.prompt);
    EXPECT_LE(count_words(task.prompt), 200u);
    EXPECT_GT(count_words(task.prompt), 180u);
    EXPECT_EQ(task.number.size(), 7u);
    EXPECT_NE(task.number[0], '0');
    const std::size_t at = task.prompt.find(" is " + task.number + ".");
    ASSERT_NE(at, std::string::npos);
    const double share = static_cast<double>(at) / static_cast<double>(task.prompt.size());
    EXPECT_NEAR(share, (task.depth + 0.5) / 4, 0.1);
    EXPECT_NE(task.prompt.rfind("magic number of " + task.city + "?"), std::string::npos);
  }
}

TEST(NeedleTasks, AreTheSameForTheSameSeedOnly) {
  NeedleOptions options = small_options();
  const std::string haystack = sentences(1000);
  const auto first = make_needle_tasks(haystack, options, count_words);
  const auto again = make_needle_tasks(haystack, options, count_words);
  options.seed = 2;
  const auto other = make_needle_tasks(haystack, options, count_words);
  std::set<std::string> numbers;
  for (std::size_t i = 0; i < first->size(); ++i) {
    EXPECT_EQ((*first)[i].prompt, (*again)[i].prompt);
    EXPECT_NE((*first)[i].number, (*other)[i].number);
    numbers.insert((*first)[i].number);
  }
  EXPECT_EQ(numbers.size(), first->size());
}

TEST(NeedleTasks, RepeatAShortHaystack) {
  const auto tasks = make_needle_tasks("A short text. And that is all.", small_options(), count_words);
  ASSERT_TRUE(tasks.ok());
  for (const NeedleTask& task : *tasks) EXPECT_GT(count_words(task.prompt), 180u);
}

TEST(NeedleTasks, RefuseWhatMakesNoTask) {
  NeedleOptions none = small_options(), brief = small_options();
  none.depths = 0;
  brief.tokens = 5;
  for (const auto& tasks : {make_needle_tasks(sentences(9), none, count_words),
                            make_needle_tasks(sentences(9), brief, count_words),
                            make_needle_tasks(" \n", small_options(), count_words)}) {
    ASSERT_FALSE(tasks.ok());
    EXPECT_EQ(tasks.error().code, ErrorCode::kInvalidArgument);
  }
}

TEST(FitText, EndsWithASentenceElseAWord) {
  EXPECT_EQ(fit_text("One two. Three four. Five.", 4, count_words), "One two. Three four.");
  EXPECT_EQ(fit_text("One two. Three four. Five.", 9, count_words), "One two. Three four. Five.");
  EXPECT_EQ(fit_text("no sentence ends in this", 3, count_words), "no sentence ends");
}

TEST(PlaceSentence, GoesBetweenSentences) {
  const std::string_view text = "One two. Three four. Five six.";
  EXPECT_EQ(place_sentence(text, "Here.", 0), "Here. One two. Three four. Five six.");
  EXPECT_EQ(place_sentence(text, "Here.", 0.6), "One two. Three four. Here. Five six.");
  EXPECT_EQ(place_sentence(text, "Here.", 1), "One two. Three four. Five six. Here.");
}

TEST(ScoreNumber, CountsLeadingDigits) {
  EXPECT_TRUE(score_number("The number is 4815162.", "4815162").exact);
  EXPECT_TRUE(score_number("4,815,162", "4815162").exact);
  EXPECT_TRUE(score_number("It is 12, no, 4 815 162!", "4815162").exact);
  EXPECT_FALSE(score_number("48151623", "4815162").exact);
  EXPECT_FALSE(score_number("4815162 300", "481516").exact);
  EXPECT_TRUE(score_number("4815162 300 times", "4815162").exact);
  EXPECT_DOUBLE_EQ(score_number("48159", "4815162").leading, 4.0 / 7);
  EXPECT_DOUBLE_EQ(score_number("9 and 48 and 4", "4815162").leading, 2.0 / 7);
  EXPECT_DOUBLE_EQ(score_number("I do not know", "4815162").leading, 0);
}

TEST(Answer, IsGreedyAndNoLongerThanAsked) {
  test::TemporaryDirectory folder;
  const std::string path = folder.path() + "/tiny.gguf";
  ASSERT_TRUE(test::write_tiny_gguf(path, test::tiny_model("llama")));
  const auto model = Model::load(path);
  ASSERT_TRUE(model.ok()) << model.error().message;
  SessionOptions options;
  options.block = 32;
  const auto first = answer(*model, sentences(5), "chatml", options, 6);
  const auto again = answer(*model, sentences(5), "chatml", options, 6);
  ASSERT_TRUE(first.ok()) << first.error().message;
  EXPECT_EQ(first->text, again->text);
  EXPECT_LE(first->stats.generated_tokens, 6);
  EXPECT_GT(first->stats.prompt_tokens, 20);
  EXPECT_FALSE(answer(*model, "text", "no such template", options, 6).ok());
}

}  // namespace
}  // namespace keynest::eval
