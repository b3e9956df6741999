// snapkv: entries that the last queries attend to, together with their neighbours.
// Li et al., "SnapKV: LLM Knows What You are Looking for Before Generation", section 4: mean attention of the
// last `window` queries, pooled along the positions of the older entries, averaged over the query group; the
// window stays. Tested against golden/reference.py (snapkv). In streaming the window reaches over block
// borders.
#include <algorithm>

#include "policy/registry.h"
#include "policy/scratch.h"

namespace keynest {
namespace {

// out[i] = mean (outside counts as 0, the divisor is always `kernel`) or maximum over the `kernel` values
// around i.
void pool(std::span<const float> values, int kernel, bool maximum, std::span<float> out) {
  const auto count = static_cast<std::ptrdiff_t>(values.size());
  for (std::ptrdiff_t i = 0; i < count; ++i) {
    const auto first = values.begin() + std::max<std::ptrdiff_t>(0, i - kernel / 2);
    const auto last = values.begin() + std::min<std::ptrdiff_t>(count, i + kernel / 2 + 1);
    float sum = 0;
    if (!maximum) {
      for (auto x = first; x != last; ++x) sum += *x;
    }
    out[static_cast<std::size_t>(i)] =
        maximum ? *std::max_element(first, last) : sum / static_cast<float>(kernel);
  }
}

class SnapKV final : public Policy {
 public:
  SnapKV(int window, int kernel, bool maximum, int group)
      : window_(window), kernel_(kernel), maximum_(maximum), members_(maximum ? group : 1) {}

  PolicyNeeds needs() const override {
    PolicyNeeds needs;
    needs.attention = AttentionNeed::kWindow;
    needs.window = window_;
    needs.per_query_head = maximum_;  // pooling by mean commutes with the mean over the group, by maximum not
    return needs;
  }
  std::int32_t recent_pins(std::int32_t) const override { return window_; }

  std::size_t scratch_bytes(std::int32_t rows) const override {
    const auto count = static_cast<std::size_t>(rows);
    return scratch_size<std::uint64_t>(count) + 2 * scratch_size<float>(count);
  }

  void score(const HeadView& head, std::span<float> scores) const override {
    Scratch scratch(head.scratch);
    const std::span<std::uint64_t> order =
        older_by_position(head, scratch.take<std::uint64_t>(scores.size()));
    const std::span<float> values = scratch.take<float>(scores.size()).first(order.size());
    const std::span<float> pooled = scratch.take<float>(scores.size()).first(order.size());
    std::fill(scores.begin(), scores.end(), 0.0f);  // the window's own entries are pinned
    for (int member = 0; member < members_; ++member) {
      const std::span<const float> attention =
          head.attention.subspan(static_cast<std::size_t>(member) * scores.size(), scores.size());
      for (std::size_t i = 0; i < order.size(); ++i) values[i] = attention[row_of(order[i])];
      pool(values, kernel_, maximum_, pooled);
      for (std::size_t i = 0; i < order.size(); ++i) {
        scores[row_of(order[i])] += pooled[i] / static_cast<float>(members_);
      }
    }
  }

 private:
  static std::size_t row_of(std::uint64_t key) { return key & 0xffffffffu; }

  // Entries before the window, as (position << 32 | row), ascending.
  std::span<std::uint64_t> older_by_position(const HeadView& head, std::span<std::uint64_t> room) const {
    std::size_t count = 0;
    std::uint64_t row = 0;
    for (int page = 0; page < head.rows.page_count(); ++page) {
      const Position* positions = head.rows.positions(page);
      for (int i = 0; i < head.rows.rows_in_page(page); ++i, ++row) {
        const std::int32_t position = to_int(positions[i]);
        if (position < head.seen - window_) room[count++] = static_cast<std::uint64_t>(position) << 32 | row;
      }
    }
    const std::span<std::uint64_t> order = room.first(count);
    if (!std::is_sorted(order.begin(), order.end())) std::sort(order.begin(), order.end());
    return order;
  }

  int window_, kernel_;
  bool maximum_;
  int members_;
};

}  // namespace

MethodRow snapkv_method() {
  MethodRow row;
  row.name = "snapkv";
  row.help = "entries the last queries attend to, smoothed over neighbours (SnapKV)";
  row.options = {
      {"window", OptionKind::kInteger, "64", "last queries that look, and positions that stay", {}, 1, 65536},
      {"kernel", OptionKind::kInteger, "5", "width of the smoothing", {}, 1, 1023, true},
      {"pool", OptionKind::kChoice, "mean", "how neighbours are smoothed", {"mean", "max"}}};
  row.make = [](const OptionValues& values, const PolicySpec&,
                const CacheShape& shape) -> std::unique_ptr<Policy> {
    return std::make_unique<SnapKV>(static_cast<int>(values.integer("window")),
                                    static_cast<int>(values.integer("kernel")), values.text("pool") == "max",
                                    shape.group);
  };
  return row;
}

}  // namespace keynest
