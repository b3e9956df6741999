// knorm: entries whose key is short are kept (-|k|); a control.
// Devoto et al., "A Simple and Effective L2 Norm-Based Strategy for KV Cache Compression", section 3; tested
// against golden/reference.py (knorm).
#include "kernels/key_scores.h"
#include "policy/registry.h"

namespace keynest {
namespace {

class KeyNorm final : public Policy {
 public:
  PolicyNeeds needs() const override { return {}; }

  void score(const HeadView& head, std::span<float> scores) const override {
    norm_keys(head.rows, scores.data());
    for (float& score : scores) score = -score;
  }
};

}  // namespace

MethodRow knorm_method() {
  MethodRow row;
  row.name = "knorm";
  row.help = "keys with a small norm; a control";
  row.make = [](const OptionValues&, const PolicySpec&, const CacheShape&) -> std::unique_ptr<Policy> {
    return std::make_unique<KeyNorm>();
  };
  return row;
}

}  // namespace keynest
