// h2o: entries that have received the most attention since they arrived (heavy hitters).
// Zhang et al., "H2O: Heavy-Hitter Oracle for Efficient Generative Inference of Large Language Models",
// section 4 and algorithm 1; recent=50% is the paper's split. Sums live in the pages, with the entries.
// norm=mean divides by the number of queries that could see the entry. Tested against golden/reference.py
// (h2o, h2o_sum, h2o_mean).
#include "policy/registry.h"

namespace keynest {
namespace {

class H2O final : public Policy {
 public:
  H2O(Amount recent, bool mean) : recent_(recent), mean_(mean) {}

  PolicyNeeds needs() const override {
    PolicyNeeds needs;
    needs.attention = AttentionNeed::kAccumulated;
    needs.row_state = 1;
    return needs;
  }
  std::int32_t recent_pins(std::int32_t budget) const override { return recent_.entries(budget); }

  void observe(const HeadView& head) const override {
    for (int page = 0, row = 0; page < head.rows.page_count(); ++page) {
      float* sums = head.rows.state(page, 0);
      for (int i = 0; i < head.rows.rows_in_page(page); ++i, ++row) {
        sums[i] += head.attention[static_cast<std::size_t>(row)];
      }
    }
  }

  void score(const HeadView& head, std::span<float> scores) const override {
    for (int page = 0, row = 0; page < head.rows.page_count(); ++page) {
      const float* sums = head.rows.state(page, 0);
      const Position* positions = head.rows.positions(page);
      for (int i = 0; i < head.rows.rows_in_page(page); ++i, ++row) {
        const auto queries = static_cast<float>(head.seen - to_int(positions[i]));
        scores[static_cast<std::size_t>(row)] = mean_ ? sums[i] / queries : sums[i];
      }
    }
  }

 private:
  Amount recent_;
  bool mean_;
};

}  // namespace

MethodRow h2o_method() {
  MethodRow row;
  row.name = "h2o";
  row.help = "entries that received the most attention since they arrived (H2O)";
  row.options = {
      {"recent", OptionKind::kAmount, "0", "most recent positions that stay; the paper reserves 50%", {}},
      {"norm",
       OptionKind::kChoice,
       "sum",
       "attention summed, or divided by the queries that saw the entry",
       {"sum", "mean"}}};
  row.make = [](const OptionValues& values, const PolicySpec&, const CacheShape&) -> std::unique_ptr<Policy> {
    return std::make_unique<H2O>(values.amount("recent"), values.text("norm") == "mean");
  };
  return row;
}

}  // namespace keynest
