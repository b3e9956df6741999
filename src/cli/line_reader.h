// Lines of standard input, for the conversation.
#pragma once

#include <optional>
#include <string>

#include "keynest/result.h"

namespace keynest::cli {

class LineReader {
 public:
  explicit LineReader(int descriptor) : descriptor_(descriptor) {}

  /// The next line without its newline; nothing at the end. Errors: kCancelled on Ctrl-C, kIo.
  Result<std::optional<std::string>> next();

 private:
  Result<bool> fill();

  int descriptor_;
  std::string buffer_;
  bool ended_ = false;
};

/// Takes lines until one that does not end in a backslash; the backslash becomes a newline. `prompt` is
/// called before each line, with true for a continuation.
template <typename Prompt>
Result<std::optional<std::string>> read_message(LineReader& reader, Prompt prompt) {
  std::string message;
  for (bool more = false;; more = true) {
    prompt(more);
    auto line = reader.next();
    if (!line) return line.error();
    if (!*line) return more ? std::optional(message) : std::nullopt;
    message += **line;
    if (message.empty() || message.back() != '\\') return std::optional(message);
    message.back() = '\n';
  }
}

}  // namespace keynest::cli
