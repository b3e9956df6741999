// ggml's operations on the data of the kernel benchmarks, on one thread, for comparison.
#pragma once

#include <memory>

namespace keynest::bench {

/// One operation, ready to be computed again and again.
class GgmlOp {
 public:
  virtual ~GgmlOp() = default;
  virtual void run() = 0;
};

/// ggml_flash_attn_ext: one KV head of `keys` f16 entries, attended by the last `tokens` tokens of `group`
/// query heads.
std::unique_ptr<GgmlOp> ggml_attention(int head_dim, int keys, int tokens, int group);

}  // namespace keynest::bench
