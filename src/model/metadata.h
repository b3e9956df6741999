// Typed reading of a GGUF file's metadata. Remembers the first thing that was wrong, so that a list of reads
// needs one check at its end.
#pragma once

#include <gguf.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "keynest/result.h"

namespace keynest {

class Metadata {
 public:
  /// Keys that start with '.' are those of the architecture: ".block_count" reads "llama.block_count".
  Metadata(const gguf_context* gguf, std::string architecture)
      : gguf_(gguf), architecture_(std::move(architecture)) {}

  bool has(std::string_view key) const { return find(key) >= 0; }

  /// A required key; 0 or empty once anything was wrong.
  std::uint32_t u32(std::string_view key);
  float f32(std::string_view key);
  std::string text(std::string_view key);

  /// An optional key; a wrong type is an error still.
  std::uint32_t u32(std::string_view key, std::uint32_t fallback);
  float f32(std::string_view key, float fallback);
  bool flag(std::string_view key, bool fallback);
  std::string text(std::string_view key, std::string_view fallback);

  /// One number for all layers, or an array of `layers` equal numbers.
  std::uint32_t u32_of_all_layers(std::string_view key, std::uint32_t layers);
  std::uint32_t u32_of_all_layers(std::string_view key, std::uint32_t layers, std::uint32_t fallback);

  /// An optional array of `count` booleans; empty when the key is missing or holds one number instead.
  std::vector<bool> flags(std::string_view key, std::size_t count);

  std::string full_key(std::string_view key) const;
  const gguf_context* gguf() const { return gguf_; }
  const std::string& architecture() const { return architecture_; }

  void fail(ErrorCode code, const std::string& message);
  const Status& status() const { return status_; }

 private:
  std::int64_t find(std::string_view key) const { return gguf_find_key(gguf_, full_key(key).c_str()); }
  std::int64_t find_typed(std::string_view key, gguf_type type, bool required);
  void wrong_type(std::string_view key, const std::string& wanted);

  const gguf_context* gguf_;
  std::string architecture_;
  Status status_;
};

}  // namespace keynest
