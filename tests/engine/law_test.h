// What the law tests share: the policies and models they run over, and short ways to run a session.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "keynest/session.h"
#include "support/tiny_gguf.h"

namespace keynest::test {

/// A policy of the table, and whether it may be asked for things that not all can do.
struct PolicyCase {
  const char* name;  // of the test
  const char* spec;
};
inline void PrintTo(const PolicyCase& policy, std::ostream* out) { *out << policy.spec; }

/// Every method, allocation and kind of pin. A new policy is a new row here.
const std::vector<PolicyCase>& policy_cases();

/// Names of the tiny models the laws run over: one an architecture.
const std::vector<std::string>& model_names();

/// Loaded once and shared by all tests.
std::shared_ptr<const Model> tiny(const std::string& name);

/// A tiny model of one layer, so that keys depend on their own token and position only. window: 0 or a
/// sliding window.
std::shared_ptr<const Model> one_layer(int window);

/// SmolLM2 from KEYNEST_MODELS_DIR, or null.
std::shared_ptr<const Model> smollm2();

/// The same pseudo-random tokens for the same arguments.
std::vector<Token> random_tokens(const Model& model, int count, std::uint32_t seed);

struct Settings {
  std::string policy = "keydiff";
  std::int32_t budget = 0;  // 0 = unbounded
  std::int32_t block = 16;
  std::int32_t decode_block = 0;
  int threads = 1;  // threads wait by spinning: with more than one, tests beside each other crawl
  std::size_t cache_limit = 0;
  KvType kv_type = KvType::kF16;
};

SessionOptions options_of(const Settings& settings);

/// A session, or a failed test and null.
std::unique_ptr<Session> make_session(std::shared_ptr<const Model> model, const Settings& settings);

/// Logits as a vector, for comparisons to the bit.
std::vector<float> logits_of(const Session& session);

/// Feeds the tokens one by one; the logits after each.
std::vector<std::vector<float>> decode_all(Session& session, const std::vector<Token>& tokens);

/// Positions every head keeps, [layer][head].
std::vector<std::vector<std::vector<Position>>> kept_everywhere(const Session& session, const Model& model);

}  // namespace keynest::test
