// keynest's own panels, alone and with another library's multiplication.
#pragma once

#include <functional>
#include <optional>

#include "harness.h"

namespace keynest::bench {

/// A panel [depth / 2, kPanelRows, 2], made of `rows` rows of columns [column, column + depth), times all
/// tokens of x: written to y where column is 0, added otherwise.
///   x: BF16 [tokens, k], from `column` on; y: [tokens, n], from the panel's first row on.
using PanelTimes = std::function<void(const std::uint16_t* panel, int rows, int column, int depth,
                                      const std::uint16_t* x, float* y)>;

/// BF16 panels made by keynest's kernel and multiplied by `times`, or by keynest's kernel where that is
/// empty.
Product panel_product(const Weights& weights, int copies, int tokens, PanelTimes times);

/// keynest's panels of 8-bit integers; none for types and CPUs without.
std::optional<Product> byte_product(const Weights& weights, int copies, int tokens);

}  // namespace keynest::bench
