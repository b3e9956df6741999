// Writing and moving entries inside pages.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/page.h"

namespace keynest {

/// Writes `count` new entries at rows [first, first + count) of `head`, whose pages must exist. Converts to
/// the page's type, computes inverse norms from the stored (rounded) key, sets positions, zeroes policy
/// state.
///   keys, values: entry i at keys + i * stride, [head_dim] float.
/// `head.rows` must be at least first + count.
void write_rows(const HeadRows& head, Row first, int count, const float* keys, std::size_t key_stride,
                const float* values, std::size_t value_stride, const Position* positions);

/// Replaces the key of one entry, [head_dim], and its inverse norm.
void write_key(const HeadRows& head, Row row, const float* key);

/// Copies the whole entry at `from` (key, value, position, norm, policy state) over the one at `to`.
void move_row(const HeadRows& head, Row from, Row to);

/// Exchanges two whole entries.
void swap_rows(const HeadRows& head, Row a, Row b);

/// Reads one entry's key / value back as float [head_dim].
void read_key(const HeadRows& head, Row row, float* out);
void read_value(const HeadRows& head, Row row, float* out);

}  // namespace keynest
