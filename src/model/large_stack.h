// Room for code that recurses once per character: libllama splits some vocabularies' texts with std::regex.
#pragma once

#include <functional>

namespace keynest {

/// Runs `work`, which must not throw, on a stack of 256 MiB (reserved, used only as far as it is touched) and
/// waits for it; on the caller's own stack where the system refuses.
void run_on_large_stack(const std::function<void()>& work);

}  // namespace keynest
