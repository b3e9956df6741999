// tova: entries the newest query attends to.
// Oren et al., "Transformers are Multi-State RNNs" (TOVA), section 4: attention of the last token, averaged
// over all heads, one kept set for all heads of the layer (group=layer), or averaged within each query group
// (group=head). The newest position itself stays. Tested against golden/reference.py (tova).
#include <algorithm>

#include "policy/registry.h"

namespace keynest {
namespace {

class Tova final : public Policy {
 public:
  explicit Tova(bool whole_layer) : whole_layer_(whole_layer) {}

  PolicyNeeds needs() const override {
    PolicyNeeds needs;
    needs.attention = AttentionNeed::kLastQuery;
    needs.whole_layer = whole_layer_;
    return needs;
  }
  std::int32_t recent_pins(std::int32_t) const override { return 1; }

  void score(const HeadView& head, std::span<float> scores) const override {
    std::copy(head.attention.begin(), head.attention.end(), scores.begin());
  }

 private:
  bool whole_layer_;
};

// The default is one set per layer, unless heads compete for entries.
std::unique_ptr<Policy> make_tova(const OptionValues& values, const PolicySpec& spec, const CacheShape&) {
  const bool per_head = values.text("group") == "head" || spec.heads == HeadAllocation::kAdaptive;
  return std::make_unique<Tova>(!per_head);
}

Status check_tova(const OptionValues& values, const PolicySpec& spec) {
  if (values.text("group") != "layer" || spec.heads == HeadAllocation::kUniform) return {};
  return invalid_argument(
      "policy option group=layer keeps one set for all heads, heads=adaptive different ones; "
      "leave one of them out, or use group=head");
}

}  // namespace

MethodRow tova_method() {
  MethodRow row;
  row.name = "tova";
  row.help = "entries the newest query attends to (TOVA)";
  row.options = {
      {"group",
       OptionKind::kChoice,
       "",
       "attention averaged over all query heads of the layer (default) or of one KV head (default with "
       "heads=adaptive)",
       {"layer", "head"}}};
  row.make = make_tova;
  row.check = check_tova;
  return row;
}

}  // namespace keynest
