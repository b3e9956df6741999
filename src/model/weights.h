// Weights: which tensor goes into which memory, and the memory itself. A tensor stays mapped in the file
// unless ggml offers a rearranged form of it for the operation it is used in.
#pragma once

#include <ggml-backend.h>
#include <ggml.h>

#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "keynest/model.h"
#include "keynest/result.h"
#include "model/gguf_file.h"

namespace keynest {

/// How a graph reads a tensor; decides its types and its memory.
enum class WeightUse {
  kLookup,  ///< ggml_get_rows
  kMatrix,  ///< ggml_mul_mat
  kVector,  ///< F32 operand of ggml_mul, ggml_add, ggml_rope_ext
};

/// Tensors with their data. Owns the mapping and all buffers.
class Weights {
 public:
  Weights() = default;
  Weights(Weights&&) = default;
  Weights& operator=(Weights&&) = default;

 private:
  friend class WeightTable;
  struct Free {
    void operator()(ggml_context* context) const { ggml_free(context); }
    void operator()(ggml_backend_buffer* buffer) const { ggml_backend_buffer_free(buffer); }
  };

  std::unique_ptr<MappedFile> data_;
  std::vector<std::unique_ptr<ggml_context, Free>> contexts_;
  std::vector<std::unique_ptr<ggml_backend_buffer, Free>> buffers_;
};

/// Hands out the tensors of a file to an architecture, then loads them. Like Metadata it remembers the first
/// error.
class WeightTable {
 public:
  /// With `repack`, matrices that ggml multiplies go to its rearranged memory where it offers that.
  WeightTable(const GgufFile& file, bool repack, Gemm gemm);

  /// A tensor that must be there with exactly this shape, or null and an error. Taking one name for two uses
  /// gives one tensor where both can share memory, else two.
  ggml_tensor* take(const std::string& name, std::initializer_list<std::int64_t> shape, WeightUse use);
  /// Null when the file has none.
  ggml_tensor* take_optional(const std::string& name, std::initializer_list<std::int64_t> shape,
                             WeightUse use);

  bool has(const std::string& name) const { return file_.find_tensor(name) >= 0; }

  /// A tensor was taken that keynest's own products multiply.
  bool multiplies_natively() const { return multiplies_natively_; }

  /// Marks a tensor as known although nothing uses it.
  void ignore(const std::string& name);

  void fail(ErrorCode code, const std::string& message);
  const Status& status() const { return status_; }

  /// Loads everything taken. Errors: the first one so far; kUnsupported when the file holds tensors nobody
  /// took; kOutOfMemory. `data` must be the file's own.
  Result<Weights> load(std::unique_ptr<MappedFile> data);

 private:
  /// The tensors of one kind of memory; a null type means the mapping.
  struct Group {
    ggml_backend_buffer_type_t type = nullptr;
    std::unique_ptr<ggml_context, Weights::Free> context;
    std::vector<std::pair<ggml_tensor*, std::int64_t>> tensors;  ///< with their ids in the file
  };

  Group& group(ggml_backend_buffer_type_t type);
  ggml_backend_buffer_type_t choose(const TensorInfo& info, WeightUse use, bool native) const;
  bool check(const std::string& name, const TensorInfo& info, std::initializer_list<std::int64_t> shape,
             WeightUse use);
  Status check_all_taken() const;
  Status bind_mapping(Weights& weights, Group& group) const;
  Status copy(Weights& weights, Group& group) const;
  void settle_memory(const MappedFile& data) const;

  const GgufFile& file_;
  Gemm gemm_;
  std::vector<ggml_backend_buffer_type_t> extra_types_;
  std::vector<Group> groups_;
  std::vector<bool> taken_;
  bool multiplies_natively_ = false;
  Status status_;
};

}  // namespace keynest
