// Flags that several commands share: how they are declared and what they become in the library's words.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "keynest/session.h"

namespace CLI {  // NOLINT(readability-identifier-naming): the name of CLI11
class App;
}

namespace keynest::cli {

inline constexpr const char* kDefaultBudget = "2048";

struct ModelFlags {
  std::string path;
  std::string gemm = "auto";
};

struct InputFlags {
  std::vector<std::string> files;     ///< "-" is standard input
  std::optional<std::string> prompt;  ///< follows the files
};

struct CacheFlags {
  std::string policy = "nestedkv";
  std::string budget;  ///< empty: kDefaultBudget, or full with the policy `full`
  std::string kv_type = "f16";
  std::string cache_limit;
  std::int32_t block = 128;
  std::int32_t decode_block = 0;
  int threads = 0;
};

struct ProtectFlags {
  std::vector<std::string> words;  ///< see cli/protect.h
};

struct TextFlags {
  SamplingOptions sampling;
  std::int64_t max_tokens = 512;
  std::vector<std::string> stops;
  bool ignore_eos = false;
};

struct TemplateFlags {
  bool chat = false, no_chat = false;
  std::string system;
  std::string chat_template;
};

struct TalkFlags {
  bool quiet = false, verbose = false;
};

void declare(CLI::App& command, ModelFlags& flags);
void declare(CLI::App& command, CacheFlags& flags);

/// --decode-block alone, which the one above declares too.
void declare_decode_block(CLI::App& command, CacheFlags& flags);

void declare(CLI::App& command, ProtectFlags& flags);
void declare(CLI::App& command, TextFlags& flags);
void declare(CLI::App& command, TalkFlags& flags);

/// --system and --chat-template.
void declare(CLI::App& command, TemplateFlags& flags);

/// --chat and --no-chat.
void declare_chat(CLI::App& command, TemplateFlags& flags);

/// -f and -p. `prompt` takes the text of -p; whether it was given the command knows when it is called.
void declare(CLI::App& command, InputFlags& flags, std::string& prompt);

/// The policies and budgets, for the end of a help text.
std::string policy_footer();

/// Errors: an unknown --gemm (kInvalidArgument), and those of Model::load.
Result<std::shared_ptr<const Model>> load_model(const ModelFlags& flags);

/// Errors (kInvalidArgument): a policy, budget, size or KV type that does not parse.
Result<SessionOptions> session_options(const CacheFlags& flags);

/// Errors (kInvalidArgument): an empty stop string, an unknown escape.
Result<std::vector<std::string>> stop_strings(const TextFlags& flags);

}  // namespace keynest::cli
