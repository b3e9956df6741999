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

/// Order among equal scores.
std::uint64_t tie_key(std::size_t head, Position position) {
  return static_cast<std::uint64_t>(head) << 32 | static_cast<std::uint32_t>(to_int(position));
}

/// The keys of all candidates, head after head.
std::vector<std::uint32_t> all_keys(std::span<const HeadCandidates> heads) {
  std::size_t count = 0;
  for (const HeadCandidates& head : heads) count += head.candidates.size();
  std::vector<std::uint32_t> keys(count);
  std::uint32_t* out = keys.data();
  for (const HeadCandidates& head : heads) {
    for (const Row row : head.candidates)
      *out++ = order_key(head.scores[static_cast<std::size_t>(to_int(row))]);
  }
  return keys;
}

/// Keeps in `keys` those whose digit at `shift` is that of the element of rank `rank`, which becomes relative
/// to them.
void narrow_to_digit(std::vector<std::uint32_t>& keys, std::size_t& rank, int shift) {
  std::array<std::uint32_t, 1 << kDigitBits> counts{};
  for (const std::uint32_t key : keys) ++counts[(key >> shift) & 0xffu];
  std::uint32_t digit = 0;
  while (rank >= counts[digit]) rank -= counts[digit++];
  std::size_t kept = 0;
  for (const std::uint32_t key : keys) {  // without a branch: which keys stay cannot be predicted
    keys[kept] = key;
    kept += ((key >> shift) & 0xffu) == digit;
  }
  keys.resize(kept);
}

/// The element that sorting would put at `rank`, by radix selection.
std::uint32_t element_of_rank(std::vector<std::uint32_t> keys, std::size_t rank) {
  for (int shift = 32 - kDigitBits; shift >= 0 && keys.size() > kSmall; shift -= kDigitBits) {
    narrow_to_digit(keys, rank, shift);
  }
  std::nth_element(keys.begin(), keys.begin() + static_cast<std::ptrdiff_t>(rank), keys.end());
  return keys[rank];
}

/// What is kept: keys below `key`, and those equal to it whose tie key is at most `tie`.
struct Threshold {
  std::uint32_t key = 0;
  std::uint64_t tie = 0;
};

/// The tie key of rank `rank` among the candidates whose key is `key`.
std::uint64_t tie_of_rank(std::span<const HeadCandidates> heads, const std::uint32_t* keys, std::uint32_t key,
                          std::size_t rank) {
  std::vector<std::uint64_t> ties;
  for (std::size_t h = 0; h < heads.size(); ++h) {
    for (const Row row : heads[h].candidates) {
      if (*keys++ == key)
        ties.push_back(tie_key(h, heads[h].positions[static_cast<std::size_t>(to_int(row))]));
    }
  }
  const auto last = ties.begin() + static_cast<std::ptrdiff_t>(rank);
  std::nth_element(ties.begin(), last, ties.end());
  return *last;
}

/// Requires 0 < total <= number of candidates.
Threshold find_threshold(std::span<const HeadCandidates> heads, const std::vector<std::uint32_t>& keys,
                         std::size_t total) {
  Threshold threshold;
  threshold.key = element_of_rank(keys, total - 1);
  std::size_t better = 0;
  for (const std::uint32_t key : keys) better += key < threshold.key;
  threshold.tie = tie_of_rank(heads, keys.data(), threshold.key, total - better - 1);
  return threshold;
}

/// kept = the head's rows up to the threshold; keys: of its candidates.
void keep_up_to(const HeadCandidates& head, std::size_t index, const Threshold& threshold,
                const std::uint32_t* keys, std::vector<Row>& kept) {
  kept.resize(head.candidates.size());
  std::size_t count = 0;
  for (const Row row : head.candidates) {
    const std::uint32_t key = *keys++;
    kept[count] = row;
    if (key != threshold.key) {
      count += key < threshold.key;
    } else {
      count += tie_key(index, head.positions[static_cast<std::size_t>(to_int(row))]) <= threshold.tie;
    }
  }
  kept.resize(count);
  if (!std::is_sorted(kept.begin(), kept.end())) std::sort(kept.begin(), kept.end());
}

void select(std::span<const HeadCandidates> heads, std::size_t total, std::span<std::vector<Row>> kept) {
  const std::vector<std::uint32_t> keys = all_keys(heads);
  const Threshold threshold = find_threshold(heads, keys, total);
  const std::uint32_t* of_head = keys.data();
  for (std::size_t h = 0; h < heads.size(); ++h) {
    keep_up_to(heads[h], h, threshold, of_head, kept[h]);
    of_head += heads[h].candidates.size();
  }
}

}  // namespace

void select_top_k(std::span<const float> scores, std::span<const Position> positions,
                  std::span<const Row> candidates, int k, std::vector<Row>& kept) {
  kept.clear();
  if (k <= 0) return;
  const HeadCandidates head{scores, positions, candidates};
  select({&head, 1}, static_cast<std::size_t>(k), {&kept, 1});
}

void select_across_heads(std::span<const HeadCandidates> heads, std::int64_t total,
                         std::vector<std::vector<Row>>& kept) {
  kept.resize(heads.size());
  for (std::vector<Row>& rows : kept) rows.clear();
  if (total > 0) select(heads, static_cast<std::size_t>(total), kept);
}

}  // namespace keynest
