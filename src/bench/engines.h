// The engines that are compared, each in a process of its own: keynest itself, and peers behind scripts that
// all speak the same way (docs/performance.md, "Peers").
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "bench/recorder.h"

namespace keynest::bench {

/// What every engine is given in one run.
struct Task {
  std::string model;        ///< GGUF file
  std::string prompt_file;  ///< text of the prompt
  std::int64_t tokens = 0;  ///< of the prompt, as asked for
  std::int64_t plain = 0;   ///< tokens a peer takes: what the text really has, without special ones
  int answer = 64;          ///< tokens generated
  int threads = 1;
  double limit_seconds = 3600;
};

/// What came out of one run; the fields of a run in the results.
struct Measured {
  Json figures = Json::object();
  std::string missing;  ///< not installed: why; there are no figures then
  std::string problem;  ///< failed: why
  bool ok() const { return missing.empty() && problem.empty(); }
};

using Stopped = std::function<bool()>;

/// keynest, as `keynest run --stats`.
struct KeynestEngine {
  std::string program;
  std::string policy;
  std::vector<std::string> flags;  ///< of the cache: --budget, --block, ...
};

/// Errors: kCancelled; what a run itself does wrong is in Measured.
Result<Measured> run_keynest(const KeynestEngine& engine, const Task& task, const Stopped& stopped);

/// `script` is the executable; `budget` (0: none given) the entries an engine with eviction keeps.
Result<Measured> run_peer(const std::string& script, std::int64_t budget, const Task& task,
                          const Stopped& stopped);

/// The last line of `text` that is a JSON object; null when there is none.
Json last_object(const std::string& text);

}  // namespace keynest::bench
