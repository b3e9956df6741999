#include "cli/flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <limits>
#include <utility>

#include "cli/number_flag.h"
#include "cli/text_stream.h"

namespace keynest::cli {
namespace {

std::string kv_type_list() { return CLI::detail::join(kKvTypeNames, ", "); }

Result<KvType> parse_kv_type(const std::string& text) {
  const auto found = std::find(kKvTypeNames.begin(), kKvTypeNames.end(), text);
  if (found != kKvTypeNames.end()) return static_cast<KvType>(found - kKvTypeNames.begin());
  return invalid_argument("--kv-type " + text + " is not known; allowed: " + kv_type_list());
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

/// A flag with a value, in the help's own words.
template <typename Value>
CLI::Option* add(CLI::App& command, const char* name, Value& value, const char* type,
                 const std::string& help) {
  return command.add_option(name, value, help)->type_name(type);
}

/// A number that shows its default and says what is allowed.
template <typename Value>
CLI::Option* add_number(CLI::App& command, const char* name, Value& value, const char* help,
                        const CLI::Validator& allowed) {
  return add(command, name, value, "N", help)->capture_default_str()->check(allowed);
}

void declare_sampling(CLI::App& command, SamplingOptions& sampling, const char* group) {
  constexpr float kMost = 1000.0F, kLeast = std::numeric_limits<float>::min();
  add_number(command, "--temp", sampling.temperature, "Temperature; 0 = always the likeliest token",
             number_from(0.0F, kMost, "0 (greedy) to 1000"))
      ->group(group);
  add_number(command, "--top-k", sampling.top_k, "Sample from the k likeliest tokens; 0 = off",
             number_from(0, "a whole number from 1 up, or 0 for off"))
      ->group(group);
  add_number(command, "--top-p", sampling.top_p,
             "Sample from the likeliest tokens that reach this probability together; 1 = off",
             number_from(0.0F, 1.0F, "a probability from 0 to 1"))
      ->group(group);
  add_number(command, "--min-p", sampling.min_p,
             "Drop tokens below this share of the likeliest one's probability; 0 = off",
             number_from(0.0F, 1.0F, "a share from 0 to 1"))
      ->group(group);
  add_number(command, "--repeat-penalty", sampling.repeat_penalty, "Make recent tokens less likely; 1 = off",
             number_from(kLeast, kMost, "a number above 0; 1 is no penalty"))
      ->group(group);
}

}  // namespace

void declare(CLI::App& command, ModelFlags& flags) {
  add(command, "-m,--model", flags.path, "MODEL", "Model file (GGUF)")->required()->group("Model");
  add(command, "--gemm", flags.gemm, "auto|ggml|native|bf16",
      "Who multiplies blocks of the prompt with the weights: keynest's own kernels (native), those in BF16 "
      "only (slower, more exact), ggml, or for each type of weights the faster of native and ggml")
      ->capture_default_str()
      ->group("Machine");
}

void declare_decode_block(CLI::App& command, CacheFlags& flags) {
  add_number(command, "--decode-block", flags.decode_block,
             "Generated tokens between two evictions; 0 = as --block, 1 = after every token",
             number_from(0, "a whole number of tokens from 1 up, or 0 for as many as --block"))
      ->group("Cache");
}

void declare(CLI::App& command, CacheFlags& flags) {
  constexpr const char* kGroup = "Cache";
  add(command, "--policy", flags.policy, "SPEC", "What the cache keeps; see the list below")
      ->capture_default_str()
      ->group(kGroup);
  add(command, "--budget", flags.budget, "N|N%|SIZE|full",
      "How much it keeps: entries per layer and head, a share of the prompt (25%), bytes (64MiB), or full")
      ->default_str(kDefaultBudget)
      ->group(kGroup);
  add_number(command, "--block", flags.block, "Prompt tokens between two evictions",
             number_from(1, "a whole number of tokens from 1 up"))
      ->group(kGroup);
  declare_decode_block(command, flags);
  add(command, "--kv-type", flags.kv_type, "TYPE", "How keys and values are stored: " + kv_type_list())
      ->capture_default_str()
      ->group(kGroup);
  add(command, "--cache-limit", flags.cache_limit, "SIZE",
      "Most memory the cache may take (default: what is free)")
      ->group(kGroup);
  add_number(command, "-t,--threads", flags.threads, "Threads; 0 = all cores",
             number_from(0, 512, "1 to 512 threads, or 0 for all cores"))
      ->group("Machine");
}

void declare(CLI::App& command, ProtectFlags& flags) {
  add(command, "--protect", flags.words, "system|FIRST:LAST",
      "Keep these tokens whatever their score, counted in the budget: the system message, or a range of "
      "positions, "
      "LAST not included; may be given several times")
      ->allow_extra_args(false)
      ->group("Cache");
}

void declare(CLI::App& command, TextFlags& flags) {
  constexpr const char* kGroup = "Generation";
  constexpr std::uint32_t kAnySeed = 0;
  add_number(command, "-n,--max-tokens", flags.max_tokens,
             "Most tokens to generate; -1 = until the model ends",
             number_from<std::int64_t>(-1, "a whole number from 0 up, or -1 for no limit"))
      ->group(kGroup);
  declare_sampling(command, flags.sampling, kGroup);
  add_number(command, "--seed", flags.sampling.seed,
             "Seed of the sampling; the same seed gives the same text",
             number_from(kAnySeed, "a whole number from 0 to 4294967295"))
      ->group(kGroup);
  add(command, "--stop", flags.stops, "TEXT",
      "Text that ends the output, not printed itself; \\n, \\t, \\xHH are read as escapes; may be given "
      "several "
      "times")
      ->allow_extra_args(false)
      ->group(kGroup);
  command.add_flag("--ignore-eos", flags.ignore_eos, "Go on when the model says it is done")->group(kGroup);
}

void declare(CLI::App& command, InputFlags& flags, std::string& prompt) {
  add(command, "-f,--file", flags.files, "FILE",
      "Text file of the prompt, - for standard input; may be given several times")
      ->allow_extra_args(false)
      ->group("Prompt");
  add(command, "-p,--prompt", prompt, "TEXT", "Text of the prompt; follows the files")->group("Prompt");
}

void declare_chat(CLI::App& command, TemplateFlags& flags) {
  auto* chat = command.add_flag("--chat", flags.chat, "Put the prompt into a chat template");
  auto* no_chat = command.add_flag("--no-chat", flags.no_chat, "Take the prompt as it is");
  chat->group("Conversation");
  no_chat->group("Conversation")->excludes(chat);
}

void declare(CLI::App& command, TemplateFlags& flags) {
  add(command, "--system", flags.system, "TEXT", "System message that precedes the conversation")
      ->group("Conversation");
  add(command, "--chat-template", flags.chat_template, "NAME|FILE",
      "Chat template: a built-in name such as chatml, or a file (default: the model's own)")
      ->group("Conversation");
}

void declare(CLI::App& command, TalkFlags& flags) {
  auto* quiet = command.add_flag("-q,--quiet", flags.quiet, "No progress bar, no summary");
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

Result<std::shared_ptr<const Model>> load_model(const ModelFlags& flags) {
  ModelOptions options;
  if (flags.gemm == "ggml") {
    options.gemm = Gemm::kGgml;
  } else if (flags.gemm == "native") {
    options.gemm = Gemm::kNative;
  } else if (flags.gemm == "bf16") {
    options.gemm = Gemm::kBf16;
  } else if (flags.gemm != "auto") {
    return invalid_argument("--gemm " + flags.gemm + " is not known; allowed: auto, ggml, native, bf16");
  }
  return Model::load(flags.path, options);
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

}  // namespace keynest::cli
