// Angular distances of keys from an anchor, in double: for methods that stretch small differences (NestedKV
// divides by the span of these numbers, which is 0.002 where keys are nearly parallel).
#pragma once

#include "kernels/page.h"

namespace keynest {

/// out[rows] = 1 - cos(key_i, anchor), cos as in cosine_keys; anchor: double [head_dim]. Everything in
/// double, the norms too.
void key_distances(const HeadRows& head, const double* anchor, double* out);

/// The same for the rows of one page; out has room for all 64, those beyond the page's count are undefined.
void key_distances_of_page(const HeadRows& head, int page, const double* anchor, double* out);

/// out[count, head_dim] = key / max(|key|, 1e-12) of rows [first, first + count), in double.
void read_unit_keys(const HeadRows& head, Row first, int count, double* out);

}  // namespace keynest
