#include "own.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "kernels/matmul.h"

namespace keynest::bench {
namespace {

WeightFormat format_of(ggml_type type) {
  switch (type) {
    case GGML_TYPE_Q4_0:
      return WeightFormat::kQ4_0;
    case GGML_TYPE_Q5_0:
      return WeightFormat::kQ5_0;
    case GGML_TYPE_Q8_0:
      return WeightFormat::kQ8_0;
    case GGML_TYPE_Q4_K:
      return WeightFormat::kQ4_K;
    case GGML_TYPE_Q6_K:
      return WeightFormat::kQ6_K;
    case GGML_TYPE_BF16:
      return WeightFormat::kBF16;
    default:
      return WeightFormat::kOther;
  }
}

/// Equal matrices as a file would have them, and what a panel of them needs.
class Panels {
 public:
  Panels(const Weights& w, int copies)
      : matrix_{nullptr, w.row_bytes, w.n, w.k, format_of(w.type), ggml_get_type_traits(w.type)->to_float},
        type_(w.type),
        matrix_bytes_(w.stored.size()),
        matrices_(matrix_bytes_ * static_cast<std::size_t>(copies)),
        scratch_(bf16_matmul_scratch_bytes()) {
    for (int copy = 0; copy < copies; ++copy) std::memcpy(at(copy), w.stored.data(), matrix_bytes_);
  }

  void multiply(int copy, const std::uint16_t* x, int tokens, float* y) const {
    WeightMatrix whole = matrix_;
    whole.data = at(copy);
    for (int row = 0; row < whole.rows; row += kPanelRows) panel(whole, row, x, tokens, y);
  }

  void multiply(int copy, const std::uint16_t* x, const PanelTimes& times, float* y) const {
    for (int row = 0; row < matrix_.rows; row += kPanelRows) {
      for (int column = 0; column < matrix_.columns; column += kPanelDepth) {
        WeightMatrix part = matrix_;
        part.columns = std::min(kPanelDepth, matrix_.columns - column);
        part.data = at(copy) + ggml_row_size(type_, column);
        panel(part, row, x, 0, y);  // no tokens: the panel is made and left in the scratch
        times(scratch_.as<std::uint16_t>(), rows(row), column, part.columns, x + column, y + row);
      }
    }
  }

 private:
  std::byte* at(int copy) const {
    return matrices_.as<std::byte>() + static_cast<std::size_t>(copy) * matrix_bytes_;
  }
  int rows(int first) const { return std::min(kPanelRows, matrix_.rows - first); }
  void panel(const WeightMatrix& matrix, int row, const std::uint16_t* x, int tokens, float* y) const {
    bf16_matmul_panel(matrix, row, rows(row), x, tokens, y, static_cast<std::size_t>(matrix.rows),
                      scratch_.as<void>());
  }

  WeightMatrix matrix_;
  ggml_type type_;
  std::size_t matrix_bytes_;
  Aligned matrices_, scratch_;
};

/// The matrices, with their rounded activations, of products in 8 bits.
class Bytes {
 public:
  Bytes(const Weights& w, int copies, int tokens)
      : matrix_{nullptr, w.row_bytes, w.n, w.k, format_of(w.type), nullptr},
        tokens_(tokens),
        matrix_bytes_(w.stored.size()),
        matrices_(matrix_bytes_ * static_cast<std::size_t>(copies)),
        rounded_(int8_panel_rounded_bytes(w.k, tokens)),
        scratch_(int8_panel_scratch_bytes()) {
    for (int copy = 0; copy < copies; ++copy) std::memcpy(at(copy), w.stored.data(), matrix_bytes_);
  }

  void multiply(int copy, const float* x, float* y) const {
    WeightMatrix matrix = matrix_;
    matrix.data = at(copy);
    int8_panel_round(x, matrix.columns, tokens_, 0, 1, rounded_.as<void>());
    for (int row = 0; row < matrix.rows; row += kPanelRows) {
      int8_matmul_panel(matrix, row, std::min(kPanelRows, matrix.rows - row), rounded_.as<void>(), tokens_, y,
                        static_cast<std::size_t>(matrix.rows), scratch_.as<void>());
    }
  }

 private:
  std::byte* at(int copy) const {
    return matrices_.as<std::byte>() + static_cast<std::size_t>(copy) * matrix_bytes_;
  }

  WeightMatrix matrix_;
  int tokens_;
  std::size_t matrix_bytes_;
  Aligned matrices_, rounded_, scratch_;
};

}  // namespace

std::optional<Product> byte_product(const Weights& weights, int copies, int tokens) {
  if (!int8_matmul_supported(format_of(weights.type), weights.k)) return std::nullopt;
  auto bytes = std::make_shared<Bytes>(weights, copies, tokens);
  return Product{[bytes](int copy, const float* x, float* y) { bytes->multiply(copy, x, y); },
                 int8_panel_scratch_bytes()};
}

Product panel_product(const Weights& weights, int copies, int tokens, PanelTimes times) {
  auto panels = std::make_shared<Panels>(weights, copies);
  const std::size_t count = static_cast<std::size_t>(tokens) * static_cast<std::size_t>(weights.k);
  auto rounded = std::make_shared<Aligned>(count * sizeof(std::uint16_t));
  const auto run = [=](int copy, const float* x, float* y) {
    auto* bf16 = rounded->as<std::uint16_t>();
    to_bf16(x, bf16, count);
    if (times) return panels->multiply(copy, bf16, times, y);
    panels->multiply(copy, bf16, tokens, y);
  };
  return {run, bf16_matmul_scratch_bytes()};
}

}  // namespace keynest::bench
