// Engines beside each other, and keynest's memory with growing prompts; every run in a process of its own.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/engines.h"
#include "keynest/model.h"

namespace keynest::bench {

struct CompareOptions {
  std::function<Result<std::shared_ptr<const Model>>()> load_model;  ///< for its vocabulary
  std::string model_path;
  std::string text;  ///< of the prompts
  std::vector<std::int64_t> lengths;
  int rounds = 3, answer = 64, threads = 1;
  double limit_seconds = 3600;
  double peak_seconds = 0.1;
  std::vector<KeynestEngine> keynest;  ///< one a policy
  std::vector<std::string> peers;      ///< names of scripts
  std::string peer_folder;
  std::int64_t budget = 0;  ///< for peers that evict
};

/// Records part "compare": engines of a round take turns at every length. An engine that is not installed is
/// told about and recorded once, with why it is "missing"; one that fails is recorded with its "problem" and
/// not run again at that length or longer ones. Errors: those of load_model and the temporary folder,
/// kCancelled.
Status bench_compare(const CompareOptions& options, Recorder& recorder);

/// Records part "memory": the peaks of keynest at every length.
Status bench_memory(const CompareOptions& options, Recorder& recorder);

}  // namespace keynest::bench
