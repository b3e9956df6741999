// Sums over a head's keys, in double.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/page.h"

namespace keynest {

/// out[head_dim] = sum over rows of key.
void sum_keys(const HeadRows& head, double* out);

/// out[head_dim] = sum over rows of key / max(|key|, 1e-12). Begins with head.unit_sum, if there is one, and
/// reads the rows after head.summed_rows alone; `out` may be that sum itself.
///
/// Every addend is a stored number times its row's inverse norm, rounded to float and then to a multiple of
/// 2^-26. Sums of those are exact (in double below 2^27, so for as many keys at least). So the sum is the
/// same bits in any order, on every machine, and when keys that were added are taken out again: what a store
/// maintains is what a pass over all rows finds. Rounding changes the mean by 2^-27 at most, less than float
/// keys do.
///
/// A key that holds NaN or infinity makes the whole sum NaN.
void sum_unit_keys(const HeadRows& head, double* out);

/// Whether a sum of unit keys is worth maintaining through an eviction of `gone` of `rows` entries: not where
/// taking keys out one by one costs more than summing all.
bool keeps_unit_sum(std::int32_t rows, std::int32_t gone);

/// sum[head_dim] -= what these rows add to the sum of sum_unit_keys. Their keys must be finite.
void subtract_unit_keys(const HeadRows& head, std::span<const Row> rows, double* sum);

}  // namespace keynest
