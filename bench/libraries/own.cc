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

/// Equal matrices as a file would have them.
class Copies {
 public:
  Copies(const Weights& w, int count)
      : matrix_{nullptr, w.row_bytes, w.n, w.k, format_of(w.type), ggml_get_type_traits(w.type)->to_float},
        bytes_(w.stored.size()),
        stored_(bytes_ * static_cast<std::size_t>(count)) {
    for (int copy = 0; copy < count; ++copy) std::memcpy(at(copy), w.stored.data(), bytes_);
  }

  WeightMatrix of(int copy) const {
    WeightMatrix matrix = matrix_;
    matrix.data = at(copy);
    return matrix;
  }

 private:
  std::byte* at(int copy) const { return stored_.as<std::byte>() + static_cast<std::size_t>(copy) * bytes_; }

  WeightMatrix matrix_;
  std::size_t bytes_;
  Aligned stored_;
};

int panel_rows(const WeightMatrix& matrix, int first) { return std::min(kPanelRows, matrix.rows - first); }

/// The matrices and what a BF16 panel of them needs.
class Panels {
 public:
  Panels(const Weights& w, int copies) : matrices_(w, copies), scratch_(bf16_matmul_scratch_bytes()) {}

  void multiply(int copy, const std::uint16_t* x, int tokens, float* y) const {
    const WeightMatrix whole = matrices_.of(copy);
    for (int row = 0; row < whole.rows; row += kPanelRows) panel(whole, row, x, tokens, y);
  }

  void multiply(int copy, const std::uint16_t* x, const PanelTimes& times, float* y) const {
    const WeightMatrix whole = matrices_.of(copy);
    for (int row = 0; row < whole.rows; row += kPanelRows) {
      for (int column = 0; column < whole.columns; column += kPanelDepth) {
        WeightMatrix part = whole;
        part.columns = std::min(kPanelDepth, whole.columns - column);
        part.data += whole.bytes_of(column);
        panel(part, row, x, 0, y);  // no tokens: the panel is made and left in the scratch
        times(scratch_.as<std::uint16_t>(), panel_rows(whole, row), column, part.columns, x + column,
              y + row);
      }
    }
  }

 private:
  void panel(const WeightMatrix& matrix, int row, const std::uint16_t* x, int tokens, float* y) const {
    bf16_matmul_panel(matrix, row, panel_rows(matrix, row), x, tokens, y,
                      static_cast<std::size_t>(matrix.rows), scratch_.as<void>());
  }

  Copies matrices_;
  Aligned scratch_;
};

/// The matrices, with their rounded activations, of products in 8 bits.
class Bytes {
 public:
  Bytes(const Weights& w, int copies, int tokens)
      : matrices_(w, copies),
        tokens_(tokens),
        rounded_(int8_panel_rounded_bytes(w.k, tokens)),
        scratch_(int8_panel_scratch_bytes()) {}

  void multiply(int copy, const float* x, float* y) const {
    const WeightMatrix matrix = matrices_.of(copy);
    int8_panel_round(x, matrix.columns, tokens_, 0, 1, rounded_.as<void>());
    for (int row = 0; row < matrix.rows; row += kPanelRows) {
      int8_matmul_panel(matrix, row, panel_rows(matrix, row), rounded_.as<void>(), tokens_, y,
                        static_cast<std::size_t>(matrix.rows), scratch_.as<void>());
    }
  }

 private:
  Copies matrices_;
  int tokens_;
  Aligned rounded_, scratch_;
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
