// Compiled with each compiler and sanitizer by run.cmake, which says what to expect.
#include "support/allocations.h"
#include "support/resident.h"

static_assert(keynest::test::kSanitized == SANITIZED);
static_assert(!keynest::test::kAllocationsAreCounted || !SANITIZED);
static_assert(keynest::test::kResidentIsTelling != SANITIZED);
