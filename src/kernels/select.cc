#include "kernels/select.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>

namespace keynest {
namespace {

/// Scores as integers in the opposite order: the best score is the smallest key. -0 and +0 are the same.
std::uint32_t order_key(float score) {
  const auto bits = std::bit_cast<std::uint32_t>(score + 0.0f);
  const std::uint32_t ascending = (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
  return ~ascending;
}

constexpr int kDigitBits = 8;
constexpr std::size_t kSmall = 64;

/// Keeps in `keys` those whose digit at `shift` holds the element of rank `rank`; rank becomes relative to
/// them.
void narrow_to_digit(std::vector<std::uint32_t>& keys, std::size_t& rank, int shift) {
  std::array<std::uint32_t, 1 << kDigitBits> counts{};
  for (const std::uint32_t key : keys) ++counts[(key >> shift) & 0xffu];
  std::uint32_t digit = 0;
  while (rank >= counts[digit]) rank -= counts[digit++];
  std::erase_if(keys, [=](std::uint32_t key) { return ((key >> shift) & 0xffu) != digit; });
}

/// The element that sorting would put at `rank`, by radix selection. Consumes `keys`.
std::uint32_t element_of_rank(std::vector<std::uint32_t>& keys, std::size_t rank) {
  for (int shift = 32 - kDigitBits; shift >= 0 && keys.size() > kSmall; shift -= kDigitBits) {
    narrow_to_digit(keys, rank, shift);
  }
  std::nth_element(keys.begin(), keys.begin() + static_cast<std::ptrdiff_t>(rank), keys.end());
  return keys[rank];
}

std::vector<std::uint32_t> all_keys(std::span<const HeadCandidates> heads) {
  std::vector<std::uint32_t> keys;
  std::size_t count = 0;
  for (const HeadCandidates& head : heads) count += head.candidates.size();
  keys.reserve(count);
  for (const HeadCandidates& head : heads) {
    for (const Row row : head.candidates)
      keys.push_back(order_key(head.scores[static_cast<std::size_t>(to_int(row))]));
  }
  return keys;
}

/// Order among equal scores.
std::uint64_t tie_key(std::size_t head, Position position) {
  return static_cast<std::uint64_t>(head) << 32 | static_cast<std::uint32_t>(to_int(position));
}

/// What is kept: keys below `key`, and those equal to it whose tie key is at most `tie`.
struct Threshold {
  std::uint32_t key = 0;
  std::uint64_t tie = 0;
};

/// Requires 0 < total <= number of candidates.
Threshold find_threshold(std::span<const HeadCandidates> heads, std::size_t total) {
  std::vector<std::uint32_t> keys = all_keys(heads);
  Threshold threshold;
  threshold.key = element_of_rank(keys, total - 1);
  std::size_t better = 0;
  std::vector<std::uint64_t> ties;
  for (std::size_t h = 0; h < heads.size(); ++h) {
    for (const Row row : heads[h].candidates) {
      const auto r = static_cast<std::size_t>(to_int(row));
      const std::uint32_t key = order_key(heads[h].scores[r]);
      better += key < threshold.key;
      if (key == threshold.key) ties.push_back(tie_key(h, heads[h].positions[r]));
    }
  }
  const auto last = ties.begin() + static_cast<std::ptrdiff_t>(total - better - 1);
  std::nth_element(ties.begin(), last, ties.end());
  threshold.tie = *last;
  return threshold;
}

void keep_up_to(const HeadCandidates& head, std::size_t index, const Threshold& threshold,
                std::vector<Row>& kept) {
  for (const Row row : head.candidates) {
    const auto r = static_cast<std::size_t>(to_int(row));
    const std::uint32_t key = order_key(head.scores[r]);
    const bool tied = key == threshold.key && tie_key(index, head.positions[r]) <= threshold.tie;
    if (key < threshold.key || tied) kept.push_back(row);
  }
  if (!std::is_sorted(kept.begin(), kept.end())) std::sort(kept.begin(), kept.end());
}

}  // namespace

void select_top_k(std::span<const float> scores, std::span<const Position> positions,
                  std::span<const Row> candidates, int k, std::vector<Row>& kept) {
  kept.clear();
  if (k <= 0) return;
  const HeadCandidates head{scores, positions, candidates};
  keep_up_to(head, 0, find_threshold({&head, 1}, static_cast<std::size_t>(k)), kept);
}

void select_across_heads(std::span<const HeadCandidates> heads, std::int64_t total,
                         std::vector<std::vector<Row>>& kept) {
  kept.resize(heads.size());
  for (std::vector<Row>& rows : kept) rows.clear();
  if (total <= 0) return;
  const Threshold threshold = find_threshold(heads, static_cast<std::size_t>(total));
  for (std::size_t h = 0; h < heads.size(); ++h) keep_up_to(heads[h], h, threshold, kept[h]);
}

}  // namespace keynest
