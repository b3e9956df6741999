// snapkv: entries that the last queries attend to, together with their neighbours.
// Li et al., "SnapKV: LLM Knows What You are Looking for Before Generation", section 4: mean attention of the
// last `window` queries, pooled along the positions of the older entries, averaged over the query group; the
// window stays. Tested against golden/reference.py (snapkv). In streaming the window reaches over block
// borders.
#include <algorithm>
#include <array>
#include <numeric>

#include "policy/registry.h"
#include "policy/scratch.h"

namespace keynest {
namespace {

// out[i] = mean (outside counts as 0, the divisor is always `kernel`) or maximum over the `kernel` values
// around i. Neighbour by neighbour, which compilers vectorise.
void pool(std::span<const float> values, int kernel, bool maximum, std::span<float> out) {
  const auto count = static_cast<std::ptrdiff_t>(values.size());
  std::fill(out.begin(), out.end(), 0.0f);
  if (maximum) std::copy(values.begin(), values.end(), out.begin());
  for (std::ptrdiff_t offset = -(kernel / 2); offset <= kernel / 2; ++offset) {
    const float* in = values.data();
    float* of = out.data();
    const std::ptrdiff_t last = std::min(count, count - offset);
    for (std::ptrdiff_t i = std::max<std::ptrdiff_t>(0, -offset); i < last; ++i)
      of[i] = maximum ? std::max(of[i], in[i + offset]) : of[i] + in[i + offset];
  }
  if (maximum) return;
  for (float& x : out) x /= static_cast<float>(kernel);
}

// Entries as (position << 32 | row), ascending by position; positions are below `limit`. The result lies in
// one of the two spans, which are equally long.
std::span<std::uint64_t> sort_by_position(std::span<std::uint64_t> entries, std::span<std::uint64_t> room,
                                          std::int64_t limit) {
  constexpr int kDigit = 8;
  for (int shift = 0; limit >> shift > 0; shift += kDigit) {
    const auto digit = [=](std::uint64_t entry) { return entry >> (32 + shift) & ((1u << kDigit) - 1); };
    std::array<std::size_t, 1u << kDigit> next{};
    for (const std::uint64_t entry : entries) ++next[digit(entry)];
    std::exclusive_scan(next.begin(), next.end(), next.begin(), std::size_t{0});
    for (const std::uint64_t entry : entries) room[next[digit(entry)]++] = entry;
    std::swap(entries, room);
  }
  return entries;
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
    return 2 * scratch_size<std::uint64_t>(count) + 2 * scratch_size<float>(count);
  }

  void score(const HeadView& head, std::span<float> scores) const override {
    Scratch scratch(head.scratch);
    const std::span<std::uint64_t> found = scratch.take<std::uint64_t>(scores.size());
    const std::span<std::uint64_t> order =
        older_by_position(head, found, scratch.take<std::uint64_t>(scores.size()));
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
  std::span<std::uint64_t> older_by_position(const HeadView& head, std::span<std::uint64_t> found,
                                             std::span<std::uint64_t> room) const {
    std::size_t count = 0;
    std::uint64_t row = 0;
    for (int page = 0; page < head.rows.page_count(); ++page) {
      const Position* positions = head.rows.positions(page);
      for (int i = 0; i < head.rows.rows_in_page(page); ++i, ++row) {
        const std::int32_t position = to_int(positions[i]);
        found[count] = static_cast<std::uint64_t>(position) << 32 | row;
        count += position < head.seen - window_;
      }
    }
    return sort_by_position(found.first(count), room.first(count), head.seen);
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
