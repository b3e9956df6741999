#include "model/header_check.h"

#include <gguf.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>

namespace keynest {
namespace {

constexpr std::uint64_t kMaxNameLength = 65535;  // the format's limit
constexpr std::uint64_t kMaxTensors = 1 << 16;   // 27B models have about 1000; a description takes 400 bytes
constexpr std::uint64_t kMaxPairs = 1 << 16;
constexpr std::uint64_t kMinPairBytes = 8 + 1 + 4 + 1;    // length, key, type, value
constexpr std::uint64_t kMinTensorBytes = 8 + 4 + 4 + 8;  // length, dimensions, type, offset

/// Bytes of one element; 0 for strings, arrays and unknown types.
std::uint64_t fixed_size(std::uint32_t type) {
  switch (type) {
    case GGUF_TYPE_UINT8:
    case GGUF_TYPE_INT8:
    case GGUF_TYPE_BOOL:
      return 1;
    case GGUF_TYPE_UINT16:
    case GGUF_TYPE_INT16:
      return 2;
    case GGUF_TYPE_UINT32:
    case GGUF_TYPE_INT32:
    case GGUF_TYPE_FLOAT32:
      return 4;
    case GGUF_TYPE_UINT64:
    case GGUF_TYPE_INT64:
    case GGUF_TYPE_FLOAT64:
      return 8;
    default:
      return 0;
  }
}

/// A read position that fails once and stays failed.
class Cursor {
 public:
  explicit Cursor(std::span<const std::byte> bytes) : bytes_(bytes) {}

  std::uint64_t left() const { return bytes_.size() - at_; }
  std::size_t at() const { return at_; }
  bool ok() const { return ok_; }

  template <typename T>
  T read() {
    T value{};
    if (!take(sizeof(T))) return value;
    std::memcpy(&value, bytes_.data() + at_ - sizeof(T), sizeof(T));
    return value;
  }

  bool take(std::uint64_t count) {
    ok_ = ok_ && count <= left();
    if (ok_) at_ += count;
    return ok_;
  }

  bool take_string() { return take(read<std::uint64_t>()); }

  /// Names: what reads them takes a zero byte for their end, and aborts on empty ones.
  bool take_name() {
    const auto length = read<std::uint64_t>();
    ok_ = ok_ && length >= 1 && length <= kMaxNameLength;
    if (!take(length)) return false;
    return ok_ = std::memchr(bytes_.data() + at_ - length, 0, length) == nullptr;
  }

 private:
  std::span<const std::byte> bytes_;
  std::size_t at_ = 0;
  bool ok_ = true;
};

bool take_value(Cursor& in, std::uint32_t type) {
  if (type == GGUF_TYPE_STRING) return in.take_string();
  if (type != GGUF_TYPE_ARRAY) return fixed_size(type) != 0 && in.take(fixed_size(type));
  const auto element = in.read<std::uint32_t>();
  const auto count = in.read<std::uint64_t>();
  if (element == GGUF_TYPE_STRING) {
    if (count > in.left() / 8) return false;
    for (std::uint64_t i = 0; i < count && in.ok(); ++i) in.take_string();
    return in.ok();
  }
  const std::uint64_t size = fixed_size(element);
  return size != 0 && count <= in.left() / size && in.take(count * size);
}

bool take_pair(Cursor& in) { return in.take_name() && take_value(in, in.read<std::uint32_t>()) && in.ok(); }

bool take_tensor_info(Cursor& in) {
  if (!in.take_name()) return false;
  const auto dimensions = in.read<std::uint32_t>();
  return dimensions <= GGML_MAX_DIMS && in.take(dimensions * 8ull + 4 + 8);
}

Error damaged(const std::string& what, const Cursor& in) {
  return {ErrorCode::kInvalidFile,
          "truncated or damaged: " + what + " (at byte " + std::to_string(in.at()) + ")"};
}

Status check_version(std::uint32_t version) {
  if (version == 2 || version == 3) return {};
  return Error{ErrorCode::kUnsupported, "GGUF version " + std::to_string(version) +
                                            " cannot be read; versions 2 and 3 (little endian) can"};
}

}  // namespace

Status check_gguf_header(std::span<const std::byte> file) {
  Cursor in(file);
  const auto magic = in.read<std::uint32_t>();
  if (!in.ok() || std::memcmp(&magic, GGUF_MAGIC, 4) != 0) {
    return Error{ErrorCode::kInvalidFile, "not a GGUF file (it does not start with 'GGUF')"};
  }
  const auto version = in.read<std::uint32_t>();
  if (!in.ok()) return damaged("the header ends too early", in);
  KEYNEST_TRY(check_version(version));
  const auto tensors = in.read<std::uint64_t>();
  const auto pairs = in.read<std::uint64_t>();
  if (!in.ok()) return damaged("the header ends too early", in);
  if (pairs > std::min(kMaxPairs, in.left() / kMinPairBytes) ||
      tensors > std::min(kMaxTensors, in.left() / kMinTensorBytes)) {
    return damaged("it claims " + std::to_string(pairs) + " metadata keys and " + std::to_string(tensors) +
                       " tensors in " + std::to_string(file.size()) + " bytes",
                   in);
  }
  for (std::uint64_t i = 0; i < pairs; ++i) {
    if (!take_pair(in)) return damaged("metadata key " + std::to_string(i), in);
  }
  for (std::uint64_t i = 0; i < tensors; ++i) {
    if (!take_tensor_info(in)) return damaged("description of tensor " + std::to_string(i), in);
  }
  return {};
}

}  // namespace keynest
