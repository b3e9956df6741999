#include "policy/layer_allocation.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace keynest {

std::int32_t pyramid_budget(const PyramidShape& shape, int layer) {
  const double length = shape.length > 0 ? shape.length : std::numeric_limits<double>::infinity();
  const double total = (shape.window + shape.budget) - shape.window;  // rounds as the reference does
  double low = total / shape.beta;
  double high = total * 2 - low;
  if (high >= length - shape.window) {
    high = length - shape.window;
    low = total * 2 - high;
  }
  if (!(length >= high && high >= low && low >= shape.window)) {
    return std::max(1, static_cast<std::int32_t>(std::nearbyint(shape.budget)));
  }
  const double step = shape.layers > 1 ? (high - low) / (shape.layers - 1) : 0.0;
  return static_cast<std::int32_t>(std::nearbyint(high - layer * step));
}

}  // namespace keynest
