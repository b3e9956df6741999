#include "engine/law_test.h"

#include <map>

#include "support/models.h"

namespace keynest::test {

const std::vector<PolicyCase>& policy_cases() {
  static const std::vector<PolicyCase> cases{
      {"full", "full"},
      {"sink", "sink:first=4"},
      {"keydiff", "keydiff"},
      {"keydiff_raw_dot", "keydiff:anchor=mean_raw,metric=dot"},
      {"keydiff_median_euclid", "keydiff:anchor=median,metric=euclid"},
      {"keydiff_pairwise", "keydiff:anchor=pairwise"},
      {"keydiff_pins", "keydiff:keep_first=3,keep_last=20%"},
      {"keydiff_adaptive", "keydiff:heads=adaptive"},
      {"keydiff_pyramid", "keydiff:layers=pyramid"},
      {"knorm", "knorm"},
      {"random", "random:seed=3"},
      {"tova", "tova"},
      {"tova_head", "tova:group=head"},
      {"snapkv", "snapkv:window=8,kernel=3"},
      {"snapkv_max_adaptive", "snapkv:window=4,pool=max,heads=adaptive"},
      {"h2o", "h2o"},
      {"h2o_recent", "h2o:recent=50%"},
      {"nestedkv", "nestedkv"},
      {"nestedkv_uniform", "nestedkv:heads=uniform"},
      {"sink_cache_positions", "sink:positions=cache"},
      {"keydiff_cache_positions", "keydiff:positions=cache"},
      {"snapkv_cache_positions", "snapkv:window=8,kernel=3,positions=cache"},
  };
  return cases;
}

const std::vector<std::string>& model_names() {
  static const std::vector<std::string> names{"llama", "qwen2", "qwen3", "gemma3"};
  return names;
}

namespace {

std::shared_ptr<const Model> load_tiny(TinyModel description) {
  description.trained_context = 512;
  const TemporaryDirectory directory;
  const std::string path = directory.file("tiny.gguf");
  if (!write_tiny_gguf(path, description)) return nullptr;
  auto model = Model::load(path);
  return model ? *model : nullptr;
}

}  // namespace

std::shared_ptr<const Model> tiny(const std::string& name) {
  static std::map<std::string, std::shared_ptr<const Model>> loaded;
  auto& model = loaded[name];
  if (!model) model = load_tiny(tiny_model(name));
  return model;
}

std::shared_ptr<const Model> one_layer(int window) {
  TinyModel description = tiny_model(window > 0 ? "gemma3" : "llama");
  description.layers = 1;
  description.window = window;
  description.pattern = 0;
  return load_tiny(description);
}

std::shared_ptr<const Model> smollm2() {
  static const std::shared_ptr<const Model> model = []() -> std::shared_ptr<const Model> {
    const std::string path = real_model_path("SmolLM2-135M-Instruct.Q4_1.gguf");
    if (path.empty()) return nullptr;
    auto loaded = Model::load(path);
    EXPECT_TRUE(loaded.ok()) << (loaded.ok() ? std::string() : loaded.error().message);
    return loaded ? *loaded : nullptr;
  }();
  return model;
}

std::vector<Token> random_tokens(const Model& model, int count, std::uint32_t seed) {
  std::vector<Token> tokens;
  std::uint32_t state = seed * 2654435761u + 1;
  for (int i = 0; i < count; ++i) {
    state = state * 1664525u + 1013904223u;
    tokens.push_back(static_cast<Token>((state >> 8) % static_cast<std::uint32_t>(model.info().vocabulary)));
  }
  return tokens;
}

SessionOptions options_of(const Settings& settings) {
  SessionOptions options;
  auto policy = PolicySpec::parse(settings.policy);
  EXPECT_TRUE(policy.ok()) << (policy.ok() ? "" : policy.error().message);
  if (policy) options.policy = *policy;
  if (settings.budget > 0) options.budget = {Budget::Unit::kEntries, static_cast<double>(settings.budget)};
  options.block = settings.block;
  options.decode_block = settings.decode_block;
  options.threads = settings.threads;
  options.cache_limit = settings.cache_limit;
  options.kv_type = settings.kv_type;
  return options;
}

std::unique_ptr<Session> make_session(std::shared_ptr<const Model> model, const Settings& settings) {
  auto session = Session::create(std::move(model), options_of(settings));
  EXPECT_TRUE(session.ok()) << (session.ok() ? "" : session.error().message);
  return session ? std::move(session).value() : nullptr;
}

std::vector<float> logits_of(const Session& session) {
  return {session.logits().begin(), session.logits().end()};
}

std::vector<std::vector<float>> decode_all(Session& session, const std::vector<Token>& tokens) {
  std::vector<std::vector<float>> all;
  for (const Token token : tokens) {
    const Status status = session.decode(token);
    EXPECT_TRUE(status.ok()) << (status.ok() ? "" : status.error().message);
    all.push_back(logits_of(session));
  }
  return all;
}

std::vector<std::vector<std::vector<Position>>> kept_everywhere(const Session& session, const Model& model) {
  std::vector<std::vector<std::vector<Position>>> kept;
  for (int layer = 0; layer < model.info().layers; ++layer) {
    kept.emplace_back();
    for (int head = 0; head < model.info().kv_heads; ++head) kept.back().push_back(session.kept(layer, head));
  }
  return kept;
}

}  // namespace keynest::test
