#include "cli/protect.h"

#include <algorithm>
#include <charconv>
#include <system_error>

#include "cli/prompt.h"

namespace keynest::cli {
namespace {

/// A whole number and nothing else, from 0 up.
bool read_position(std::string_view text, std::int32_t& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size() && value >= 0;
}

Result<PositionRange> parse_range(const std::string& word) {
  const std::size_t colon = word.find(':');
  std::int32_t first = 0, last = 0;
  const bool read = colon != std::string::npos &&
                    read_position(std::string_view(word).substr(0, colon), first) &&
                    read_position(std::string_view(word).substr(colon + 1), last);
  if (read && first < last) return PositionRange{Position{first}, Position{last}};
  return invalid_argument(
      "--protect " + word +
      " is not understood: give system, or FIRST:LAST, token positions counted from 0, LAST "
      "not included, such as 0:200");
}

std::string_view trimmed(std::string_view text) {
  constexpr const char* kSpace = " \t\r\n";
  const std::size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

/// Bytes of the rendered prompt up to the end of the system message; 0 when it is not there.
std::size_t system_end(const Model& model, const SystemPrompt& prompt) {
  const std::string_view content = trimmed(prompt.system);
  const std::size_t at = prompt.rendered.find(content);
  if (content.empty() || at == std::string_view::npos) return 0;
  // Most templates close the message; what they write for it alone tells how.
  const auto alone = model.apply_chat_template({{"system", prompt.system}}, false, prompt.chat_template);
  const bool closed = alone && prompt.rendered.starts_with(*alone) && alone->size() >= at + content.size();
  return closed ? alone->size() : at + content.size();
}

}  // namespace

Result<Protection> parse_protection(const std::vector<std::string>& words, bool has_system) {
  Protection protection;
  for (const std::string& word : words) {
    if (word == "system") {
      if (!has_system) {
        return invalid_argument(
            "--protect system protects the system message, but there is none; give one with "
            "--system TEXT");
      }
      protection.system = true;
      continue;
    }
    auto range = parse_range(word);
    if (!range) return range.error();
    protection.ranges.push_back(*range);
  }
  return protection;
}

Status protect_ranges(Session& session, const Protection& protection) {
  for (const PositionRange& range : protection.ranges) KEYNEST_TRY(session.protect(range));
  return {};
}

Result<PositionRange> system_range(const Model& model, const SystemPrompt& prompt) {
  const std::size_t end = system_end(model, prompt);
  if (end == 0) {
    return Error{ErrorCode::kUnsupported,
                 "--protect system: the chat template leaves the system message out; choose another with "
                 "--chat-template, such as chatml, or protect FIRST:LAST"};
  }
  const std::vector<Token> alone = prompt_tokens(model, prompt.rendered.substr(0, end));
  const auto [a, b] = std::mismatch(alone.begin(), alone.end(), prompt.tokens.begin(), prompt.tokens.end());
  auto count = static_cast<std::int32_t>(a - alone.begin());
  // The message's last token may be one with what follows.
  if (a != alone.end() && b != prompt.tokens.end()) ++count;
  return PositionRange{Position{0}, Position{count}};
}

Status protect_prompt(Session& session, const Model& model, const Protection& protection,
                      const SystemPrompt& prompt) {
  if (protection.system) {
    SystemPrompt complete = prompt;
    if (complete.chat_template.empty())
      complete.chat_template = fallback_template(model.info(), !model.chat_template().empty());
    const auto range = system_range(model, complete);
    if (!range) return range.error();
    KEYNEST_TRY(session.protect(*range));
  }
  return protect_ranges(session, protection);
}

}  // namespace keynest::cli
