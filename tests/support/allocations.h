// How often the program asked for memory: every malloc and operator new, of whatever library.
#pragma once

#include <cstdint>
#include <cstdlib>  // __GLIBC__

#include "support/sanitized.h"

/// Only with glibc, and not under the sanitizers, which have an allocator of their own.
#if defined(__GLIBC__) && !KEYNEST_TEST_SANITIZED
#define KEYNEST_TEST_COUNTS_ALLOCATIONS 1
#else
#define KEYNEST_TEST_COUNTS_ALLOCATIONS 0
#endif

namespace keynest::test {

inline constexpr bool kAllocationsAreCounted = KEYNEST_TEST_COUNTS_ALLOCATIONS != 0;

/// By all threads since the program started.
std::int64_t allocations();

}  // namespace keynest::test
