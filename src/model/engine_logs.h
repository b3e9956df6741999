// Keeps ggml and libllama quiet, and turns what they would print, or abort on, into text for an error
// message.
#pragma once

#include <string>

namespace keynest {

/// Routes both libraries' logs to this module; the first call does it for the whole process.
void silence_engine_logs();

/// The last error line a library logged on this thread since the last call, or empty.
std::string take_engine_error();

}  // namespace keynest
