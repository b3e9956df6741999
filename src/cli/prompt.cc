#include "cli/prompt.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <system_error>

#include "cli/report.h"
#include "cli/terminal.h"

namespace keynest::cli {
namespace {

/// The name cut into lower-case words at everything that is no letter.
std::vector<std::string> words(std::string_view name) {
  std::vector<std::string> out(1);
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalpha(byte) != 0) {
      out.back() += static_cast<char>(std::tolower(byte));
    } else if (!out.back().empty()) {
      out.emplace_back();
    }
  }
  return out;
}

bool named_for_chat(const ModelInfo& info) {
  const std::string file = std::filesystem::path(info.path).filename().string();
  for (const std::string& word : words(info.name + " " + file)) {
    if (word == "instruct" || word == "chat" || word == "it") return true;
  }
  return false;
}

Result<std::vector<std::string>> read_parts(const InputFlags& input) {
  std::vector<std::string> files = input.files;
  if (files.empty() && !input.prompt) files.emplace_back("-");
  const auto inputs = std::count(files.begin(), files.end(), "-");
  if (inputs > 1) return invalid_argument("standard input can be read once only; give -f - once");
  if (inputs == 1 && is_terminal(kStandardInput)) {
    remark("reading the prompt from the terminal; end it with Ctrl-D");
  }
  std::vector<std::string> parts;
  for (const std::string& file : files) {
    auto text = read_file(file);
    if (!text) return text.error();
    parts.push_back(std::move(*text));
  }
  if (input.prompt) parts.push_back(*input.prompt);
  return parts;
}

}  // namespace

std::string join_parts(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) {
    if (!text.empty() && text.back() != '\n' && !part.empty()) text += '\n';
    text += part;
  }
  return text;
}

Result<std::string> read_input(const InputFlags& input) {
  auto parts = read_parts(input);
  if (!parts) return parts.error();
  std::string text = join_parts(*parts);
  if (text.empty()) {
    return invalid_argument("the prompt is empty; give text with -p TEXT, -f FILE or on standard input");
  }
  return text;
}

Result<std::string> resolve_template(const std::string& name_or_file) {
  std::error_code ignored;
  if (name_or_file.empty()) return std::string();
  if (std::filesystem::exists(name_or_file, ignored)) {
    auto text = read_file(name_or_file);
    if (text && text->empty())
      return invalid_argument("--chat-template " + name_or_file + ": the file is empty");
    return text;
  }
  const bool is_text = name_or_file.find('{') != std::string::npos;
  if (!is_text && name_or_file.find_first_of("/.") != std::string::npos) {
    return Error{ErrorCode::kIo, "--chat-template " + name_or_file + ": there is no such file"};
  }
  return name_or_file;
}

bool wants_chat(const TemplateFlags& flags, const ModelInfo& info, bool has_template) {
  if (flags.chat || flags.no_chat) return flags.chat;
  return has_template || !flags.chat_template.empty() || !flags.system.empty() || named_for_chat(info);
}

std::string fallback_template(const ModelInfo& info, bool has_template) {
  if (has_template) return {};
  return info.architecture.rfind("gemma", 0) == 0 ? "gemma" : "chatml";
}

Status check_chat(const TemplateFlags& flags) {
  if (flags.no_chat && !(flags.system.empty() && flags.chat_template.empty())) {
    return invalid_argument("--system and --chat-template need a chat template; leave out --no-chat");
  }
  return {};
}

Result<std::string> render_prompt(const Model& model, const TemplateFlags& flags,
                                  const std::string& chat_template, const std::string& text, bool verbose) {
  const bool has_template = !model.chat_template().empty();
  const bool chat = wants_chat(flags, model.info(), has_template);
  if (verbose) remark(chat ? "prompt in a chat template" : "prompt as plain text");
  if (!chat) return text;
  std::vector<ChatMessage> messages;
  if (!flags.system.empty()) messages.push_back({"system", flags.system});
  messages.push_back({"user", text});
  return model.apply_chat_template(
      messages, true, !chat_template.empty() ? chat_template : fallback_template(model.info(), has_template));
}

std::vector<Token> prompt_tokens(const Model& model, std::string_view text) {
  std::vector<Token> tokens = model.tokenize(text, true, true);
  const std::vector<Token> start = model.tokenize({}, true, true);
  const bool doubled = tokens.size() >= 2 && !start.empty() && tokens[0] == start[0] && tokens[1] == start[0];
  if (doubled) tokens.erase(tokens.begin());
  return tokens;
}

}  // namespace keynest::cli
