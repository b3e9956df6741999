#include "kernels/matmul.h"

namespace keynest {

void convert_rows(const WeightMatrix& w, int first_row, int rows, int column, int columns, float* out,
                  std::size_t out_stride) {
  for (int i = 0; i < rows; ++i) {
    w.to_float(w.data + static_cast<std::size_t>(first_row + i) * w.row_bytes + w.bytes_of(column),
               out + static_cast<std::size_t>(i) * out_stride, columns);
  }
}

int bf16_matmul_least_tokens(WeightFormat format) {
  switch (format) {
    case WeightFormat::kOther:
      return 64;  // conversion through float costs the most
    case WeightFormat::kQ8_0:
      return 2;
    case WeightFormat::kF16:
      return 3;
    case WeightFormat::kBF16:
      return 12;
    default:
      return 5;  // 8-bit products are as fast below
  }
}

int int8_panel_least_tokens(WeightFormat format) { return format == WeightFormat::kQ8_0 ? 5 : 4; }

}  // namespace keynest
