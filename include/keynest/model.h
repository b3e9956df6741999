// A model from a GGUF file: weights, vocabulary, chat template.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "keynest/result.h"
#include "keynest/types.h"

namespace keynest {

/// Who multiplies blocks of tokens with weights. Native: keynest's own kernels, with weights as the file has
/// them: quantised ones in 8-bit integers where the CPU has AVX-512 VNNI, others in BF16 where it has AVX-512
/// BF16, else in F32. Auto: for each type of weights whoever was measured to be faster on such a CPU. BF16:
/// as native, but all in BF16, which is slower and nearer to the exact product; kUnsupported on a CPU
/// without.
enum class Gemm { kAuto, kGgml, kNative, kBf16 };

struct ModelOptions {
  Gemm gemm = Gemm::kAuto;
  /// Map weights from the file, which must then stay as it is while the model lives; false reads them into
  /// memory.
  bool use_mmap = true;
  /// Place weights in ggml's repacked / AMX buffers where it offers them for their type.
  bool repack = true;
};

/// What a user may want to know about a model.
struct ModelInfo {
  std::string path, name, architecture;
  std::int32_t layers = 0, heads = 0, kv_heads = 0, head_dim = 0, vocabulary = 0;
  std::int32_t trained_context = 0;         ///< tokens
  std::vector<std::int32_t> layer_windows;  ///< per layer: 0 = global attention, else the sliding window
  std::size_t weight_bytes = 0;
  std::string gemm;  ///< "native" or "ggml": who multiplies blocks of tokens
};

/// One turn of a conversation.
struct ChatMessage {
  std::string role;  ///< "system", "user" or "assistant"
  std::string content;
};

/// Immutable after loading; safe to share between threads and sessions.
class Model {
 public:
  /// Errors: kInvalidFile (missing, truncated, damaged, missing metadata), kUnsupported (architecture, tensor
  /// type), kOutOfMemory. The message names the file, what was found and what is supported.
  static Result<std::shared_ptr<const Model>> load(const std::string& path, const ModelOptions& options = {});
  virtual ~Model() = default;

  virtual const ModelInfo& info() const = 0;

  /// Text to tokens. Any bytes are accepted, valid UTF-8 or not, and the pieces of the tokens give them back,
  /// except that a byte the vocabulary has no token for becomes U+FFFD and that some vocabularies put a space
  /// in front. `add_special`: the vocabulary's BOS/EOS as it asks for them; `parse_special`: read
  /// "<|im_start|>" and the like as control tokens.
  virtual std::vector<Token> tokenize(std::string_view text, bool add_special, bool parse_special) const = 0;

  /// The bytes of one token (may be part of a UTF-8 character). Control tokens are empty unless `special`.
  virtual std::string piece(Token token, bool special = false) const = 0;

  /// True for end-of-generation tokens (EOS, EOT, ...).
  virtual bool is_end(Token token) const = 0;

  /// The template inside the file, or empty.
  virtual std::string chat_template() const = 0;

  /// Renders messages with `chat_template` (a template text or the name of a built-in one, e.g. "chatml";
  /// empty: the file's own, else chatml). Errors: unknown template; the message lists the built-in names.
  virtual Result<std::string> apply_chat_template(const std::vector<ChatMessage>& messages,
                                                  bool add_assistant,
                                                  const std::string& chat_template = {}) const = 0;
};

}  // namespace keynest
