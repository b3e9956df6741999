// The process's resident memory, as the system counts it.
#pragma once

#include <unistd.h>

#include <cstddef>
#include <fstream>

#include "support/sanitized.h"

namespace keynest::test {

/// False under the sanitizers, whose shadow memory counts as resident too.
inline constexpr bool kResidentIsTelling = !kSanitized;

inline std::size_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::size_t total = 0, resident = 0;
  statm >> total >> resident;
  return resident * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace keynest::test
