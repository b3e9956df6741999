#include "model/engine_guard.h"

#include <llama.h>

#include <cstdio>
#include <mutex>
#include <utility>

namespace keynest {
namespace {

thread_local std::string first_error;
thread_local int guards_here = 0;

std::mutex guard_mutex;
int guards_everywhere = 0;                        // under guard_mutex
ggml_abort_callback_t callback_before = nullptr;  // under guard_mutex

void keep_errors(ggml_log_level level, const char* text, void*) {
  if (level != GGML_LOG_LEVEL_ERROR || !first_error.empty()) return;
  first_error = text;
  while (!first_error.empty() && first_error.back() == '\n') first_error.pop_back();
}

/// The process ends when this returns: what aborts here is not ours.
void on_abort(const char* message) {
  if (guards_here > 0) throw EngineAbort(message);
  if (callback_before != nullptr) return callback_before(message);
  std::fprintf(stderr, "%s\n", message);
}

}  // namespace

void silence_engine_logs() {
  static std::once_flag once;
  std::call_once(once, [] { llama_log_set(keep_errors, nullptr); });  // sets ggml's as well
}

std::string take_engine_error() { return std::exchange(first_error, {}); }

AbortGuard::AbortGuard() {
  const std::lock_guard lock(guard_mutex);
  ++guards_here;
  if (guards_everywhere++ == 0) callback_before = ggml_set_abort_callback(on_abort);
}

AbortGuard::~AbortGuard() {
  const std::lock_guard lock(guard_mutex);
  --guards_here;
  if (--guards_everywhere == 0) ggml_set_abort_callback(callback_before);
}

}  // namespace keynest
