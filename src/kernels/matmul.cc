#include "kernels/matmul.h"

namespace keynest {

void convert_rows(const WeightMatrix& w, int first_row, int rows, int column, int columns, float* out,
                  std::size_t out_stride) {
  // A row's bytes are in proportion to its columns, as columns go by whole blocks.
  const std::size_t offset =
      w.row_bytes * static_cast<std::size_t>(column) / static_cast<std::size_t>(w.columns);
  for (int i = 0; i < rows; ++i) {
    w.to_float(w.data + static_cast<std::size_t>(first_row + i) * w.row_bytes + offset,
               out + static_cast<std::size_t>(i) * out_stride, columns);
  }
}

// Measured on a Zen 5 core beside ggml's own product; conversion through float costs the most.
int bf16_matmul_least_tokens(WeightFormat format) { return format == WeightFormat::kOther ? 64 : 16; }

}  // namespace keynest
