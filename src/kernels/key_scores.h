// Passes over a head's keys that key-only policies are made of. All are O(rows * head_dim) and read the keys
// as stored. Sums of keys: kernels/key_sums.h.
#pragma once

#include <cstdint>

#include "kernels/page.h"

namespace keynest {

/// out[rows] = key_i . anchor (anchor: float [head_dim]).
void dot_keys(const HeadRows& head, const float* anchor, float* out);

/// out[rows] = cos(key_i, anchor) = key_i . anchor / (max(|key_i|, 1e-8) * max(|anchor|, 1e-8)).
void cosine_keys(const HeadRows& head, const float* anchor, float* out);

/// out[rows] = |key_i - anchor|.
void distance_keys(const HeadRows& head, const float* anchor, float* out);

/// out[rows] = |key_i|.
void norm_keys(const HeadRows& head, float* out);

}  // namespace keynest
