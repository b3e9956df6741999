#include "model/gguf_file.h"

#include <algorithm>

#include "model/engine_guard.h"
#include "model/header_check.h"

namespace keynest {
namespace {

Error in_file(const std::string& path, const Error& error) {
  return {error.code, "model file '" + path + "': " + error.message};
}

}  // namespace

Result<std::unique_ptr<GgufFile>> GgufFile::open(const std::string& path, bool use_mmap) {
  silence_engine_logs();
  auto data = MappedFile::open(path, use_mmap);
  if (!data) return data.error();
  auto file = std::make_unique<GgufFile>();
  file->data_ = std::move(data).value();
  const std::span<const std::byte> bytes = file->data_->bytes();
  if (Status status = check_gguf_header(bytes); !status) return in_file(path, status.error());
  take_engine_error();
  file->gguf_.reset(gguf_init_from_buffer(bytes.data(), bytes.size(), {.no_alloc = true, .ctx = nullptr}));
  if (!file->gguf_) return in_file(path, {ErrorCode::kInvalidFile, "damaged header: " + take_engine_error()});
  if (Status status = file->check_tensors(); !status) return in_file(path, status.error());
  return file;
}

TensorInfo GgufFile::tensor(std::int64_t id) const {
  TensorInfo info;
  info.type = gguf_get_tensor_type(gguf(), id);
  std::copy_n(gguf_get_tensor_ne(gguf(), id), GGML_MAX_DIMS, info.shape.begin());
  info.offset = gguf_get_data_offset(gguf()) + gguf_get_tensor_offset(gguf(), id);
  info.bytes = gguf_get_tensor_size(gguf(), id);
  return info;
}

Status GgufFile::check_tensors() const {
  const std::size_t size = data_->bytes().size();
  const std::size_t start = gguf_get_data_offset(gguf());
  for (std::int64_t id = 0; id < tensor_count(); ++id) {
    const std::size_t offset = gguf_get_tensor_offset(gguf(), id), bytes = gguf_get_tensor_size(gguf(), id);
    if (start <= size && offset <= size - start && bytes <= size - start - offset) continue;
    return Error{ErrorCode::kInvalidFile,
                 std::string("truncated: tensor '") + gguf_get_tensor_name(gguf(), id) + "' needs bytes " +
                     std::to_string(start + offset) + " to " + std::to_string(start + offset + bytes) +
                     " of a file of " + std::to_string(size) + "; download or copy it again"};
  }
  return {};
}

}  // namespace keynest
