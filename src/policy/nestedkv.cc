// nestedkv: keys that differ from what is usual at any of three time scales are kept.
// "NestedKV" (arXiv 2605.26678), section 3: the stable anchor is the mean unit key of everything seen, the
// episodic one that of the entry's episode (b tokens), the current one that of the last 64 tokens up to the
// entry.
//
// Departure: the published method sees the whole prompt at once. Here anchors are running sums, so that
// blocks can be evicted as they come: a stream bounded by N + B gives the published scores when nothing was
// evicted before, with the anchors of evicted tokens remembered otherwise. Tested against golden/reference.py
// (nestedkv, StreamNestedKV).
#include "policy/nestedkv.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/double_vectors.h"
#include "kernels/key_distances.h"
#include "policy/registry.h"

namespace keynest {
namespace {

constexpr std::int32_t kWindow = 64;        // tokens of the current scale, the entry included
constexpr std::size_t kRing = kWindow - 1;  // unit keys remembered for it
constexpr int kEpisodicState = 0, kCurrentState = 1;

// The paper's block length, 128 where the prompt's length is unknown.
std::int32_t episode_length(std::int32_t announced) { return std::clamp(announced / 32, 128, 256); }

// 1 - cos of a unit key (or a zero one) and the mean of `count` others, of which `sum` is the sum.
double distance(std::span<const double> unit, std::span<const double> sum, std::int32_t count) {
  const DotProducts dots = dot_products(unit.data(), sum.data(), unit.size());
  const double anchor_norm = std::max(std::sqrt(dots.yy) / count, 1e-8);
  return 1.0 - dots.xy / count / (std::max(std::sqrt(dots.xx), 1e-8) * anchor_norm);
}

void add(std::span<double> sum, std::span<const double> x) { add_doubles(x.data(), sum.size(), sum.data()); }

void divide(std::span<const double> sum, std::int32_t count, std::span<double> mean) {
  scale_doubles(sum.data(), 1.0 / count, sum.size(), mean.data());
}

void set_state(const HeadRows& rows, Row row, int index, double value) {
  rows.state(to_int(row) / kPageRows, index)[to_int(row) % kPageRows] = static_cast<float>(value);
}

// Calls set(row, distance from the anchor) for the entries with positions in [first, last).
template <typename Set>
void for_distances(const HeadRows& rows, std::int32_t first, std::int32_t last,
                   std::span<const double> anchor, Set set) {
  std::array<double, kPageRows> distances;
  for (int page = 0; page < rows.page_count(); ++page) {
    const Position* positions = rows.positions(page);
    const int count = rows.rows_in_page(page);
    const auto inside = [=](Position p) { return to_int(p) >= first && to_int(p) < last; };
    if (std::none_of(positions, positions + count, inside)) continue;
    key_distances_of_page(rows, page, anchor.data(), distances.data());
    for (int i = 0; i < count; ++i) {
      if (inside(positions[i])) set(Row{page * kPageRows + i}, distances[static_cast<std::size_t>(i)]);
    }
  }
}

}  // namespace

struct NestedKV::State {
  State(std::span<double> all, std::size_t dim)
      : episode(all[0]),
        seen_sum(all.subspan(1, dim)),
        episode_sum(all.subspan(1 + dim, dim)),
        ring(all.subspan(1 + 2 * dim)) {}

  static std::size_t size(std::size_t dim) { return 1 + (2 + kRing) * dim; }
  std::int32_t length() const { return static_cast<std::int32_t>(episode); }
  std::span<double> remembered(std::int32_t position) const {
    return ring.subspan(static_cast<std::size_t>(position) % kRing * seen_sum.size(), seen_sum.size());
  }

  double& episode;  // tokens per episode, fixed by the first block
  std::span<double> seen_sum, episode_sum, ring;
};

struct NestedKV::Room {
  Room(std::byte* scratch, std::size_t dim) {
    Scratch s(scratch);
    units = s.take<double>(kUnits * dim);
    for (auto* x : {&anchor, &window_sum}) *x = s.take<double>(dim);
  }
  static std::size_t bytes(std::size_t dim) {
    return scratch_size<double>(kUnits * dim) + 2 * scratch_size<double>(dim);
  }

  static constexpr std::int32_t kUnits = 32;  // unit keys read together
  std::span<double> units, anchor, window_sum;
};

PolicyNeeds NestedKV::needs() const {
  PolicyNeeds needs;
  needs.row_state = 2;
  needs.head_state = static_cast<int>(State::size(head_dim_));
  return needs;
}

std::size_t NestedKV::scratch_bytes(std::int32_t rows) const {
  return nested_vectors_bytes(static_cast<std::size_t>(rows)) + Room::bytes(head_dim_);
}

void NestedKV::observe(const HeadView& head) const {
  State state(head.state, head_dim_);
  Room room(head.scratch, head_dim_);
  const std::int32_t first = head.seen - head.appended;
  if (state.episode == 0) state.episode = episode_ > 0 ? episode_ : episode_length(head.announced);
  std::fill(room.window_sum.begin(), room.window_sum.end(), 0.0);
  for (std::int32_t p = std::max(0, first - static_cast<std::int32_t>(kRing)); p < first; ++p) {
    add(room.window_sum, state.remembered(p));
  }
  for (std::int32_t done = 0; done < head.appended; done += Room::kUnits) {
    const std::int32_t count = std::min(head.appended - done, Room::kUnits);
    read_unit_keys(head.rows, Row{head.rows.rows - head.appended + done}, count, room.units.data());
    for (std::int32_t i = done; i < done + count; ++i) {
      const std::size_t at = static_cast<std::size_t>(i - done) * head_dim_;
      arrive(head, state, room, first + i, Row{head.rows.rows - head.appended + i},
             room.units.subspan(at, head_dim_));
    }
  }
}

void NestedKV::arrive(const HeadView& head, State& state, Room& room, std::int32_t position, Row row,
                      std::span<const double> unit) const {
  add(state.seen_sum, unit);
  if (position % state.length() == 0) std::fill(state.episode_sum.begin(), state.episode_sum.end(), 0.0);
  add(state.episode_sum, unit);

  add(room.window_sum, unit);
  set_state(head.rows, row, kCurrentState, distance(unit, room.window_sum, std::min(position + 1, kWindow)));
  const std::span<double> oldest = state.remembered(position);  // position - 63 leaves the window
  if (position >= static_cast<std::int32_t>(kRing)) {
    subtract_doubles(oldest.data(), head_dim_, room.window_sum.data());
  }
  std::copy(unit.begin(), unit.end(), oldest.begin());
  if ((position + 1) % state.length() == 0) close_episode(head, state, room, position / state.length());
}

// The episode is complete: its entries that are still there get their final distance.
void NestedKV::close_episode(const HeadView& head, const State& state, Room& room,
                             std::int32_t episode) const {
  divide(state.episode_sum, state.length(), room.anchor);
  const std::int32_t start = episode * state.length();
  for_distances(head.rows, start, start + state.length(), room.anchor,
                [&](Row row, double distance) { set_state(head.rows, row, kEpisodicState, distance); });
}

NestedVectors NestedKV::vectors(const HeadView& head) const {
  const State state(head.state, head_dim_);
  Room room(head.scratch, head_dim_);
  Scratch scratch(head.scratch + Room::bytes(head_dim_));
  NestedVectors v = take_nested_vectors(scratch, static_cast<std::size_t>(head.rows.rows));
  divide(state.seen_sum, head.seen, room.anchor);
  key_distances(head.rows, room.anchor.data(), v.anomaly[kStable].data());
  for (int page = 0; page < head.rows.page_count(); ++page) {
    const auto at = static_cast<std::ptrdiff_t>(page) * kPageRows;
    const int count = head.rows.rows_in_page(page);
    std::copy_n(head.rows.state(page, kEpisodicState), count, v.anomaly[kEpisodic].begin() + at);
    std::copy_n(head.rows.state(page, kCurrentState), count, v.anomaly[kCurrent].begin() + at);
  }
  const std::int32_t open = head.seen / state.length() * state.length();  // the episode still running
  if (open < head.seen) {
    divide(state.episode_sum, head.seen - open, room.anchor);
    for_distances(head.rows, open, head.seen, room.anchor, [&](Row row, double distance) {
      v.anomaly[kEpisodic][static_cast<std::size_t>(to_int(row))] = distance;
    });
  }
  nested_combine(options_, v);
  return v;
}

void NestedKV::score(const HeadView& head, std::span<float> scores) const {
  const NestedVectors v = vectors(head);
  for (std::size_t i = 0; i < scores.size(); ++i) scores[i] = static_cast<float>(v.final[i]);
}

namespace {

std::unique_ptr<Policy> make_nestedkv(const OptionValues& values, const PolicySpec&,
                                      const CacheShape& shape) {
  NestedOptions options;
  options.scales = {values.has("scales", "stable"), values.has("scales", "episodic"),
                    values.has("scales", "current")};
  options.adaptive = values.text("blend") == "adaptive";
  options.surprise = values.on("surprise");
  return std::make_unique<NestedKV>(options, static_cast<std::int32_t>(values.integer("first")),
                                    static_cast<std::int32_t>(values.integer("episode")), shape.head_dim);
}

}  // namespace

MethodRow nestedkv_method() {
  MethodRow row;
  row.name = "nestedkv";
  row.help = "keys unusual at any of three time scales (NestedKV)";
  row.options = {
      {"scales",
       OptionKind::kSubset,
       "stable+episodic+current",
       "which anchors count",
       {"stable", "episodic", "current"}},
      {"blend",
       OptionKind::kChoice,
       "adaptive",
       "weights of the scales: per head from their spread, or the prior",
       {"adaptive", "prior"}},
      {"surprise", OptionKind::kChoice, "on", "raise entries on which the scales disagree", {"on", "off"}},
      {"episode",
       OptionKind::kInteger,
       "",
       "tokens per episode (default: a 32nd of the prompt, within 128 to 256)",
       {},
       1,
       2147483647.0},
      {"first", OptionKind::kInteger, "4", "first positions that stay", {}, 0, 2147483647.0}};
  row.make = make_nestedkv;
  row.heads = HeadAllocation::kAdaptive;
  return row;
}

}  // namespace keynest
