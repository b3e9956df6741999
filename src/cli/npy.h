// NumPy's array files (.npy): what is read is checked as a stranger's file would be, what is written opens in
// NumPy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "keynest/result.h"

namespace keynest::cli {

/// Numbers of a .npy file, converted to float (from <f2, <f4 or <f8).
struct FloatArray {
  std::vector<std::int64_t> shape;
  std::vector<float> data;  ///< C order
};

/// Reads versions 1 to 3. Errors (kInvalidFile, naming `name`): not an NPY file, damaged header, other number
/// types or byte order, Fortran order, more numbers than memory addresses, fewer or more bytes than the shape
/// says.
Result<FloatArray> read_npy(std::istream& in, const std::string& name);
Result<FloatArray> read_npy_file(const std::string& path);

/// The bytes of a version 1 file.
std::string npy_bytes(std::span<const std::int64_t> shape, std::span<const float> data);
std::string npy_bytes(std::span<const std::int64_t> shape, std::span<const std::int32_t> data);

/// "[2, 37, 16]".
std::string shape_text(std::span<const std::int64_t> shape);

}  // namespace keynest::cli
