// Once buffers have grown, neither a block of the prompt nor a generated token takes memory, with any policy.
// ggml itself takes some whenever it computes a graph, the same every time, which is counted apart.
#include <ggml-cpu.h>

#include <cstdlib>
#include <memory>

#include "engine/law_test.h"
#include "support/allocations.h"

namespace keynest::test {
namespace {

constexpr std::int32_t kBudget = 96;
constexpr std::int32_t kBlock = 16;
constexpr int kWarmBlocks = 24;  // beyond the budget

/// What ggml takes for one graph.
std::int64_t allocations_of_ggml() {
  const std::int64_t before = allocations();
  ggml_cpu_init();
  return allocations() - before;
}

struct SteadyCase {
  const char* model;
  PolicyCase policy;
};
void PrintTo(const SteadyCase& each, std::ostream* out) { *out << each.model << ' ' << each.policy.spec; }

class SteadyState : public testing::TestWithParam<SteadyCase> {
 protected:
  void SetUp() override {
    if (!kAllocationsAreCounted) GTEST_SKIP() << "allocations cannot be counted in this build";
    model_ = tiny(GetParam().model);
    ASSERT_NE(model_, nullptr);
    session_ = make_session(model_, {.policy = GetParam().policy.spec, .budget = kBudget, .block = kBlock});
    ASSERT_NE(session_, nullptr);
  }

  /// Beside those of ggml in `graphs` graphs. Heads that share a budget may come to hold more than ever
  /// before, or move more rows, which grows a buffer; there are few of these.
  void expect_none(std::int64_t counted, int graphs) {
    const bool adaptive = PolicySpec::parse(GetParam().policy.spec)->heads == HeadAllocation::kAdaptive;
    const std::int64_t own = counted - graphs * allocations_of_ggml();
    EXPECT_GE(own, 0);
    EXPECT_LE(own, adaptive ? 8 : 0);
  }

  std::shared_ptr<const Model> model_;
  std::unique_ptr<Session> session_;
};

TEST(Allocations, AreCounted) {
  if (!kAllocationsAreCounted) GTEST_SKIP() << "allocations cannot be counted in this build";
  const std::int64_t before = allocations();
  const auto number = std::make_unique<int>(1);
  void* volatile memory = std::malloc(1);
  std::free(memory);
  EXPECT_GE(allocations() - before, 2) << *number;
}

TEST_P(SteadyState, BlocksTakeNoMemory) {
  constexpr int kSteadyBlocks = 16;
  constexpr int kBlocks = kWarmBlocks + kSteadyBlocks + 1;  // the last one makes logits: a graph of its own
  const auto tokens = random_tokens(*model_, kBlocks * kBlock, 1);
  std::int64_t warm = 0, steady = 0;
  const auto progress = [&](std::int64_t done, std::int64_t) {
    if (done == kWarmBlocks * kBlock) warm = allocations();
    if (done == (kBlocks - 1) * kBlock) steady = allocations();
    return true;
  };
  ASSERT_TRUE(session_->prefill(tokens, progress).ok());
  expect_none(steady - warm, kSteadyBlocks);
}

TEST_P(SteadyState, TokensTakeNoMemory) {
  constexpr int kWarmTokens = 4 * kBlock, kTokens = 4 * kBlock;
  ASSERT_TRUE(session_->prefill(random_tokens(*model_, kWarmBlocks * kBlock, 1)).ok());
  const auto generate = [&](int count) {
    bool ok = true;
    for (int i = 0; i < count; ++i) ok = session_->decode(session_->sample({})).ok() && ok;
    return ok;
  };
  ASSERT_TRUE(generate(kWarmTokens));
  const std::int64_t before = allocations();
  const bool ok = generate(kTokens);
  const std::int64_t taken = allocations() - before;
  EXPECT_TRUE(ok);
  expect_none(taken, kTokens);
}

/// A cache that is never cut grows, and the quadratic ablations of KeyDiff copy keys: both take memory.
std::vector<SteadyCase> bounded_policies() {
  std::vector<SteadyCase> cases;
  for (const PolicyCase& each : policy_cases()) {
    const std::string spec = each.spec;
    if (spec != "full" && spec.find("anchor=median") == spec.npos &&
        spec.find("anchor=pairwise") == spec.npos)
      cases.push_back({"llama", each});
  }
  return cases;
}

std::string case_name(const testing::TestParamInfo<SteadyCase>& info) { return info.param.policy.name; }

INSTANTIATE_TEST_SUITE_P(Policies, SteadyState, testing::ValuesIn(bounded_policies()), case_name);

INSTANTIATE_TEST_SUITE_P(Windows, SteadyState, testing::Values(SteadyCase{"gemma3", {"keydiff", "keydiff"}}),
                         case_name);

}  // namespace
}  // namespace keynest::test
