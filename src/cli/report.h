// What the program says on standard error, always as "keynest: ...".
#pragma once

#include <string_view>

#include "cli/commands.h"
#include "keynest/result.h"

namespace keynest::cli {

/// Prints the message and returns the exit code that fits: a value the user chose is usage (2), the rest
/// is 1.
int report(const Error& error);

/// Prints "keynest: warning: ...".
void warn(std::string_view message);

/// Prints "keynest: ..." (a remark, not an error).
void remark(std::string_view message);

}  // namespace keynest::cli
