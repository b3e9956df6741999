// Asks a question about a file of any length inside a fixed cache.
//   ask_file MODEL.gguf FILE QUESTION [BUDGET]
// The tests run it with models/SmolLM2-135M-Instruct.Q4_1.gguf.
#include <keynest/model.h>
#include <keynest/session.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

namespace {

int fail(const keynest::Error& error) {
  std::fprintf(stderr, "ask_file: %s\n", error.message.c_str());
  return 1;
}

std::string read_file(const char* path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) return std::fprintf(stderr, "usage: ask_file MODEL.gguf FILE QUESTION [BUDGET]\n"), 2;

  auto model = keynest::Model::load(argv[1]);
  if (!model) return fail(model.error());

  // What the cache may keep: this many entries per layer and KV head, chosen by the policy.
  keynest::SessionOptions options;
  auto budget = keynest::Budget::parse(argc > 4 ? argv[4] : "1024");
  auto policy = keynest::PolicySpec::parse("keydiff");
  if (!budget) return fail(budget.error());
  if (!policy) return fail(policy.error());
  options.budget = *budget;
  options.policy = *policy;

  auto created = keynest::Session::create(*model, options);
  if (!created) return fail(created.error());
  keynest::Session& session = **created;

  auto prompt = (*model)->apply_chat_template({{"user", read_file(argv[2]) + "\n\n" + argv[3]}}, true);
  if (!prompt) return fail(prompt.error());
  const auto tokens = (*model)->tokenize(*prompt, true, true);
  if (auto status = session.prefill(tokens); !status) return fail(status.error());

  for (int i = 0; i < 64; ++i) {
    const keynest::Token token = session.sample({});
    if ((*model)->is_end(token)) break;
    std::fputs((*model)->piece(token).c_str(), stdout);
    if (auto status = session.decode(token); !status) return fail(status.error());
  }

  const keynest::Stats stats = session.stats();
  std::printf("\n%zu tokens read; cache %zu KiB at its peak, %zu KiB without eviction\n", tokens.size(),
              stats.cache.peak_bytes / 1024, stats.cache.full_bytes / 1024);
  return 0;
}
