#include "model/engine_logs.h"

#include <ggml.h>
#include <llama.h>

#include <mutex>
#include <utility>

namespace keynest {
namespace {

thread_local std::string last_error;

void keep_errors(ggml_log_level level, const char* text, void*) {
  if (level != GGML_LOG_LEVEL_ERROR) return;
  last_error = text;
  while (!last_error.empty() && last_error.back() == '\n') last_error.pop_back();
}

}  // namespace

void silence_engine_logs() {
  static std::once_flag once;
  std::call_once(once, [] { llama_log_set(keep_errors, nullptr); });  // sets ggml's as well
}

std::string take_engine_error() { return std::exchange(last_error, {}); }

}  // namespace keynest
