// --protect: which tokens of the prompt are kept whatever their score.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/flags.h"
#include "keynest/model.h"
#include "keynest/result.h"
#include "keynest/session.h"

namespace keynest::cli {

/// What the flags ask for.
struct Protection {
  bool system = false;  ///< the rendered system message
  std::vector<PositionRange> ranges;
};

/// Errors (kInvalidArgument): neither "system" nor FIRST:LAST; "system" without a system message.
Result<Protection> parse_protection(const std::vector<std::string>& words, bool has_system);

/// Hands the ranges to the session. Errors as Session::protect.
Status protect_ranges(Session& session, const Protection& protection);

/// A prompt that begins with a system message.
struct SystemPrompt {
  std::string system;         ///< as given
  std::string chat_template;  ///< for Model::apply_chat_template; empty: the one that fallback_template gives
  std::string_view rendered;
  std::span<const Token> tokens;  ///< of `rendered`
};

/// The tokens from the start of the prompt to the end of its system message, as the template ends it. Errors:
/// the template leaves the message out.
Result<PositionRange> system_range(const Model& model, const SystemPrompt& prompt);

/// Protects what the flags ask for, before the prompt is processed. Errors as system_range and
/// protect_ranges.
Status protect_prompt(Session& session, const Model& model, const Protection& protection,
                      const SystemPrompt& prompt);

}  // namespace keynest::cli
