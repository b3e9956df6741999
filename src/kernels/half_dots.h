// Products of few tokens, a single one above all, with rows of F16 or BF16: in F32, nothing rounded.
#pragma once

#include "kernels/matmul.h"

namespace keynest {

bool half_dots_supported(WeightFormat format);

/// out[token, first_row + i] for rows [first_row, first_row + rows) of the matrix; activations [tokens,
/// columns], out [tokens, out_stride].
void half_dots(const WeightMatrix& weights, int first_row, int rows, const float* activations, int tokens,
               float* out, std::size_t out_stride);

}  // namespace keynest
