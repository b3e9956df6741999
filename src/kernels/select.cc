// Scores become integers, the best the smallest, and the k-th smallest is found by bisection: every step is
// one pass of comparisons without a branch, and there are at most 32, fewer when scores differ.
#include "kernels/select.h"

#include "kernels/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/select.cc"
#include <algorithm>
#include <cstddef>
#include <limits>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

// Names used by all targets and the code below them.
#ifndef KEYNEST_KERNELS_SELECT_ONCE
#define KEYNEST_KERNELS_SELECT_ONCE
namespace keynest {
namespace {

/// Keys lie in whole vectors of any target.
constexpr std::size_t kKeyBlock = 16;
constexpr std::int32_t kChosen = std::numeric_limits<std::int32_t>::min();   // below the key of any score
constexpr std::int32_t kNoEntry = std::numeric_limits<std::int32_t>::max();  // above it

}  // namespace
}  // namespace keynest
#endif

HWY_BEFORE_NAMESPACE();
namespace keynest {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

using KeyTag = hn::CappedTag<std::int32_t, kKeyBlock>;
using KeyVec = hn::Vec<KeyTag>;

/// keys[count rounded up to kKeyBlock] of scores[count]. -0 and +0 are the same.
void order_keys(const float* scores, std::size_t count, std::int32_t* keys) {
  const KeyTag d;
  const hn::Rebind<float, KeyTag> f;
  const auto order = [=](hn::Vec<decltype(f)> score) HWY_ATTR {
    const KeyVec bits = hn::BitCast(d, hn::Add(score, hn::Zero(f)));
    const KeyVec magnitude = hn::And(hn::ShiftRight<31>(bits), hn::Set(d, 0x7fffffff));
    const KeyVec key = hn::Not(hn::Xor(bits, magnitude));
    // Scores are finite; were one not a number, it must not look like the marks at both ends.
    return hn::Max(hn::Min(key, hn::Set(d, kNoEntry - 1)), hn::Set(d, kChosen + 1));
  };
  std::size_t i = 0;
  for (; i + hn::Lanes(d) <= count; i += hn::Lanes(d)) {
    hn::StoreU(order(hn::LoadU(f, scores + i)), d, keys + i);
  }
  for (; i < count; ++i) keys[i] = hn::GetLane(order(hn::Set(f, scores[i])));
  while (i % kKeyBlock != 0) keys[i++] = kNoEntry;
}

/// How many of keys[count] are above `limit`.
std::size_t count_above(const std::int32_t* keys, std::size_t count, std::int32_t limit) {
  const KeyTag d;
  const KeyVec border = hn::Set(d, limit);
  KeyVec minus_even = hn::Zero(d), minus_odd = hn::Zero(d);
  const auto above = [=](const std::int32_t* at)
                         HWY_ATTR { return hn::VecFromMask(d, hn::Gt(hn::LoadU(d, at), border)); };
  const std::size_t step = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + 2 * step <= count; i += 2 * step) {
    minus_even = hn::Add(minus_even, above(keys + i));
    minus_odd = hn::Add(minus_odd, above(keys + i + step));
  }
  for (; i < count; i += step) minus_even = hn::Add(minus_even, above(keys + i));
  return static_cast<std::size_t>(-hn::GetLane(hn::SumOfLanes(d, hn::Add(minus_even, minus_odd))));
}

/// A key that at least `wanted` of keys[count] do not exceed, and fewer than that are below; 0 < wanted.
std::int32_t border_of(const std::int32_t* keys, std::size_t count, std::size_t wanted) {
  const KeyTag d;
  KeyVec least = hn::Set(d, kNoEntry), most = hn::Set(d, kChosen);
  for (std::size_t i = 0; i < count; i += hn::Lanes(d)) {
    const KeyVec key = hn::LoadU(d, keys + i);
    least = hn::Min(least, key);
    most = hn::Max(most, key);
  }
  std::int64_t low = hn::GetLane(hn::MinOfLanes(d, least)), high = hn::GetLane(hn::MaxOfLanes(d, most));
  while (low < high) {
    const std::int64_t middle = low + (high - low) / 2;
    const std::size_t below = count - count_above(keys, count, static_cast<std::int32_t>(middle));
    if (below == wanted) return static_cast<std::int32_t>(middle);
    if (below > wanted) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return static_cast<std::int32_t>(low);
}

/// keys[count] up to `border` become kChosen.
void choose_up_to(std::int32_t border, std::int32_t* keys, std::size_t count) {
  const KeyTag d;
  for (std::size_t i = 0; i < count; i += hn::Lanes(d)) {
    const KeyVec key = hn::LoadU(d, keys + i);
    hn::StoreU(hn::IfThenElse(hn::Gt(key, hn::Set(d, border)), key, hn::Set(d, kChosen)), d, keys + i);
  }
}

/// rows = the indices of kChosen in keys[count]; returns how many. rows has room for `count`.
std::size_t chosen_rows(const std::int32_t* keys, std::size_t count, std::int32_t* rows) {
  const KeyTag d;
  const KeyVec step = hn::Set(d, static_cast<std::int32_t>(hn::Lanes(d)));
  KeyVec row = hn::Iota(d, 0);  // of a variable it would be made number by number
  std::size_t kept = 0;
  for (std::size_t i = 0; i < count; i += hn::Lanes(d), row = hn::Add(row, step)) {
    const auto chosen = hn::Eq(hn::LoadU(d, keys + i), hn::Set(d, kChosen));
    hn::StoreU(hn::Compress(row, chosen), d, rows + kept);
    kept += hn::CountTrue(d, chosen);
  }
  return kept;
}

}  // namespace
// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace keynest
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace keynest {
namespace {

HWY_EXPORT(order_keys);
HWY_EXPORT(count_above);
HWY_EXPORT(border_of);
HWY_EXPORT(choose_up_to);
HWY_EXPORT(chosen_rows);

std::size_t padded(std::size_t count) { return (count + kKeyBlock - 1) / kKeyBlock * kKeyBlock; }

/// An entry whose key is the border's.
struct Tie {
  std::uint64_t order;  // head, then position
  std::size_t index;    // of its key
};

/// The keys of consecutive heads, each padded to whole blocks.
struct HeadKeys {
  std::span<const ScoredRows> heads;
  std::span<std::int32_t> keys;

  void find_ties(std::int32_t border, std::vector<Tie>& found) const {
    found.clear();
    if (found.capacity() < keys.size()) found.reserve(2 * keys.size());
    std::size_t start = 0;
    for (std::size_t h = 0; h < heads.size(); ++h) {
      for (std::size_t row = 0; row < heads[h].scores.size(); ++row) {
        if (keys[start + row] != border) continue;
        const auto position = static_cast<std::uint32_t>(to_int(heads[h].positions[row]));
        found.push_back({static_cast<std::uint64_t>(h) << 32 | position, start + row});
      }
      start += padded(heads[h].scores.size());
    }
  }

  /// The best `wanted` become kChosen. wanted <= the number of entries.
  void choose(std::size_t wanted) const {
    if (wanted == 0) return;
    const std::int32_t border = HWY_DYNAMIC_DISPATCH(border_of)(keys.data(), keys.size(), wanted);
    const std::size_t below =
        keys.size() - HWY_DYNAMIC_DISPATCH(count_above)(keys.data(), keys.size(), border);
    if (below == wanted) return HWY_DYNAMIC_DISPATCH(choose_up_to)(border, keys.data(), keys.size());
    thread_local std::vector<Tie> tied;
    find_ties(border, tied);
    const std::size_t winners = wanted + tied.size() - below;
    std::nth_element(tied.begin(), tied.begin() + static_cast<std::ptrdiff_t>(winners), tied.end(),
                     [](const Tie& a, const Tie& b) { return a.order < b.order; });
    for (std::size_t i = 0; i < winners; ++i) keys[tied[i].index] = kChosen;
    HWY_DYNAMIC_DISPATCH(choose_up_to)(border - 1, keys.data(), keys.size());
  }
};

/// kept = the rows of kChosen in a head's keys.
void keep_chosen(std::span<const std::int32_t> keys, std::vector<Row>& kept) {
  kept.resize(keys.size());
  kept.resize(HWY_DYNAMIC_DISPATCH(chosen_rows)(keys.data(), keys.size(),
                                                reinterpret_cast<std::int32_t*>(kept.data())));
}

void select(std::span<const ScoredRows> heads, std::size_t total, std::size_t secured,
            std::span<std::vector<Row>> kept) {
  thread_local std::vector<std::int32_t> room;
  std::size_t count = 0;
  for (const ScoredRows& head : heads) count += padded(head.scores.size());
  if (room.size() < count) room.resize(count);
  const std::span<std::int32_t> keys = std::span(room).first(count);
  std::span<std::int32_t> rest = keys;
  for (const ScoredRows& head : heads) {
    HWY_DYNAMIC_DISPATCH(order_keys)(head.scores.data(), head.scores.size(), rest.data());
    const std::size_t size = padded(head.scores.size());
    HeadKeys{{&head, 1}, rest.first(size)}.choose(std::min(secured, head.scores.size()));
    rest = rest.subspan(size);
  }
  HeadKeys{heads, keys}.choose(total);
  rest = keys;
  for (std::size_t h = 0; h < heads.size(); ++h) {
    const std::size_t size = padded(heads[h].scores.size());
    keep_chosen(rest.first(size), kept[h]);
    rest = rest.subspan(size);
  }
}

}  // namespace

void select_top_k(const ScoredRows& head, std::int64_t k, std::vector<Row>& kept) {
  kept.clear();
  if (k > 0) select({&head, 1}, static_cast<std::size_t>(k), 0, {&kept, 1});
}

void select_across_heads(std::span<const ScoredRows> heads, std::int64_t total, std::int64_t secured,
                         std::vector<std::vector<Row>>& kept) {
  kept.resize(heads.size());
  for (std::vector<Row>& rows : kept) rows.clear();
  if (total > 0) select(heads, static_cast<std::size_t>(total), static_cast<std::size_t>(secured), kept);
}

}  // namespace keynest
#endif  // HWY_ONCE
