// Attention in fixed point: keys, queries and values as 16-bit integers times a unit each.
//
// A unit is a power of two that follows the largest number it stands for. Keys and values stored in 16 bits
// have 8 or 11 significant ones, so that all but those far below the largest of their dimension are exact.
//
// What vpdpwssd multiplies are lanes of two numbers: two dimensions of a key and a query, two rows of a page
// and their weights. Which half is which must only agree on both sides.
#if defined(KEYNEST_KERNELS_ATTENTION_ROUND_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KEYNEST_KERNELS_ATTENTION_ROUND_INL_H_
#undef KEYNEST_KERNELS_ATTENTION_ROUND_INL_H_
#else
#define KEYNEST_KERNELS_ATTENTION_ROUND_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <limits>
#include <type_traits>

#include "hwy/highway.h"
#include "kernels/attention_pages-inl.h"
#include "kernels/attention_scratch.h"
#include "kernels/convert-inl.h"
#include "kernels/numbers.h"
#include "kernels/page.h"

HWY_BEFORE_NAMESPACE();
namespace keynest {
namespace HWY_NAMESPACE {
namespace {

#if HWY_TARGET <= HWY_AVX3

using IntTag = hn::RebindToSigned<FloatTag>;
using IntVec = hn::Vec<IntTag>;

inline constexpr int kNumberBits = 14;                      // of keys and values, without the sign
inline constexpr float kMaxNumber = 32767.0f;               // of queries and weights
inline constexpr float kMaxSum = 2147483648.0f;             // what sums of products must stay below: 2^31
inline constexpr int kPairRows = static_cast<int>(kLanes);  // between the two rows of a pair
inline constexpr int kSumDims = 32;                         // dimensions of a key summed as integers
inline constexpr float kSmallestLimit = 1e-30f;             // numbers below it may be lost
inline constexpr float kRoundingBits = 12582912.0f;  // added to a float, leaves it rounded in the low 16 bits

/// sum + the products of both halves of every lane.
HWY_INLINE IntVec add_products(IntVec sum, IntVec a, IntVec b) {
  // Highway's ReorderWidenMulAccumulate takes two instructions for it.
  asm("vpdpwssd %2, %1, %0" : "+v"(sum.raw) : "v"(a.raw), "v"(b.raw));
  return sum;
}

/// Lanes (low, high) of two vectors of floats to which kRoundingBits have been added.
HWY_INLINE IntVec pair_rounded(FloatVec low, FloatVec high) {
  const hn::Repartition<std::uint16_t, FloatTag> halves;
  const IntTag integers;
  const auto shifted = hn::ShiftLeft<16>(hn::BitCast(integers, high));
  return hn::BitCast(integers, hn::OddEven(hn::BitCast(halves, shifted), hn::BitCast(halves, low)));
}

/// Absolute values of stored numbers compare as the integers that their bits are; NaN is larger than
/// everything.
template <class Stored>
using BitsTag = hn::ScalableTag<std::conditional_t<sizeof(Stored) == 2, std::uint16_t, std::uint32_t>>;
template <class Stored>
using Bits = hn::Vec<BitsTag<Stored>>;

template <class Stored>
HWY_INLINE Bits<Stored> abs_bits(const Stored* in) {
  const BitsTag<Stored> tag;
  using Integer = hn::TFromD<BitsTag<Stored>>;
  const auto bits = hn::LoadU(tag, reinterpret_cast<const Integer*>(in));
  return hn::And(bits, hn::Set(tag, static_cast<Integer>(std::numeric_limits<Integer>::max() / 2)));
}

/// The unit of numbers up to `limit`, of which all are below 2^kNumberBits units. Infinite if the limit is
/// not finite, so that its inverse makes zeros, and infinity or NaN of them again.
HWY_INLINE FloatVec unit_of(FloatVec limit) {
  const FloatTag d;
  const IntTag integers;
  const auto power = hn::And(hn::BitCast(integers, hn::Max(hn::Set(d, kSmallestLimit), limit)),
                             hn::Set(integers, 0x7f800000));
  return hn::Mul(hn::BitCast(d, power), hn::Set(d, 2.0f / (1 << kNumberBits)));
}

/// Calls work(reader) with a page whose numbers can be read one by one.
template <class Work>
void read_page_to_round(const Tile& tile, int page, const Work& work) {
  if (tile.keys.layout->type == KvType::kQ8_0) return work(scaled_page<true>(tile, page));
  read_page<true>(tile, page, work);
}

/// The bits of absolute values, as abs_bits has them of stored ones.
HWY_INLINE Bits<float> abs_bits(FloatVec numbers) { return hn::BitCast(BitsTag<float>(), hn::Abs(numbers)); }

inline constexpr std::size_t kVectorBytes = kLanes * sizeof(float);

/// most[head_dim vectors]: the largest abs_bits of every dimension, lane by lane, of the first `count` keys
/// of a page and of all pages before.
template <class Stored>
void find_most(const PageReader<Stored>& page, std::size_t head_dim, std::size_t count, std::byte* most) {
  const BitsTag<Stored> tag;
  using Integer = hn::TFromD<BitsTag<Stored>>;
  for (std::size_t dim = 0; dim < head_dim; ++dim, most += kVectorBytes) {
    auto* lanes = reinterpret_cast<Integer*>(most);
    page.template prefetch_key<kPageRows / kLanes>(dim, 0);
    Bits<Stored> of_dim = hn::Load(tag, lanes);
    for (std::size_t row = 0; row < count; row += hn::MaxLanes(tag)) {
      const auto held = hn::FirstN(tag, count - row);
      of_dim = hn::Max(of_dim, hn::IfThenElseZero(held, abs_bits(page.keys + dim * kPageRows + row)));
    }
    hn::Store(of_dim, tag, lanes);
  }
}

inline void find_most(const ScaledPage& page, std::size_t head_dim, std::size_t count, std::byte* most) {
  const BitsTag<float> tag;
  for (std::size_t dim = 0; dim < head_dim; ++dim, most += kVectorBytes) {
    auto* lanes = reinterpret_cast<std::uint32_t*>(most);
    prefetch_line(page.next_keys, dim * kPageRows);
    if (dim % kBlockDims == 0) prefetch_scales(page.next_keys, head_dim, dim / kBlockDims);
    Bits<float> of_dim = hn::Load(tag, lanes);
    for (std::size_t row = 0; row < count; row += kLanes) {
      const auto held = hn::FirstN(tag, count - row);
      of_dim = hn::Max(of_dim, hn::IfThenElseZero(held, abs_bits(page.key(dim, row))));
    }
    hn::Store(of_dim, tag, lanes);
  }
}

/// The largest of a vector of numbers as find_most leaves them.
inline float most_of_lanes(KvType type, const std::byte* lanes) {
  const auto largest = [lanes](auto zero) {
    decltype(zero) all[kVectorBytes / sizeof(zero)];
    std::memcpy(all, lanes, sizeof(all));
    return *std::max_element(std::begin(all), std::end(all));
  };
  if (type == KvType::kF16) return from_f16(largest(std::uint16_t{0}));
  if (type == KvType::kBF16) return from_bf16(largest(std::uint16_t{0}));
  const std::uint32_t bits = largest(std::uint32_t{0});
  float number;
  std::memcpy(&number, &bits, sizeof(number));
  return number;
}

/// Limits, units and their inverses of the keys of a whole head, so that a query needs rounding only once.
/// False if a key is not finite.
inline bool find_key_units(const Tile& tile) {
  const FloatTag d;
  const FixedScratch& fixed = tile.scratch.fixed;
  const auto head_dim = static_cast<std::size_t>(tile.head_dim());
  auto* most = reinterpret_cast<std::byte*>(fixed.keys);  // no page has been rounded yet
  std::memset(most, 0, head_dim * kVectorBytes);
  for (int page = 0; page < tile.keys.page_count(); ++page) {
    const auto count = static_cast<std::size_t>(tile.keys.rows_in_page(page));
    read_page_to_round(tile, page, [&](const auto& reader) { find_most(reader, head_dim, count, most); });
  }
  bool finite = true;
  for (std::size_t dim = 0; dim < head_dim; ++dim) {
    const float limit = most_of_lanes(tile.keys.layout->type, most + dim * kVectorBytes);
    const FloatVec unit = unit_of(hn::Set(d, limit));
    fixed.key_limits[dim] = limit;
    fixed.key_units[dim] = hn::GetLane(unit);
    fixed.key_inverses[dim] = hn::GetLane(hn::Div(hn::Set(d, 1.0f), unit));
    finite = finite && std::isfinite(limit);
  }
  return finite;
}

/// pairs[head_dim / 2, 64]: of dimensions (2 i, 2 i + 1).
template <class Page>
void round_keys(const Page& page, std::size_t head_dim, const float* inverses, std::int32_t* pairs) {
  const FloatTag d;
  const auto bits = hn::Set(d, kRoundingBits);
  for (std::size_t dim = 0; dim < head_dim; dim += 2, pairs += kPageRows) {
    const auto low = hn::Set(d, inverses[dim]), high = hn::Set(d, inverses[dim + 1]);
    HWY_UNROLL(4)
    for (std::size_t row = 0; row < kPageRows; row += kLanes) {
      hn::Store(pair_rounded(hn::MulAdd(page.key(dim, row), low, bits),
                             hn::MulAdd(page.key(dim + 1, row), high, bits)),
                IntTag(), pairs + row);
    }
  }
}

/// The unit of the logits of a query: such that neither a number of it nor, whatever the key, a sum over
/// kSumDims dimensions leaves its type.
inline float query_unit(const float* query, int head_dim, const FixedScratch& fixed) {
  const hn::CappedTag<float, 8> d;
  auto most = hn::Zero(d);
  float sums = 0;
  for (int first = 0; first < head_dim; first += kSumDims) {
    auto sum = hn::Zero(d);
    for (int dim = first; dim < std::min(first + kSumDims, head_dim); dim += static_cast<int>(hn::Lanes(d))) {
      const auto x = hn::Abs(hn::LoadU(d, query + dim));
      sum = hn::MulAdd(x, hn::LoadU(d, fixed.key_limits + dim), sum);
      most = hn::Max(hn::Mul(x, hn::LoadU(d, fixed.key_units + dim)), most);
    }
    sums = std::max(hn::GetLane(hn::SumOfLanes(d, sum)), sums);
  }
  // Rounding adds up to half a number to each, and half the largest key of every dimension to a sum.
  constexpr float kRounding = kSumDims * (1 << kNumberBits);
  const float most_of_all = hn::GetLane(hn::MaxOfLanes(d, most));
  return std::max({sums / (kMaxSum - kRounding), most_of_all / kMaxNumber, kSmallestLimit});
}

/// numbers[head_dim] of a query in units of itself and of the keys.
inline void round_query(const float* query, int head_dim, float unit, const FixedScratch& fixed,
                        std::int16_t* numbers) {
  const hn::CappedTag<float, 8> d;
  const auto inverse = hn::Set(d, 1.0f / unit);
  for (int dim = 0; dim < head_dim; dim += static_cast<int>(hn::Lanes(d))) {
    const auto x = hn::Mul(hn::LoadU(d, query + dim), hn::LoadU(d, fixed.key_units + dim));
    const hn::Rebind<std::int16_t, decltype(d)> narrow;
    hn::StoreU(hn::DemoteTo(narrow, hn::NearestInt(hn::Mul(x, inverse))), narrow, numbers + dim);
  }
}

/// Queries of rows [begin, end) interleaved: fixed.queries [head_dim / 2, end - begin] from `begin` on.
inline void round_group(const Tile& tile, int group) {
  const FixedScratch& fixed = tile.scratch.fixed;
  const int begin = tile.group_start(group), rows = tile.group_start(group + 1) - begin;
  const int pairs = tile.head_dim() / 2;
  float* units = tile.unit_of_group(group);
  std::int32_t* out = fixed.queries + static_cast<std::size_t>(begin) * static_cast<std::size_t>(pairs);
  auto* numbers = reinterpret_cast<std::int16_t*>(fixed.keys);  // no page has been rounded yet
  for (int r = 0; r < rows; ++r) {
    const float* query = tile.query(begin + r);
    const float unit = query_unit(query, tile.head_dim(), fixed);
    round_query(query, tile.head_dim(), unit, fixed, numbers);
    for (int i = 0; i < pairs; ++i) std::memcpy(out + i * rows + r, numbers + 2 * i, sizeof(*out));
    units[r] = unit * tile.block.scale * kLog2E;
  }
}

/// units[head_dim] of the first `count` values of a page, up to the next whole vector.
template <class Stored>
void find_value_units(const PageReader<Stored>& page, int count, std::size_t head_dim, float* units) {
  const FloatTag d;
  const BitsTag<Stored> tag;
  constexpr std::size_t kStored = hn::MaxLanes(BitsTag<Stored>());
  HWY_ALIGN hn::TFromD<BitsTag<Stored>> lanes[kStored];
  for (std::size_t column = 0; column < head_dim; column += kStored) {
    Bits<Stored> most = hn::Zero(tag);
    const Stored* values = page.values + column;
    for (int row = 0; row < count; ++row, values += page.stride) {
      page.template prefetch_value<kStored / kLanes>(static_cast<std::size_t>(row), column);
      most = hn::Max(most, abs_bits(values));
    }
    hn::Store(most, tag, lanes);
    for (std::size_t i = 0; i < kStored && column + i < head_dim; i += kLanes) {
      const FloatVec limit = load_stored(reinterpret_cast<const Stored*>(lanes) + i);
      hn::Store(unit_of(limit), d, units + column + i);
    }
  }
}

inline void find_value_units(const ScaledPage& page, int count, std::size_t head_dim, float* units) {
  for (std::size_t column = 0; column < head_dim; column += kLanes) {
    Bits<float> most = hn::Zero(BitsTag<float>());
    if (column % kBlockDims == 0) prefetch_scales(page.next_values, head_dim, column / kBlockDims);
    for (std::size_t row = 0; row < static_cast<std::size_t>(count); ++row) {
      prefetch_line(page.next_values, row * head_dim + column);
      most = hn::Max(most, abs_bits(page.value(row, column)));
    }
    hn::Store(unit_of(hn::BitCast(FloatTag(), most)), FloatTag(), units + column);
  }
}

/// pairs[32, stride]: of rows (i, i + 16) and (32 + i, 48 + i), zero from row `count` on; in units [stride]
/// of the page. Returns the largest Euclidean norm of the numbers of a dimension.
template <class Page>
float round_values(const Page& page, int count, std::size_t head_dim, std::size_t stride, float* units,
                   std::int32_t* pairs) {
  const FloatTag d;
  const auto bits = hn::Set(d, kRoundingBits);
  find_value_units(page, count, head_dim, units);
  FloatVec most = hn::Zero(d);
  for (std::size_t column = 0; column < head_dim; column += kLanes) {
    // 0 beyond the head's dimensions, where anything may stand.
    const FloatVec inverses = hn::IfThenElseZero(hn::FirstN(d, head_dim - column),
                                                 hn::Div(hn::Set(d, 1.0f), hn::Load(d, units + column)));
    const auto numbers = [&](int row) HWY_ATTR {
      if (row >= count) return hn::Zero(d);
      return hn::Mul(page.value(static_cast<std::size_t>(row), column), inverses);
    };
    FloatVec low_squares = hn::Zero(d), high_squares = hn::Zero(d);
    for (int pair = 0; pair < kPageRows / 2; ++pair) {
      const int row = pair + pair / kPairRows * kPairRows;
      const FloatVec low = numbers(row), high = numbers(row + kPairRows);
      low_squares = hn::MulAdd(low, low, low_squares);
      high_squares = hn::MulAdd(high, high, high_squares);
      hn::Store(pair_rounded(hn::Add(low, bits), hn::Add(high, bits)), IntTag(),
                pairs + static_cast<std::size_t>(pair) * stride + column);
    }
    most = hn::Max(most, hn::Add(low_squares, high_squares));
  }
  return std::sqrt(hn::GetLane(hn::MaxOfLanes(d, most)));
}

#endif  // HWY_TARGET <= HWY_AVX3

}  // namespace
// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace keynest
HWY_AFTER_NAMESPACE();

#endif  // KEYNEST_KERNELS_ATTENTION_ROUND_INL_H_
