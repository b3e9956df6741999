#include "cli/npy.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <optional>

#include "cli/npy_header.h"

namespace keynest::cli {
namespace {

static_assert(std::endian::native == std::endian::little, "NPY data is read as it lies in the file");

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::size_t kMostHeaderBytes = 1 << 16;         // NumPy's own limit is of this order
constexpr std::size_t kReadBytes = std::size_t{1} << 24;  // memory grows with what really is in the file

Error bad_file(const std::string& name, const std::string& what) {
  return {ErrorCode::kInvalidFile, name + ": " + what};
}

bool read_exactly(std::istream& in, char* to, std::size_t count) {
  in.read(to, static_cast<std::streamsize>(count));
  return static_cast<std::size_t>(in.gcount()) == count;
}

Result<std::string> read_header_text(std::istream& in, const std::string& name) {
  unsigned char start[8];
  if (!read_exactly(in, reinterpret_cast<char*>(start), sizeof start) ||
      std::memcmp(start, kMagic.data(), kMagic.size()) != 0) {
    return bad_file(name, "is no NPY file; write it with numpy.save");
  }
  const int version = start[6];
  if (version < 1 || version > 3) {
    return bad_file(name, "has NPY version " + std::to_string(version) + "; versions 1 to 3 are read");
  }
  unsigned char length_bytes[4] = {};
  const std::size_t length_size = version == 1 ? 2 : 4;
  if (!read_exactly(in, reinterpret_cast<char*>(length_bytes), length_size)) {
    return bad_file(name, "ends inside its header");
  }
  std::uint32_t length = 0;
  std::memcpy(&length, length_bytes, sizeof length);
  if (length > kMostHeaderBytes) {
    return bad_file(name, "has a header of " + std::to_string(length) + " bytes; at most " +
                              std::to_string(kMostHeaderBytes) + " are read");
  }
  std::string text(length, '\0');
  if (!read_exactly(in, text.data(), text.size())) return bad_file(name, "ends inside its header");
  return text;
}

std::optional<std::size_t> number_bytes(std::string_view type) {
  if (type == "<f2") return 2;
  if (type == "<f4") return 4;
  return type == "<f8" ? std::optional<std::size_t>(8) : std::nullopt;
}

// Bytes of all numbers, or nothing when that overflows.
std::optional<std::size_t> data_bytes(const std::vector<std::int64_t>& shape, std::size_t each) {
  constexpr std::size_t kMost = std::numeric_limits<std::size_t>::max() / 16;
  std::size_t bytes = each;
  for (std::int64_t n : shape) {
    const auto count = static_cast<std::size_t>(n);
    if (count != 0 && bytes > kMost / count) return std::nullopt;
    bytes *= count;
  }
  return bytes;
}

// IEEE half precision.
float from_half(std::uint16_t half) {
  const int exponent = (half >> 10) & 31;
  const auto fraction = static_cast<float>(half & 0x3ff);
  float value = 0;
  if (exponent == 0) {
    value = std::ldexp(fraction, -24);
  } else if (exponent < 31) {
    value = std::ldexp(1024.0f + fraction, exponent - 25);
  } else {
    value = fraction == 0 ? std::numeric_limits<float>::infinity() : std::numeric_limits<float>::quiet_NaN();
  }
  return (half & 0x8000) != 0 ? -value : value;
}

template <typename T>
T load(const char* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

void append_floats(std::string_view bytes, std::size_t each, std::vector<float>& out) {
  for (std::size_t at = 0; at < bytes.size(); at += each) {
    const char* from = bytes.data() + at;
    if (each == 2) out.push_back(from_half(load<std::uint16_t>(from)));
    if (each == 4) out.push_back(load<float>(from));
    if (each == 8) out.push_back(static_cast<float>(load<double>(from)));
  }
}

Status read_data(std::istream& in, const std::string& name, std::size_t bytes, std::size_t each,
                 std::vector<float>& out) {
  std::string chunk(std::min(bytes, kReadBytes), '\0');
  for (std::size_t done = 0; done < bytes;) {
    const std::size_t count = std::min(bytes - done, chunk.size());
    if (!read_exactly(in, chunk.data(), count)) {
      return bad_file(name, "is truncated: its header promises " + std::to_string(bytes) +
                                " bytes of numbers, " +
                                std::to_string(done + static_cast<std::size_t>(in.gcount())) + " are there");
    }
    append_floats({chunk.data(), count}, each, out);
    done += count;
  }
  if (in.peek() != std::istream::traits_type::eof()) {
    return bad_file(name, "has bytes after the numbers that its header promises");
  }
  return {};
}

std::string npy_file(std::span<const std::int64_t> shape, std::string_view type, std::string_view data) {
  std::string header = "{'descr': '" + std::string(type) + "', 'fortran_order': False, 'shape': (";
  for (std::int64_t n : shape) header += std::to_string(n) + ", ";
  header += "), }";
  constexpr std::size_t kBefore = 10, kUnit = 64;
  header.append((kUnit - (kBefore + header.size() + 1) % kUnit) % kUnit, ' ');
  header += '\n';
  std::string file(kMagic);
  file += {'\x01', '\x00', static_cast<char>(header.size() & 255), static_cast<char>(header.size() >> 8)};
  return file.append(header).append(data);
}

template <typename T>
std::string_view as_bytes_view(std::span<const T> data) {
  return {reinterpret_cast<const char*>(data.data()), data.size_bytes()};
}

}  // namespace

Result<FloatArray> read_npy(std::istream& in, const std::string& name) {
  const auto text = read_header_text(in, name);
  if (!text) return text.error();
  const auto header = parse_npy_header(*text);
  if (!header) return bad_file(name, header.error().message);
  const auto each = number_bytes(header->type);
  if (!each) {
    return bad_file(name, "holds numbers of type " + header->type +
                              "; allowed: <f4 (also <f2, <f8), in NumPy array.astype('<f4')");
  }
  if (header->fortran_order) {
    return bad_file(name, "is in Fortran order; save numpy.ascontiguousarray(array)");
  }
  const auto bytes = data_bytes(header->shape, *each);
  if (!bytes) return bad_file(name, "has an impossible shape " + shape_text(header->shape));
  FloatArray array{header->shape, {}};
  KEYNEST_TRY(read_data(in, name, *bytes, *each, array.data));
  return array;
}

Result<FloatArray> read_npy_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return Error{ErrorCode::kIo, path + ": cannot be opened: " + std::strerror(errno)};
  return read_npy(in, path);
}

std::string npy_bytes(std::span<const std::int64_t> shape, std::span<const float> data) {
  return npy_file(shape, "<f4", as_bytes_view(data));
}

std::string npy_bytes(std::span<const std::int64_t> shape, std::span<const std::int32_t> data) {
  return npy_file(shape, "<i4", as_bytes_view(data));
}

std::string shape_text(std::span<const std::int64_t> shape) {
  std::string text = "[";
  for (std::int64_t n : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(n);
  return text += "]";
}

}  // namespace keynest::cli
