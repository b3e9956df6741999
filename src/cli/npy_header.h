// The header of an NPY file: a Python dictionary with three known keys.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "keynest/result.h"

namespace keynest::cli {

struct NpyHeader {
  std::string type;  ///< e.g. "<f4"
  bool fortran_order = false;
  std::vector<std::int64_t> shape;  ///< none negative
};

/// Errors (kInvalidFile): anything but {'descr': '...', 'fortran_order': True|False, 'shape': (...)}.
Result<NpyHeader> parse_npy_header(std::string_view text);

}  // namespace keynest::cli
