// ggml's operations on the data of the kernel benchmarks, for comparison.
#pragma once

#include <memory>

namespace keynest::bench {

/// One operation, ready to be computed again and again.
class GgmlOp {
 public:
  virtual ~GgmlOp() = default;
  virtual void run() = 0;
};

/// ggml_flash_attn_ext: KV heads of `keys` f16 entries, each attended by the last `tokens` tokens of `group`
/// query heads.
struct GgmlAttention {
  int head_dim, keys, tokens, group;
  int heads = 1;    ///< KV heads of one run
  int turns = 1;    ///< runs until the same heads come again
  int threads = 1;  ///< of a pool that is kept between the runs
};
std::unique_ptr<GgmlOp> ggml_attention(const GgmlAttention& shape);

}  // namespace keynest::bench
