// Ranges the caller protects: kept whatever their score, inside the budget.
#include <algorithm>

#include "engine/law_test.h"
#include "keynest/keynest.h"

namespace keynest::test {
namespace {

constexpr PositionRange range(int first, int last) { return {Position{first}, Position{last}}; }

/// Every head of every layer without a window holds all positions of the range.
void expect_held(const Session& session, const Model& model, PositionRange range) {
  for (int layer = 0; layer < model.info().layers; ++layer) {
    if (model.info().layer_windows[static_cast<std::size_t>(layer)] > 0) continue;
    for (int head = 0; head < model.info().kv_heads; ++head) {
      const std::vector<Position> kept = session.kept(layer, head);
      for (int p = to_int(range.first); p < to_int(range.last); ++p) {
        EXPECT_TRUE(std::binary_search(kept.begin(), kept.end(), Position{p}))
            << "layer " << layer << ", head " << head << ", position " << p;
      }
    }
  }
}

class ProtectedRanges : public testing::TestWithParam<PolicyCase> {
 protected:
  std::shared_ptr<const Model> model_ = tiny("llama");
  std::vector<Token> tokens(int count, std::uint32_t seed = 1) const {
    return random_tokens(*model_, count, seed);
  }
  std::unique_ptr<Session> session() const {
    return make_session(model_, {.policy = GetParam().spec, .budget = 64, .block = 16});
  }
};

TEST_P(ProtectedRanges, StayInEveryHeadAndCountInTheBudget) {
  const bool pyramid = std::string(GetParam().spec).find("pyramid") != std::string::npos;
  auto s = session();
  ASSERT_TRUE(s);
  const PositionRange first = range(5, 8), second = range(40, 52);
  const Status protected_first = s->protect(first);
  ASSERT_TRUE(protected_first.ok()) << protected_first.error().message;
  if (pyramid) return;  // its last layer has room for no more
  ASSERT_TRUE(s->protect(second).ok());
  ASSERT_TRUE(s->prefill(tokens(150)).ok());
  decode_all(*s, tokens(40, 2));
  expect_held(*s, *model_, first);
  expect_held(*s, *model_, second);
  if (std::string(GetParam().spec) == "full") return;
  const Stats stats = s->stats();
  for (const std::int64_t entries : stats.cache.peak_entries_per_layer)
    EXPECT_LE(entries, model_->info().kv_heads * (64 + 16));

  auto forked = s->fork();
  ASSERT_TRUE(forked.ok());
  decode_all(**forked, tokens(40, 3));
  expect_held(**forked, *model_, second);
}

TEST_P(ProtectedRanges, BetweenPromptsProtectTheNextOne) {
  auto s = session();
  ASSERT_TRUE(s);
  ASSERT_TRUE(s->prefill(tokens(100)).ok());
  const Status later = s->protect(range(110, 113));
  ASSERT_TRUE(later.ok()) << later.error().message;
  ASSERT_TRUE(s->prefill(tokens(100, 2)).ok());
  expect_held(*s, *model_, range(110, 113));
}

std::string case_name(const testing::TestParamInfo<PolicyCase>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(All, ProtectedRanges, testing::ValuesIn(policy_cases()), case_name);

void expect_error(const Status& status, ErrorCode code, const std::string& part) {
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, code);
  EXPECT_NE(status.error().message.find(part), std::string::npos) << status.error().message;
}

TEST(Protect, BadRangesAreErrorsAndLeaveTheSessionAlone) {
  const auto model = tiny("llama");
  auto s = make_session(model, {.policy = "keydiff:keep_last=8", .budget = 40, .block = 16});
  ASSERT_TRUE(s);
  expect_error(s->protect(range(4, 4)), ErrorCode::kInvalidArgument, "empty");
  expect_error(s->protect(range(9, 4)), ErrorCode::kInvalidArgument, "empty");
  expect_error(s->protect(range(-1, 4)), ErrorCode::kInvalidArgument, "empty");
  ASSERT_TRUE(s->protect(range(0, 10)).ok());
  expect_error(s->protect(range(9, 12)), ErrorCode::kInvalidArgument, "overlap");
  expect_error(s->protect(range(20, 43)), ErrorCode::kInvalidArgument, "budget of 40");
  ASSERT_TRUE(s->protect(range(20, 42)).ok()) << "10 + 22 + 8 fit";
  expect_error(s->prefill(random_tokens(*model, 41, 1)), ErrorCode::kInvalidArgument,
               "ends after the prompt");
  EXPECT_EQ(s->seen(), 0);
  ASSERT_TRUE(s->prefill(random_tokens(*model, 120, 1)).ok());
  expect_held(*s, *model, range(0, 10));
  expect_held(*s, *model, range(20, 42));
}

TEST(Protect, EvictedEntriesCannotBeProtected) {
  const auto model = tiny("llama");
  auto s = make_session(model, {.policy = "sink", .budget = 40, .block = 16});
  ASSERT_TRUE(s);
  ASSERT_TRUE(s->prefill(random_tokens(*model, 120, 1)).ok());
  expect_error(s->protect(range(50, 60)), ErrorCode::kRefused, "evicted already");
  ASSERT_TRUE(s->protect(range(90, 100)).ok()) << "these are there";
  decode_all(*s, random_tokens(*model, 60, 2));
  expect_held(*s, *model, range(90, 100));
}

TEST(Protect, AShareOfThePromptIsCheckedWhenThePromptIsKnown) {
  const auto model = tiny("llama");
  SessionOptions options = options_of({.policy = "keydiff", .block = 16});
  options.budget = {Budget::Unit::kShare, 0.25};
  auto created = Session::create(model, options);
  ASSERT_TRUE(created.ok());
  Session& s = **created;
  ASSERT_TRUE(s.protect(range(0, 30)).ok());
  expect_error(s.prefill(random_tokens(*model, 100, 1)), ErrorCode::kInvalidArgument, "budget of 25");
  EXPECT_EQ(s.seen(), 0);
  ASSERT_TRUE(s.prefill(random_tokens(*model, 200, 1)).ok()) << "the refused prompt settled nothing";
  expect_held(s, *model, range(0, 30));
}

TEST(Protect, RollingBackForgetsWhatWasProtectedBeyond) {
  const auto model = tiny("llama");
  auto s = make_session(model, {.policy = "keydiff", .budget = 64, .block = 16});
  ASSERT_TRUE(s);
  ASSERT_TRUE(s->protect(range(10, 30)).ok());
  ASSERT_TRUE(s->prefill(random_tokens(*model, 40, 1)).ok());
  ASSERT_TRUE(s->rollback(Position{20}).ok());
  ASSERT_TRUE(s->protect(range(20, 24)).ok()) << "no longer protected, so no overlap";
  ASSERT_TRUE(s->prefill(random_tokens(*model, 150, 2)).ok());
  expect_held(*s, *model, range(10, 24));
}

TEST(Protect, FromC) {
  const TemporaryDirectory directory;
  const std::string path = directory.file("tiny.gguf");
  ASSERT_TRUE(write_tiny_gguf(path, tiny_model("llama")));
  keynest_model* model = nullptr;
  keynest_session* session = nullptr;
  ASSERT_EQ(keynest_model_load(path.c_str(), &model), KEYNEST_OK);
  keynest_session_options options{};
  options.budget = "40";
  options.threads = 1;
  options.block = 16;
  ASSERT_EQ(keynest_session_create(model, &options, &session), KEYNEST_OK);
  EXPECT_EQ(keynest_protect(session, 0, 10), KEYNEST_OK);
  EXPECT_EQ(keynest_protect(session, 5, 12), KEYNEST_INVALID_ARGUMENT);
  EXPECT_NE(std::string(keynest_last_error()).find("overlap"), std::string::npos);
  EXPECT_EQ(keynest_protect(session, 0, std::int64_t{1} << 40), KEYNEST_INVALID_ARGUMENT);
  EXPECT_EQ(keynest_protect(nullptr, 0, 1), KEYNEST_INVALID_ARGUMENT);
  keynest_session_free(session);
  keynest_model_free(model);
}

}  // namespace
}  // namespace keynest::test
