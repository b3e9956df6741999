// Angular distances of keys from an anchor, in double: for methods that stretch small differences (NestedKV
// divides by the span of these numbers, which is 0.002 where keys are nearly parallel).
#pragma once

#include "kernels/page.h"

namespace keynest {

/// out[rows] = 1 - cos(key_i, anchor), cos as in cosine_keys; anchor: double [head_dim]. Everything in
/// double, the norms too.
void key_distances(const HeadRows& head, const double* anchor, double* out);

}  // namespace keynest
