// The three integers that are easy to mix up, kept apart by the type system, and small shared types.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace keynest {

/// Index of a token in its sequence since the start; what RoPE rotates by. Never reused, never
/// renumbered by eviction.
enum class Position : std::int32_t {};

/// Where an entry lies inside its head's pages: a storage address, nothing else.
enum class Row : std::int32_t {};

/// A vocabulary id.
using Token = std::int32_t;

constexpr std::int32_t to_int(Position p) { return static_cast<std::int32_t>(p); }
constexpr std::int32_t to_int(Row r) { return static_cast<std::int32_t>(r); }

/// How keys and values are stored in the cache.
enum class KvType : std::uint8_t { kF32, kF16, kBF16, kQ8_0 };

/// Their names, in this order.
inline constexpr std::array<std::string_view, 4> kKvTypeNames{"f32", "f16", "bf16", "q8_0"};

constexpr std::string_view name_of(KvType type) { return kKvTypeNames[static_cast<std::size_t>(type)]; }

}  // namespace keynest
