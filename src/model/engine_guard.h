// Keeps ggml and libllama quiet, and turns what they would print, or abort on, into text for an error
// message.
#pragma once

#include <ggml.h>

#include <stdexcept>
#include <string>

namespace keynest {

/// Routes both libraries' logs to this module; the first call does it for the whole process.
void silence_engine_logs();

/// The first error line a library logged on this thread since the last call, or empty. Later lines only
/// repeat that something failed.
std::string take_engine_error();

/// What a failed assertion of the libraries becomes under an AbortGuard.
struct EngineAbort : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// While one lives, a failed assertion of ggml or libllama on its thread throws EngineAbort instead of ending
/// the process. A second line of defence for reading files: what is known to be asserted is checked before.
/// Memory that the libraries held at that point is lost.
class AbortGuard {
 public:
  AbortGuard();
  ~AbortGuard();
  AbortGuard(const AbortGuard&) = delete;
  AbortGuard& operator=(const AbortGuard&) = delete;
};

}  // namespace keynest
