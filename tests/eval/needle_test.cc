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

/// All prompts answered at once, or each by itself.
std::vector<std::string> answers(const std::shared_ptr<const Model>& model, const AnswerOptions& options,
                                 std::span<const std::string> prompts, std::size_t at_once) {
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < prompts.size(); i += at_once) {
    const Status status =
        answer_all(model, prompts.subspan(i, at_once), options, [&](std::size_t, const Answer& answer) {
          texts.push_back(answer.text + " after " + std::to_string(answer.prompt_tokens));
          return Status{};
        });
    EXPECT_TRUE(status.ok()) << status.error().message;
  }
  return texts;
}

TEST(AnswerAll, AnswersEachPromptAsIfItWereAlone) {
  test::TemporaryDirectory folder;
  const std::string path = folder.path() + "/tiny.gguf";
  ASSERT_TRUE(test::write_tiny_gguf(path, test::tiny_model("llama")));
  const auto model = Model::load(path);
  ASSERT_TRUE(model.ok()) << model.error().message;
  std::vector<std::string> prompts;
  for (const int same : {16, 12, 12, 5, 0})
    prompts.push_back(sentences(same) + " And " + sentences(20 - same));
  AnswerOptions options;
  options.chat_template = "chatml";
  options.most = 6;
  options.session.block = 32;
  options.session.threads = 1;
  options.session.budget = *Budget::parse("64");
  for (const char* policy : {"keydiff", "nestedkv", "h2o", "nestedkv:schedule=prefill,decode=append"}) {
    SCOPED_TRACE(policy);
    options.session.policy = *PolicySpec::parse(policy);
    const auto together = answers(*model, options, prompts, prompts.size());
    EXPECT_EQ(together, answers(*model, options, prompts, 1));
    EXPECT_EQ(together.size(), prompts.size());
  }
  options.chat_template = "no such template";
  EXPECT_FALSE(
      answer_all(*model, prompts, options, [](std::size_t, const Answer&) { return Status{}; }).ok());
}

}  // namespace
}  // namespace keynest::eval
