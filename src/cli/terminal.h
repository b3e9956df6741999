// Standard streams: terminals, whole reads and writes, the reader that went away.
#pragma once

#include <string>
#include <string_view>

#include "keynest/result.h"

namespace keynest::cli {

inline constexpr int kStandardInput = 0, kStandardOutput = 1, kStandardError = 2;

/// Occupies standard streams that the caller has closed, so that no other file gets their numbers; using them
/// stays an error.
void occupy_standard_streams();

bool is_terminal(int descriptor);

/// Columns of the terminal at standard error; 80 if it does not say.
int terminal_width();

/// The whole content of a file, or of standard input for "-". Errors: missing, a folder, unreadable,
/// kCancelled when Ctrl-C interrupts the reading.
Result<std::string> read_file(const std::string& path);

/// Standard output, unbuffered. A reader that has gone (`keynest run ... | head`) is no error: later writes
/// are dropped and `closed()` tells.
class Output {
 public:
  Status write(std::string_view bytes);

  /// The reader is gone. Looks at the pipe, so that a long prompt need not be finished for nobody.
  bool closed();

  /// The last byte written was no newline.
  bool mid_line() const { return mid_line_; }

 private:
  bool closed_ = false;
  bool mid_line_ = false;
};

}  // namespace keynest::cli
