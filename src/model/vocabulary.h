// Text to tokens and back, through libllama's vocabulary. Every byte string is accepted.
#pragma once

#include <gguf.h>
#include <llama.h>

#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "keynest/result.h"
#include "keynest/types.h"

namespace keynest {

class Vocabulary {
 public:
  /// `gguf` has passed check_vocabulary. Errors: kUnsupported, kInvalidFile with libllama's reason.
  static Result<std::unique_ptr<Vocabulary>> load(const gguf_context* gguf);

  const llama_vocab* get() const { return llama_model_get_vocab(model_.get()); }
  std::int32_t size() const { return llama_vocab_n_tokens(get()); }

  std::vector<Token> tokenize(std::string_view text, bool add_special, bool parse_special) const;
  std::string piece(Token token, bool special) const;
  bool is_end(Token token) const;

 private:
  struct Free {
    void operator()(llama_model* model) const { llama_model_free(model); }
  };

  Status check_added_tokens() const;
  void find_byte_tokens();
  void append_text(std::string_view text, bool parse_special, std::vector<Token>& out) const;
  void append_bytes(std::string_view bytes, std::vector<Token>& out) const;

  std::unique_ptr<llama_model, Free> model_;
  std::array<Token, 256> byte_tokens_{};  ///< the token of every single byte, -1 where there is none
};

}  // namespace keynest
