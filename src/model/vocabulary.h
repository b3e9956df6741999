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
#include "model/text_chunks.h"

namespace keynest {

class Vocabulary {
 public:
  /// `gguf` has passed check_vocabulary. Errors: kUnsupported, kInvalidFile with libllama's reason.
  static Result<std::unique_ptr<Vocabulary>> load(const gguf_context* gguf);

  const llama_vocab* get() const { return llama_model_get_vocab(model_.get()); }
  std::int32_t size() const { return llama_vocab_n_tokens(get()); }

  /// The pieces of the tokens, put together, are `text` again, byte by byte; but a character with bytes that
  /// a byte-level vocabulary has no token for becomes U+FFFD, and SentencePiece vocabularies may put a space
  /// in front.
  std::vector<Token> tokenize(std::string_view text, bool add_special, bool parse_special) const;
  std::string piece(Token token, bool special) const;
  bool is_end(Token token) const;

 private:
  struct Free {
    void operator()(llama_model* model) const { llama_model_free(model); }
  };
  using Tokens = std::vector<Token>;

  Status check_added_tokens() const;
  void study_tokens(bool space_prefix);
  bool sentence_piece() const { return llama_vocab_type(get()) == LLAMA_VOCAB_TYPE_SPM; }

  std::size_t plain_character(std::string_view text) const;
  void append_sentence_piece(std::string_view text, bool parse_special, Tokens& out) const;
  void append_byte_level(std::string_view text, bool parse_special, Tokens& out) const;
  void append_odd_bytes(std::string_view bytes, Tokens& out) const;
  void append_text(std::string_view text, bool parse_special, Tokens& out) const;
  void append_chunk(std::string_view text, bool parse_special, Tokens& out) const;
  bool try_chunk(std::string_view text, bool parse_special, Tokens& out) const;

  std::unique_ptr<llama_model, Free> model_;
  std::array<Token, 256> byte_tokens_{};  ///< the token of every single byte, -1 where there is none
  Tokens replacement_;                    ///< the tokens of U+FFFD
  CutRules cuts_;
};

}  // namespace keynest
