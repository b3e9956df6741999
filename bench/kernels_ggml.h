// ggml's attention on the data of the kernel benchmarks, for comparison.
#pragma once

#include <memory>

namespace keynest::bench {

/// One KV head of `keys` f16 entries, attended by the last `tokens` tokens of `group` query heads, on one
/// thread.
class GgmlAttention {
 public:
  GgmlAttention(int head_dim, int keys, int tokens, int group);
  ~GgmlAttention();
  void run();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace keynest::bench
