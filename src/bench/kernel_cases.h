// What `keynest bench kernels` measures. A kernel is a list of cases in one file; its data is made when it is
// prepared.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "bench/peak.h"
#include "bench/team.h"
#include "keynest/types.h"

namespace keynest::bench {

using Work = std::function<void()>;

struct KernelCase {
  std::string kernel;  ///< of kernel_names()
  std::string shape;
  double flops = 0, bytes = 0;              ///< of one run; 0: not what it is measured by
  std::function<Work(Team&)> prepare = {};  ///< makes the data; the work is run many times
  std::function<Work()> ggml = {};          ///< the same by ggml; empty: it has none
  int threads = 1;
  Source source = Source::kCache;  ///< of the bytes
  bool reads = false;              ///< the bytes are read and none written
};

/// What is read in turn where it is to come from memory: twice what the last cache of most machines holds.
inline constexpr double kTurnBytes = 64.0 * 1024 * 1024;

/// As --kv-type has them.
const char* type_text(KvType type);

/// For the end of a shape: where the bytes come from, and threads if there are several.
std::string source_text(Source source, int threads);

/// `threads`: how many those cases have that have several; 1: there are none.
void add_attention_cases(std::vector<KernelCase>& cases);
void add_decode_cases(std::vector<KernelCase>& cases, int threads);
void add_cache_cases(std::vector<KernelCase>& cases, int threads);

}  // namespace keynest::bench
