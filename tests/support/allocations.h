// How often the program asked for memory: every malloc and operator new, of whatever library.
#pragma once

#include <cstdint>

namespace keynest::test {

/// Only with glibc, and not under the sanitizers, which have an allocator of their own.
#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
inline constexpr bool kAllocationsAreCounted = true;
#else
inline constexpr bool kAllocationsAreCounted = false;
#endif

/// By all threads since the program started.
std::int64_t allocations();

}  // namespace keynest::test
