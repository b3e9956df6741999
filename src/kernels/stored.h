// The number types of a page, one entry at a time.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/numbers.h"
#include "kernels/page.h"

namespace keynest {

struct F32 {
  using Stored = float;
  static Stored store(float value) { return value; }
  static float load(Stored stored) { return stored; }
};
struct F16 {
  using Stored = std::uint16_t;
  static Stored store(float value) { return to_f16(value); }
  static float load(Stored stored) { return from_f16(stored); }
};
struct BF16 {
  using Stored = std::uint16_t;
  static Stored store(float value) { return to_bf16(value); }
  static float load(Stored stored) { return from_bf16(stored); }
};

/// Sections of a q8_0 page; see page.h.
struct QuantisedPage {
  std::int8_t* keys;            // [head_dim, 64]
  std::uint16_t* key_scales;    // [head_dim / 32, 64]
  std::int8_t* values;          // [64, head_dim]
  std::uint16_t* value_scales;  // [64, head_dim / 32]

  QuantisedPage(const PageLayout& layout, std::byte* keys_at, std::byte* values_at)
      : keys(reinterpret_cast<std::int8_t*>(keys_at)),
        key_scales(reinterpret_cast<std::uint16_t*>(keys_at + layout.head_dim * kPageRows)),
        values(reinterpret_cast<std::int8_t*>(values_at)),
        value_scales(reinterpret_cast<std::uint16_t*>(values_at + layout.head_dim * kPageRows)) {}
};

}  // namespace keynest
