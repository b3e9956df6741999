// A file that is either written whole or not at all.
#pragma once

#include <string>
#include <string_view>

#include "keynest/result.h"

namespace keynest::cli {

/// Tells before the work whether `path` can be written, and leaves nothing behind. "-" (standard error)
/// always can.
Status check_writable(const std::string& path);

/// Writes beside the file and renames over it; a path that is no ordinary file (a device, a pipe) is written
/// directly, "-" goes to standard error.
Status write_whole_file(const std::string& path, std::string_view content);

}  // namespace keynest::cli
