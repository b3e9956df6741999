// Writes tiny models with random weights as GGUF files: small enough to load in milliseconds, whole enough
// for libllama.
#pragma once

#include <ggml.h>
#include <gguf.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace keynest::test {

/// What to write. The defaults give a llama of 60 thousand weights.
struct TinyModel {
  enum class Tokenizer { kSentencePiece, kByteLevel };

  std::string architecture = "llama";
  Tokenizer tokenizer = Tokenizer::kSentencePiece;
  ggml_type type = GGML_TYPE_F32;  ///< of the matrices; vectors are F32
  int layers = 2, embedding = 64, heads = 4, kv_heads = 2, head_dim = 16, feed_forward = 96;
  int trained_context = 64;
  bool tied = true;         ///< no output matrix of its own
  bool biases = false;      ///< on queries, keys and values
  bool head_norms = false;  ///< on queries and keys
  bool rope_factors = false;
  std::string rope_scaling;  ///< "", "none", "linear", "yarn"
  float rope_factor = 2.0f;
  float rope_attention = 0.0f;  ///< what rope multiplies into its result; 0 leaves the key out
  float rope_base = 10000.0f;
  int window = 0;   ///< sliding window, gemma3 only
  int pattern = 0;  ///< every n-th layer is global; 0 leaves the key out
  float softcap = 0.0f;
  std::string chat_template;
  std::uint32_t seed = 1;
};

/// Defaults of an architecture: tokenizer, biases, norms, window as its real models have them.
TinyModel tiny_model(const std::string& architecture);

/// One tensor of the file; the shape in ggml's order.
struct TinyTensor {
  std::string name;
  ggml_type type = GGML_TYPE_F32;
  std::vector<std::int64_t> shape;
};

/// The tensors the architecture needs, in file order.
std::vector<TinyTensor> tiny_tensors(const TinyModel& model);

/// Writes the file; tests of bad files change the metadata or the tensors before. False when it cannot be
/// written.
bool write_tiny_gguf(const std::string& path, const TinyModel& model);
bool write_tiny_gguf(const std::string& path, const TinyModel& model, const std::vector<TinyTensor>& tensors,
                     const std::function<void(gguf_context*)>& edit_metadata);

/// A directory that is removed with everything in it when the object goes.
class TemporaryDirectory {
 public:
  TemporaryDirectory();
  ~TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace keynest::test
