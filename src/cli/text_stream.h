// Generated text on its way to the reader: bytes go out unchanged, but an unfinished UTF-8 character and
// anything that may still turn out to be a stop string wait until the next piece tells.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "keynest/result.h"

namespace keynest::cli {

/// How many bytes at the end of `text` begin a UTF-8 character that is not complete. Bytes that can never
/// become one count as complete: they are passed on as they are.
std::size_t incomplete_utf8_tail(std::string_view text);

/// The text of a flag with its escapes read: \n \r \t \0 \e \\ \" \' and \xHH. Errors: any other escape.
Result<std::string> unescape(std::string_view text);

class TextStream {
 public:
  /// `stops`: texts that end the output, none of them empty.
  explicit TextStream(std::vector<std::string> stops) : stops_(std::move(stops)) {}

  /// Takes the next bytes, returns those that may be shown now. The text ends just before the stop string
  /// that is complete first; after that everything is swallowed.
  std::string push(std::string_view bytes);

  /// At the end of the text: what was held back.
  std::string finish();

  /// A stop string was met.
  bool stopped() const { return stopped_; }

 private:
  std::size_t held_for_stops() const;

  std::vector<std::string> stops_;
  std::string held_;
  bool stopped_ = false;
};

}  // namespace keynest::cli
