// From what the user gave to the tokens of a prompt.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/flags.h"
#include "keynest/model.h"
#include "keynest/result.h"

namespace keynest::cli {

/// The parts one after the other, bytes unchanged; a newline goes between two parts when the first lacks one.
std::string join_parts(const std::vector<std::string>& parts);

/// Files, then the prompt text; standard input when neither is given. Errors: unreadable files, standard
/// input named twice, nothing at all in it.
Result<std::string> read_input(const InputFlags& input);

/// The text of --chat-template: a file's content, else the name itself. Errors: a path that is not there.
Result<std::string> resolve_template(const std::string& name_or_file);

/// Whether the prompt is put into a chat template: as --chat/--no-chat say; else yes when --chat-template or
/// --system is given, the model file has a template, or its name says it was trained to chat.
bool wants_chat(const TemplateFlags& flags, const ModelInfo& info, bool has_template);

/// The template for `Model::apply_chat_template`: the given one; else, for a file without any, the built-in
/// one of its family. Empty: the model's own.
std::string fallback_template(const ModelInfo& info, bool has_template);

/// Errors (kInvalidArgument): --system or --chat-template together with --no-chat.
Status check_chat(const TemplateFlags& flags);

/// The prompt as the model sees it, in a chat template where one is wanted. `chat_template`: from
/// resolve_template. Errors: unknown template.
Result<std::string> render_prompt(const Model& model, const TemplateFlags& flags,
                                  const std::string& chat_template, const std::string& text, bool verbose);

/// Tokens of a whole prompt: begins with the vocabulary's start token if it asks for one, once, even when the
/// template has written it too.
std::vector<Token> prompt_tokens(const Model& model, std::string_view text);

}  // namespace keynest::cli
