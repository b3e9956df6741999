// Speed of the model inside this process: after how long the first token comes, and tokens per second at
// growing depths.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bench/recorder.h"
#include "keynest/session.h"

namespace keynest::bench {

/// What is run, for every session option given one after the other.
struct SessionBench {
  std::shared_ptr<const Model> model;
  std::string text;                      ///< of the prompts
  std::vector<SessionOptions> sessions;  ///< policies, and blocks
  std::vector<std::int64_t> lengths;     ///< tokens of the prompts, or depths; ascending
  int rounds = 3;
  int tokens = 512;  ///< measured at every depth
  double peak_seconds = 0.1;
};

/// Records part "prefill": speed of `tokens` prompt tokens after `lengths` tokens of context.
Status bench_prefill(const SessionBench& bench, Recorder& recorder);

/// Records part "decode": speed of `tokens` generated tokens after `lengths` tokens of context.
Status bench_decode(const SessionBench& bench, Recorder& recorder);

/// Records part "policies": time to first token of prompts of `lengths` tokens.
Status bench_policies(const SessionBench& bench, Recorder& recorder);

}  // namespace keynest::bench
