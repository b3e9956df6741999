// What `keynest bench kernels` measures. A kernel is a list of cases in one file; its data is made when it is
// prepared.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace keynest::bench {

using Work = std::function<void()>;

struct KernelCase {
  std::string kernel;  ///< of kernel_names()
  std::string shape;
  double flops = 0, bytes = 0;    ///< of one run; 0: not what it is measured by
  std::function<Work()> prepare;  ///< makes the data; the work is run many times
  std::function<Work()> ggml;     ///< the same by ggml; empty: it has none
};

void add_attention_cases(std::vector<KernelCase>& cases);
void add_cache_cases(std::vector<KernelCase>& cases);

}  // namespace keynest::bench
