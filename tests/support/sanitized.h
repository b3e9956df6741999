// Whether this is a build under a sanitizer that watches memory or threads: GCC defines a macro for each,
// clang answers __has_feature.
#pragma once

#if defined(__has_feature)
#define KEYNEST_TEST_HAS_FEATURE(feature) __has_feature(feature)
#else
#define KEYNEST_TEST_HAS_FEATURE(feature) 0
#endif

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || \
    KEYNEST_TEST_HAS_FEATURE(address_sanitizer) || KEYNEST_TEST_HAS_FEATURE(thread_sanitizer)
#define KEYNEST_TEST_SANITIZED 1
#else
#define KEYNEST_TEST_SANITIZED 0
#endif

namespace keynest::test {

inline constexpr bool kSanitized = KEYNEST_TEST_SANITIZED != 0;

}  // namespace keynest::test
