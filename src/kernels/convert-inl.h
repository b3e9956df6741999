// Stored numbers of a page to float, for the files compiled once per SIMD target.
#if defined(KEYNEST_KERNELS_CONVERT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KEYNEST_KERNELS_CONVERT_INL_H_
#undef KEYNEST_KERNELS_CONVERT_INL_H_
#else
#define KEYNEST_KERNELS_CONVERT_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "hwy/highway.h"
#include "kernels/page.h"

HWY_BEFORE_NAMESPACE();
namespace keynest {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::ScalableTag<float>;
using FloatVec = hn::Vec<FloatTag>;
inline constexpr std::size_t kLanes = hn::MaxLanes(FloatTag());

/// Lanes of a tag starting at `in`; Half is hwy::float16_t or hwy::bfloat16_t.
template <class D, class Half>
HWY_INLINE hn::Vec<D> load_half(D d, const Half* in) {
  return hn::PromoteTo(d, hn::LoadU(hn::Rebind<Half, D>(), in));
}

/// Whether 16-bit numbers may be read again and again instead of being converted first, which needs
/// conversion instructions.
inline constexpr bool kReadsHalf = HWY_TARGET <= HWY_AVX2 || HWY_TARGET == HWY_NEON;

HWY_INLINE FloatVec load_stored(const float* in) { return hn::LoadU(FloatTag(), in); }
HWY_INLINE FloatVec load_stored(const hwy::float16_t* in) { return load_half(FloatTag(), in); }
HWY_INLINE FloatVec load_stored(const hwy::bfloat16_t* in) { return load_half(FloatTag(), in); }

/// out[count] = in[count]; count is a multiple of 8.
template <class Half>
HWY_INLINE void half_to_f32(const Half* in, std::size_t count, float* out) {
  const FloatTag d;
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) hn::StoreU(load_half(d, in + i), d, out + i);
  if constexpr (kLanes > 8) {
    const hn::CappedTag<float, 8> tail;
    if (i < count) hn::StoreU(load_half(tail, in + i), tail, out + i);
  }
}

/// Lanes of int8 quants starting at `in`, not yet scaled.
template <class D>
HWY_INLINE hn::Vec<D> load_quants(D d, const std::int8_t* in) {
  const hn::Rebind<std::int32_t, D> integers;
  return hn::ConvertTo(d, hn::PromoteTo(integers, hn::LoadU(hn::Rebind<std::int8_t, D>(), in)));
}

/// out[kLanes] of int8 quants times one scale per lane.
template <class D, class V>
HWY_INLINE void scale_quants(D d, const std::int8_t* quants, V scale, float* out) {
  hn::StoreU(hn::Mul(load_quants(d, quants), scale), d, out);
}

/// Dimensions [first, last) of q8_0 keys: quants [head_dim, 64], scales [head_dim / 32, 64].
HWY_INLINE void q8_keys_to_f32(const std::byte* keys, int head_dim, int first, int last, float* out) {
  const FloatTag d;
  const auto* quants = reinterpret_cast<const std::int8_t*>(keys);
  const auto* scales = reinterpret_cast<const hwy::float16_t*>(keys + head_dim * kPageRows);
  for (int dim = first; dim < last; ++dim) {
    for (std::size_t row = 0; row < kPageRows; row += kLanes) {
      const auto scale = load_half(d, scales + dim / 32 * kPageRows + row);
      scale_quants(d, quants + dim * kPageRows + row, scale, out + (dim - first) * kPageRows + row);
    }
  }
}

/// One row of q8_0 values: quants [head_dim], scales [head_dim / 32].
HWY_INLINE void q8_row_to_f32(const std::int8_t* quants, const hwy::float16_t* scales, int head_dim,
                              float* out) {
  const hn::CappedTag<float, 8> d;
  for (int dim = 0; dim < head_dim; dim += static_cast<int>(hn::Lanes(d))) {
    const hn::CappedTag<float, 1> one;
    const float scale = hn::GetLane(load_half(one, scales + dim / 32));
    scale_quants(d, quants + dim, hn::Set(d, scale), out + dim);
  }
}

/// Dimensions [first, last) of a page's keys, as float [last - first, 64].
inline void keys_to_f32(const PageLayout& layout, const std::byte* keys, int first, int last, float* out) {
  const auto start = static_cast<std::size_t>(first) * kPageRows;
  const auto count = static_cast<std::size_t>(last - first) * kPageRows;
  switch (layout.type) {
    case KvType::kF32:
      std::memcpy(out, reinterpret_cast<const float*>(keys) + start, count * sizeof(float));
      break;
    case KvType::kF16:
      half_to_f32(reinterpret_cast<const hwy::float16_t*>(keys) + start, count, out);
      break;
    case KvType::kBF16:
      half_to_f32(reinterpret_cast<const hwy::bfloat16_t*>(keys) + start, count, out);
      break;
    case KvType::kQ8_0:
      q8_keys_to_f32(keys, layout.head_dim, first, last, out);
      break;
  }
}

/// Row `row` of a page's values, as float [head_dim].
HWY_INLINE void value_row_to_f32(const PageLayout& layout, const std::byte* values, int row, float* out) {
  const auto d = static_cast<std::size_t>(layout.head_dim);
  const std::size_t start = static_cast<std::size_t>(row) * d;
  switch (layout.type) {
    case KvType::kF32:
      std::memcpy(out, reinterpret_cast<const float*>(values) + start, d * sizeof(float));
      break;
    case KvType::kF16:
      half_to_f32(reinterpret_cast<const hwy::float16_t*>(values) + start, d, out);
      break;
    case KvType::kBF16:
      half_to_f32(reinterpret_cast<const hwy::bfloat16_t*>(values) + start, d, out);
      break;
    case KvType::kQ8_0: {
      const auto* scales = reinterpret_cast<const hwy::float16_t*>(values + kPageRows * d);
      q8_row_to_f32(reinterpret_cast<const std::int8_t*>(values) + start, scales + row * (d / 32),
                    layout.head_dim, out);
      break;
    }
  }
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace keynest
HWY_AFTER_NAMESPACE();

#endif  // KEYNEST_KERNELS_CONVERT_INL_H_
