// Session::inspect: what it says of a head agrees with what the head keeps.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "engine/law_test.h"

namespace keynest::test {
namespace {

std::unique_ptr<Session> session_with(const std::shared_ptr<const Model>& model, const char* policy,
                                      bool record, int budget) {
  SessionOptions options;
  options.policy = *PolicySpec::parse(policy);
  options.budget = {Budget::Unit::kEntries, static_cast<double>(budget)};
  options.block = 16;
  options.threads = 1;
  options.record_scores = record;
  auto session = Session::create(model, options);
  EXPECT_TRUE(session) << session.error().message;
  return std::move(*session);
}

class Inspect : public testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(Policies, Inspect,
                         testing::Values("keydiff", "keydiff:heads=adaptive", "nestedkv", "tova",
                                         "snapkv:window=4", "h2o", "knorm"));

TEST_P(Inspect, AgreesWithWhatIsKept) {
  const auto model = tiny("llama");
  const auto session = session_with(model, GetParam(), true, 24);
  ASSERT_TRUE(session->prefill(random_tokens(*model, 90, 1)).ok());
  ASSERT_TRUE(session->decode(3).ok());
  const ModelInfo& info = model->info();
  for (int layer = 0; layer < info.layers; ++layer) {
    for (int head = 0; head < info.kv_heads; ++head) {
      const auto report = session->inspect(layer, head);
      ASSERT_TRUE(report) << report.error().message;
      EXPECT_EQ(report->positions, session->kept(layer, head));
      ASSERT_EQ(report->scores.size(), report->positions.size());
      ASSERT_EQ(report->cosines.size(), report->positions.size());
      EXPECT_EQ(report->anchor.size(), static_cast<std::size_t>(info.head_dim));
      for (std::size_t i = 0; i < report->scores.size(); ++i) {
        EXPECT_EQ(std::isnan(report->scores[i]), to_int(report->positions[i]) >= 90)
            << "the decoded token alone has none";
        EXPECT_LE(std::abs(report->cosines[i]), 1.001F);
      }
    }
  }
}

TEST(InspectScores, AreThoseThatDecided) {
  const auto model = tiny("llama");
  // keydiff scores by minus the cosine to the anchor of what was there; one eviction of everything.
  const auto all = session_with(model, "full", true, 24);
  const auto some = session_with(model, "keydiff:schedule=prefill", true, 24);
  ASSERT_TRUE(all->prefill(random_tokens(*model, 90, 1)).ok());
  ASSERT_TRUE(some->prefill(random_tokens(*model, 90, 1)).ok());
  const auto before = all->inspect(0, 0);
  const auto after = some->inspect(0, 0);
  ASSERT_TRUE(before && after);
  ASSERT_EQ(after->positions.size(), 24U);
  for (std::size_t i = 0; i < 24; ++i) {
    const auto at = static_cast<std::size_t>(to_int(after->positions[i]));
    EXPECT_NEAR(after->scores[i], -before->cosines[at], 1e-4F);
  }
}

TEST(InspectScores, AreNotThereUnlessAskedForOrNothingWasEvicted) {
  const auto model = tiny("llama");
  for (const bool record : {false, true}) {
    const auto session = session_with(model, "keydiff", record, record ? 200 : 24);
    ASSERT_TRUE(session->prefill(random_tokens(*model, 90, 1)).ok());
    const auto report = session->inspect(0, 0);
    ASSERT_TRUE(report);
    EXPECT_TRUE(
        std::all_of(report->scores.begin(), report->scores.end(), [](float s) { return std::isnan(s); }));
  }
}

TEST(InspectScores, GoWithAFork) {
  const auto model = tiny("llama");
  const auto session = session_with(model, "keydiff", true, 24);
  ASSERT_TRUE(session->prefill(random_tokens(*model, 90, 1)).ok());
  const auto fork = session->fork();
  ASSERT_TRUE(fork);
  EXPECT_EQ((*fork)->inspect(1, 0)->scores, session->inspect(1, 0)->scores);
}

TEST(InspectScores, OfHeadsThatAreNotThereAreRefused) {
  const auto model = tiny("llama");
  const auto session = session_with(model, "keydiff", true, 24);
  EXPECT_EQ(session->inspect(0, 0)->positions.size(), 0U);
  for (const auto& [layer, head] : {std::pair{-1, 0}, {0, -1}, {1000, 0}, {0, 1000}}) {
    const auto report = session->inspect(layer, head);
    ASSERT_FALSE(report);
    EXPECT_EQ(report.error().code, ErrorCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace keynest::test
