#include "cli/flags.h"

#include <CLI/CLI.hpp>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "cli/text_stream.h"

namespace keynest::cli {
namespace {

constexpr std::array<std::pair<std::string_view, KvType>, 4> kKvTypes{
    {{"f16", KvType::kF16}, {"f32", KvType::kF32}, {"bf16", KvType::kBF16}, {"q8_0", KvType::kQ8_0}}};

Result<KvType> parse_kv_type(const std::string& text) {
  for (const auto& [name, type] : kKvTypes) {
    if (name == text) return type;
  }
  return invalid_argument("--kv-type " + text + " is not known; allowed: f16, f32, bf16, q8_0");
}

/// A size with its unit; the same words as a budget in bytes.
Result<std::size_t> parse_size(const std::string& flag, const std::string& text) {
  const auto size = Budget::parse(text);
  if (!size || size->unit != Budget::Unit::kBytes || size->value < 1) {
    return invalid_argument(flag + " " + text +
                            " is no size; give a number with its unit, such as 512MiB or 2GiB");
  }
  return static_cast<std::size_t>(size->value);
}

Status check_range(const char* flag, float value, float low, float high, const char* meaning) {
  if (value >= low && value <= high) return {};  // false for NaN
  return invalid_argument(std::string(flag) + " " + std::to_string(value) + " is not allowed; " + meaning);
}

}  // namespace

void declare(CLI::App& command, ModelFlags& flags) {
  command.add_option("-m,--model", flags.path, "Model file (GGUF)")
      ->required()
      ->type_name("MODEL")
      ->group("Model");
}

void declare(CLI::App& command, CacheFlags& flags) {
  command.add_option("--policy", flags.policy, "What the cache keeps; see the list below")
      ->type_name("SPEC")
      ->capture_default_str()
      ->group("Cache");
  command
      .add_option("--budget", flags.budget,
                  "How much it keeps: entries per layer and head, a share of the prompt "
                  "(25%), bytes (64MiB), or full")
      ->type_name("N|N%|SIZE|full")
      ->default_str(kDefaultBudget)
      ->group("Cache");
  command.add_option("--block", flags.block, "Prompt tokens between two evictions")
      ->type_name("B")
      ->capture_default_str()
      ->group("Cache");
  command
      .add_option("--decode-block", flags.decode_block,
                  "Generated tokens between two evictions; 0 = as --block, 1 = after every token")
      ->type_name("B")
      ->capture_default_str()
      ->group("Cache");
  command.add_option("--kv-type", flags.kv_type, "How keys and values are stored: f16, f32, bf16, q8_0")
      ->type_name("TYPE")
      ->capture_default_str()
      ->group("Cache");
  command
      .add_option("--cache-limit", flags.cache_limit,
                  "Most memory the cache may take (default: what is free)")
      ->type_name("SIZE")
      ->group("Cache");
  command.add_option("-t,--threads", flags.threads, "Threads; 0 = all cores")
      ->type_name("N")
      ->capture_default_str()
      ->check(CLI::Range(0, 4096))
      ->group("Machine");
}

void declare(CLI::App& command, TextFlags& flags) {
  SamplingOptions& sampling = flags.sampling;
  const auto add = [&command](const char* name, auto& value, const char* help) {
    command.add_option(name, value, help)->type_name("N")->capture_default_str()->group("Generation");
  };
  add("-n,--max-tokens", flags.max_tokens, "Most tokens to generate; -1 = until the model ends");
  add("--temp", sampling.temperature, "Temperature; 0 = always the likeliest token");
  add("--top-k", sampling.top_k, "Sample from the k likeliest tokens; 0 = off");
  add("--top-p", sampling.top_p,
      "Sample from the likeliest tokens that reach this probability together; 1 = off");
  add("--min-p", sampling.min_p, "Drop tokens below this share of the likeliest one's probability; 0 = off");
  add("--repeat-penalty", sampling.repeat_penalty, "Make recent tokens less likely; 1 = off");
  add("--seed", sampling.seed, "Seed of the sampling; the same seed gives the same text");
  command
      .add_option("--stop", flags.stops,
                  "Text that ends the output, not printed itself; \\n, \\t, \\xHH are read "
                  "as escapes; may be given several times")
      ->type_name("TEXT")
      ->allow_extra_args(false)
      ->group("Generation");
  command.add_flag("--ignore-eos", flags.ignore_eos, "Go on when the model says it is done")
      ->group("Generation");
}

void declare(CLI::App& command, TemplateFlags& flags) {
  command.add_option("--system", flags.system, "System message that precedes the conversation")
      ->type_name("TEXT")
      ->group("Conversation");
  command
      .add_option("--chat-template", flags.chat_template,
                  "Chat template: a built-in name such as chatml, or a file (default: the model's own)")
      ->type_name("NAME|FILE")
      ->group("Conversation");
}

void declare(CLI::App& command, TalkFlags& flags) {
  auto* quiet =
      command.add_flag("-q,--quiet", flags.quiet, "No progress bar, no summary; warnings and errors only");
  auto* verbose =
      command.add_flag("-v,--verbose", flags.verbose, "Tell about the model and the prompt first");
  quiet->group("Messages");
  verbose->group("Messages")->excludes(quiet);
}

std::string policy_footer() {
  std::string list = policy_help();
  if (!list.empty() && list.back() != '\n') list += '\n';
  return "Policies (--policy SPEC):\n" + list;
}

Result<SessionOptions> session_options(const CacheFlags& flags) {
  SessionOptions options;
  auto policy = PolicySpec::parse(flags.policy);
  if (!policy) return policy.error();
  const std::string otherwise = policy->method == "full" ? "full" : kDefaultBudget;
  auto budget = Budget::parse(flags.budget.empty() ? otherwise : flags.budget);
  if (!budget) return budget.error();
  auto kv_type = parse_kv_type(flags.kv_type);
  if (!kv_type) return kv_type.error();
  if (!flags.cache_limit.empty()) {
    auto limit = parse_size("--cache-limit", flags.cache_limit);
    if (!limit) return limit.error();
    options.cache_limit = *limit;
  }
  options.policy = *policy;
  options.budget = *budget;
  options.kv_type = *kv_type;
  options.block = flags.block;
  options.decode_block = flags.decode_block;
  options.threads = flags.threads;
  return options;
}

Result<std::vector<std::string>> stop_strings(const TextFlags& flags) {
  std::vector<std::string> stops;
  for (const std::string& text : flags.stops) {
    auto stop = unescape(text);
    if (!stop) return invalid_argument("--stop: " + stop.error().message);
    if (stop->empty()) return invalid_argument("--stop \"\" would end every text at once; give some text");
    stops.push_back(*stop);
  }
  return stops;
}

Status check_sampling(const SamplingOptions& sampling) {
  constexpr float kMost = 1000.0f;
  KEYNEST_TRY(check_range("--temp", sampling.temperature, 0, kMost, "give 0 (greedy) or more"));
  KEYNEST_TRY(check_range("--top-p", sampling.top_p, 0, 1, "give a probability from 0 to 1"));
  KEYNEST_TRY(check_range("--min-p", sampling.min_p, 0, 1, "give a share from 0 to 1"));
  KEYNEST_TRY(check_range("--repeat-penalty", sampling.repeat_penalty, std::numeric_limits<float>::min(),
                          kMost, "give a number above 0; 1 is no penalty"));
  if (sampling.top_k < 0) return invalid_argument("--top-k below 0 is not allowed; give 0 (off) or more");
  return {};
}

}  // namespace keynest::cli
