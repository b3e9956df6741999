// sink: the first positions (attention sinks) and the most recent ones.
// Xiao et al., "Efficient Streaming Language Models with Attention Sinks" (StreamingLLM), section 3.2. Here
// keys keep their true positions; tested against golden/reference.py (streaming_llm).
#include "policy/registry.h"

namespace keynest {
namespace {

class Sink final : public Policy {
 public:
  explicit Sink(std::int32_t first) : first_(first) {}

  PolicyNeeds needs() const override { return {}; }
  std::int32_t first_pins() const override { return first_; }

  // Newer is better; float counts exactly up to 2^24, beyond that neighbours tie.
  void score(const HeadView& head, std::span<float> scores) const override {
    for (int page = 0, row = 0; page < head.rows.page_count(); ++page) {
      const Position* positions = head.rows.positions(page);
      for (int i = 0; i < head.rows.rows_in_page(page); ++i, ++row) {
        scores[static_cast<std::size_t>(row)] = static_cast<float>(to_int(positions[i]) - head.seen);
      }
    }
  }

 private:
  std::int32_t first_;
};

}  // namespace

MethodRow sink_method() {
  MethodRow row;
  row.name = "sink";
  row.help = "the first and the most recent positions (StreamingLLM)";
  row.options = {{"first", OptionKind::kInteger, "4", "first positions that stay", {}, 0, 2147483647.0}};
  row.make = [](const OptionValues& values, const PolicySpec&, const CacheShape&) -> std::unique_ptr<Policy> {
    return std::make_unique<Sink>(static_cast<std::int32_t>(values.integer("first")));
  };
  return row;
}

}  // namespace keynest
