// How a budget is shared over layers.
#pragma once

#include <cstdint>

namespace keynest {

struct PyramidShape {
  int layers = 1;
  double length = 0;   ///< tokens of the prompt; 0 = unknown
  double budget = 0;   ///< entries per head, average over the layers
  double window = 64;  ///< no layer gets less
  double beta = 20;    ///< the last layer gets budget / beta
};

/// N of one layer: falls linearly with depth; the sum over the layers is layers * budget up to rounding (half
/// to even). The same for every layer where the slope would leave a layer below `window` or above the length.
/// Cai et al., "PyramidKV: Dynamic KV Cache Compression based on Pyramidal Information Funneling",
/// section 4.2, in the form of golden/reference.py (pyramid_budget).
std::int32_t pyramid_budget(const PyramidShape& shape, int layer);

}  // namespace keynest
