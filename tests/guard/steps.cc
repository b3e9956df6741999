// One block of the prompt and one generated token of a tiny model, both with an eviction: the engine's own
// work, and what of ggml's it asks for.
#include <cstdio>
#include <string>
#include <vector>

#include "guard.h"
#include "keynest/model.h"
#include "keynest/session.h"
#include "support/tiny_gguf.h"

namespace keynest::guard {
namespace {

constexpr std::int32_t kBlock = 32;
constexpr std::int32_t kBudget = 96;

Result<std::shared_ptr<const Model>> load_tiny() {
  test::TinyModel description = test::tiny_model("llama");
  description.trained_context = 512;
  description.embedding = 128;
  description.head_dim = 32;
  description.feed_forward = 256;
  description.type = GGML_TYPE_Q8_0;
  const test::TemporaryDirectory directory;
  const std::string path = directory.file("tiny.gguf");
  if (!test::write_tiny_gguf(path, description)) return Error{ErrorCode::kIo, "cannot write " + path};
  ModelOptions options;
  options.gemm = Gemm::kGgml;  // keynest's own products are counted among the kernels
  return Model::load(path, options);
}

std::vector<Token> tokens(std::int32_t count) {
  std::vector<Token> tokens;
  for (std::int32_t i = 0; i < count; ++i) tokens.push_back(i * 31 % 256 + 3);
  return tokens;
}

/// Blocks until the cache is over its budget twice, then one more that is counted; the same with tokens.
Status count_policy(const std::shared_ptr<const Model>& model, const std::string& policy) {
  SessionOptions options;
  options.policy = *PolicySpec::parse(policy);
  options.budget = {Budget::Unit::kEntries, kBudget};
  options.block = kBlock;
  options.decode_block = 1;
  options.threads = 1;
  auto session = Session::create(model, options);
  if (!session) return session.error();
  KEYNEST_TRY((*session)->prefill(tokens(kBudget + 2 * kBlock)));
  Status status;
  const std::vector<Token> block = tokens(kBlock);
  count("block." + policy, [&] { status = (*session)->prefill(block); });
  KEYNEST_TRY(status);
  for (int i = 0; i < 2; ++i) KEYNEST_TRY((*session)->decode(3));
  count("decode." + policy, [&] { status = (*session)->decode(3); });
  return status;
}

Status count_policies() {
  auto model = load_tiny();
  if (!model) return model.error();
  for (const char* policy : {"keydiff", "nestedkv", "snapkv:window=16"})
    KEYNEST_TRY(count_policy(*model, policy));
  return {};
}

}  // namespace

bool count_steps() {
  const Status status = count_policies();
  if (!status) std::fprintf(stderr, "%s\n", status.error().message.c_str());
  return status.ok();
}

}  // namespace keynest::guard
