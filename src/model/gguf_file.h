// An opened GGUF file whose header was checked: metadata, and where every tensor's bytes are.
#pragma once

#include <gguf.h>

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "keynest/result.h"
#include "model/mapped_file.h"

namespace keynest {

/// Where a tensor lies in the file, and what it claims to be. Its bytes are inside the file.
struct TensorInfo {
  ggml_type type = GGML_TYPE_F32;
  std::array<std::int64_t, GGML_MAX_DIMS> shape{};
  std::size_t offset = 0, bytes = 0;  ///< from the start of the file
};

class GgufFile {
 public:
  /// Errors: kInvalidFile, kUnsupported, kOutOfMemory; the message names the file.
  static Result<std::unique_ptr<GgufFile>> open(const std::string& path, bool use_mmap);

  const gguf_context* gguf() const { return gguf_.get(); }
  const MappedFile& data() const { return *data_; }
  std::unique_ptr<MappedFile> release_data() { return std::move(data_); }

  std::int64_t tensor_count() const { return gguf_get_n_tensors(gguf()); }
  std::int64_t find_tensor(const std::string& name) const { return gguf_find_tensor(gguf(), name.c_str()); }
  TensorInfo tensor(std::int64_t id) const;

 private:
  struct Free {
    void operator()(gguf_context* context) const { gguf_free(context); }
  };

  Status check_tensors() const;

  std::unique_ptr<MappedFile> data_;
  std::unique_ptr<gguf_context, Free> gguf_;
};

}  // namespace keynest
