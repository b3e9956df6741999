// A page's keys read some dimensions at a time, for the files compiled once per SIMD target.
#if defined(KEYNEST_KERNELS_KEY_CHUNKS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KEYNEST_KERNELS_KEY_CHUNKS_INL_H_
#undef KEYNEST_KERNELS_KEY_CHUNKS_INL_H_
#else
#define KEYNEST_KERNELS_KEY_CHUNKS_INL_H_
#endif

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernels/convert-inl.h"

HWY_BEFORE_NAMESPACE();
namespace keynest {
namespace HWY_NAMESPACE {

using DoubleTag = hn::ScalableTag<double>;
using DoubleVec = hn::Vec<DoubleTag>;
inline constexpr std::size_t kDoubleLanes = hn::MaxLanes(DoubleTag());
/// Dimensions summed in float before the sum goes on in double; also the block of kQ8_0.
inline constexpr int kChunkDims = 32;

/// Where keys begin: a dimension of a page.
struct KeyPlace {
  int page, dim;
};

/// Dimensions [first, last) of a page's keys, [last - first, 64], and as many that are read later, to be
/// asked for while these are read: an eviction mostly finds keys outside the first two caches.
template <class Stored>
struct KeyChunk {
  const Stored* keys;
  const Stored* next;

  HWY_INLINE FloatVec load(std::size_t at) const { return load_stored(keys + at); }
  /// The numbers [at, at + count) of those.
  HWY_INLINE void prefetch(std::size_t at, std::size_t count) const {
    constexpr std::size_t kLine = 64 / sizeof(Stored);
    hwy::Prefetch(next + at);
    for (std::size_t i = kLine; i < count; i += kLine) hwy::Prefetch(next + at + i);
  }
};

template <class Stored>
HWY_INLINE const Stored* keys_at(const HeadRows& head, KeyPlace place) {
  return reinterpret_cast<const Stored*>(head.keys(place.page)) +
         static_cast<std::size_t>(place.dim) * kPageRows;
}

/// Calls work(chunk) with `dims` dimensions of a page's keys from `place` on: as stored where they can be
/// read so, else converted into `buffer`. `next`: what is read later.
template <class Work>
HWY_INLINE void read_keys(const HeadRows& head, KeyPlace place, int dims, KeyPlace next, float* buffer,
                          const Work& work) {
  const KvType type = head.layout->type;
  const auto stored = [&]<class Stored>(Stored) HWY_ATTR {
    work(KeyChunk<Stored>{keys_at<Stored>(head, place), keys_at<Stored>(head, next)});
  };
  if (type == KvType::kF32) return stored(float());
  if constexpr (kReadsHalf) {
    if (type == KvType::kF16) return stored(hwy::float16_t());
    if (type == KvType::kBF16) return stored(hwy::bfloat16_t());
  }
  keys_to_f32(*head.layout, head.keys(place.page), place.dim, place.dim + dims, buffer);
  work(KeyChunk<float>{buffer, buffer});
}

/// sums[kLanes] += v.
HWY_INLINE void add_to_doubles(FloatVec v, double* sums) {
  const DoubleTag d;
#if HWY_TARGET == HWY_SCALAR
  hn::Store(hn::Add(hn::Load(d, sums), hn::PromoteTo(d, v)), d, sums);
#else
  const hn::Rebind<float, DoubleTag> half;
  const auto low = hn::PromoteTo(d, hn::LowerHalf(half, v)), high = hn::PromoteTo(d, hn::UpperHalf(half, v));
  hn::Store(hn::Add(hn::Load(d, sums), low), d, sums);
  hn::Store(hn::Add(hn::Load(d, sums + kDoubleLanes), high), d, sums + kDoubleLanes);
#endif
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace keynest
HWY_AFTER_NAMESPACE();

#endif  // KEYNEST_KERNELS_KEY_CHUNKS_INL_H_
