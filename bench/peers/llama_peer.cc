// peer_llama: one timed run of llama.cpp with its full cache, on the engine that keynest is built with.
// Prints one line of JSON, as all programs of scripts/peers do; scripts/peers/llama.cpp starts it.
#include <llama.h>
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace {

constexpr const char* kAbout =
    "One timed run of llama.cpp with its full cache: flash attention, keys and values in f16, greedy "
    "answer.\n"
    "Started by scripts/peers/llama.cpp.";

struct Flags {
  std::string model, prompt;
  int tokens = 0, answer = 64, threads = 0, budget = 0, ubatch = 512;
};

/// Something the user has to put right.
struct PeerError {
  std::string text;
};

using Clock = std::chrono::steady_clock;
using ModelPtr = std::unique_ptr<llama_model, decltype(&llama_model_free)>;
using ContextPtr = std::unique_ptr<llama_context, decltype(&llama_free)>;

constexpr int kWarmUpTokens = 64, kWarmUpAnswer = 4;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Warnings and errors of the engine go to standard error, the rest nowhere.
void log_to_stderr(ggml_log_level level, const char* text, void*) {
  if (level == GGML_LOG_LEVEL_WARN || level == GGML_LOG_LEVEL_ERROR) std::fputs(text, stderr);
}

std::string read_text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw PeerError{"--prompt " + path + ": cannot be read"};
  return {std::istreambuf_iterator<char>(in), {}};
}

ModelPtr load_model(const Flags& flags) {
  ModelPtr model(llama_model_load_from_file(flags.model.c_str(), llama_model_default_params()),
                 &llama_model_free);
  if (!model)
    throw PeerError{"--model " + flags.model + ": cannot be loaded; scripts/get-model fetches models"};
  return model;
}

ContextPtr make_context(const Flags& flags, llama_model& model) {
  llama_context_params params = llama_context_default_params();
  params.n_ctx =
      static_cast<std::uint32_t>(std::max(flags.tokens + flags.answer, kWarmUpTokens + kWarmUpAnswer));
  params.n_batch = static_cast<std::uint32_t>(std::max(flags.ubatch, 2048));
  params.n_ubatch = static_cast<std::uint32_t>(flags.ubatch);
  params.n_seq_max = 1;
  params.n_threads = params.n_threads_batch = flags.threads;
  params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
  params.no_perf = true;
  ContextPtr context(llama_init_from_model(&model, params), &llama_free);
  if (!context)
    throw PeerError{"llama.cpp could not make a context of " + std::to_string(params.n_ctx) + " tokens"};
  return context;
}

/// The first tokens of the text, no special ones among them.
std::vector<llama_token> cut(const Flags& flags, const llama_model& model, const std::string& text) {
  const llama_vocab* vocab = llama_model_get_vocab(&model);
  std::vector<llama_token> ids(text.size() + 1);
  const int found = llama_tokenize(vocab, text.data(), static_cast<int>(text.size()), ids.data(),
                                   static_cast<int>(ids.size()), false, false);
  if (found < flags.tokens) {
    throw PeerError{"--tokens " + std::to_string(flags.tokens) + ": the prompt's text has only " +
                    std::to_string(found) + "; give a longer text"};
  }
  ids.resize(static_cast<std::size_t>(flags.tokens));
  return ids;
}

llama_token likeliest(llama_context& context, int vocabulary) {
  const float* logits = llama_get_logits_ith(&context, -1);
  return static_cast<llama_token>(std::max_element(logits, logits + vocabulary) - logits);
}

/// Adds the tokens to the cache and returns the likeliest next one.
llama_token decode(llama_context& context, std::vector<llama_token> ids, int vocabulary) {
  const std::size_t batch = llama_n_batch(&context);
  for (std::size_t at = 0; at < ids.size(); at += batch) {
    const auto count = static_cast<std::int32_t>(std::min(batch, ids.size() - at));
    if (llama_decode(&context, llama_batch_get_one(ids.data() + at, count)) != 0)
      throw PeerError{"llama.cpp could not compute the tokens from " + std::to_string(at) + " on"};
  }
  return likeliest(context, vocabulary);
}

struct Times {
  double first = 0;  ///< seconds to the first token
  double rest = 0;   ///< seconds of the answer's other tokens
};

Times answer_prompt(llama_context& context, const std::vector<llama_token>& prompt, int answer) {
  const int vocabulary = llama_vocab_n_tokens(llama_model_get_vocab(llama_get_model(&context)));
  llama_memory_clear(llama_get_memory(&context), true);
  Times times;
  const Clock::time_point start = Clock::now();
  llama_token token = decode(context, prompt, vocabulary);
  times.first = seconds_since(start);
  const Clock::time_point answering = Clock::now();
  for (int i = 1; i < answer; ++i) token = decode(context, {token}, vocabulary);
  times.rest = seconds_since(answering);
  return times;
}

/// Peak of resident memory; weights are mapped from the file and count where they were touched.
std::int64_t peak_resident_bytes() {
  // VmHWM first: getrusage also counts what the parent held before exec.
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("VmHWM:", 0) == 0) return static_cast<std::int64_t>(std::stoll(line.substr(6))) * 1024;
  }
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return std::int64_t{usage.ru_maxrss} * 1024;
}

nlohmann::ordered_json measure(const Flags& flags) {
  const std::string text = read_text(flags.prompt);
  const ModelPtr model = load_model(flags);
  const std::vector<llama_token> prompt = cut(flags, *model, text);
  const ContextPtr context = make_context(flags, *model);
  const auto warm_up = std::min<std::ptrdiff_t>(kWarmUpTokens, std::ssize(prompt));
  answer_prompt(*context, {prompt.begin(), prompt.begin() + warm_up}, kWarmUpAnswer);
  const Times times = answer_prompt(*context, prompt, flags.answer);
  return {
      {"engine", "llama.cpp"},
      {"version", ENGINE_VERSION},
      {"prompt_tokens", prompt.size()},
      {"ttft_seconds", times.first},
      {"decode_tokens_per_second", (flags.answer - 1) / times.rest},
      {"peak_resident_bytes", peak_resident_bytes()},
      {"cache_bytes", llama_state_seq_get_size(context.get(), 0)},
      {"note", "full cache in f16, flash attention, batches of " + std::to_string(flags.ubatch) + " tokens"}};
}

int run(const Flags& flags) {
  llama_log_set(log_to_stderr, nullptr);
  llama_backend_init();
  try {
    std::printf("%s\n", measure(flags).dump().c_str());
    return 0;
  } catch (const PeerError& error) {
    std::fprintf(stderr, "scripts/peers/llama.cpp: %s\n", error.text.c_str());
    return 1;
  }
}

}  // namespace

int main(int argc, char** argv) {
  Flags flags;
  CLI::App app{kAbout, "scripts/peers/llama.cpp"};
  app.add_option("--model", flags.model, "Weights, a GGUF file")->required();
  app.add_option("--prompt", flags.prompt, "File with the text of the prompt")->required();
  app.add_option("--tokens", flags.tokens, "The text is cut to so many tokens")
      ->required()
      ->check(CLI::Range(1, 1 << 24));
  app.add_option("--answer", flags.answer, "Tokens to generate")
      ->check(CLI::Range(2, 1 << 20))
      ->capture_default_str();
  app.add_option("--threads", flags.threads, "Threads")->required()->check(CLI::Range(1, 1024));
  app.add_option("--budget", flags.budget, "Taken and not used: the cache is always full");
  app.add_option("--ubatch", flags.ubatch, "Tokens computed at once")
      ->check(CLI::Range(1, 1 << 14))
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  return run(flags);
}
