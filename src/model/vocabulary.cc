#include "model/vocabulary.h"

#include <algorithm>
#include <limits>

#include "model/engine_logs.h"
#include "model/utf8.h"

namespace keynest {
namespace {

struct FreeGguf {
  void operator()(gguf_context* context) const { gguf_free(context); }
};
using GgufPointer = std::unique_ptr<gguf_context, FreeGguf>;

/// What libllama needs of a file to read its vocabulary, and nothing else of it.
GgufPointer vocabulary_metadata(const gguf_context* file) {
  GgufPointer copy(gguf_init_empty());
  gguf_set_kv(copy.get(), file);
  for (std::int64_t i = gguf_get_n_kv(copy.get()) - 1; i >= 0; --i) {
    const std::string key = gguf_get_key(copy.get(), i);
    if (!key.starts_with("tokenizer.") && key != "general.architecture")
      gguf_remove_key(copy.get(), key.c_str());
  }
  return copy;
}

void no_tensor_data(ggml_tensor*, void*) {}

}  // namespace

Result<std::unique_ptr<Vocabulary>> Vocabulary::load(const gguf_context* gguf) {
  silence_engine_logs();
  take_engine_error();
  llama_model_params params = llama_model_default_params();
  params.vocab_only = true;
  params.n_gpu_layers = 0;
  auto vocabulary = std::make_unique<Vocabulary>();
  const GgufPointer metadata = vocabulary_metadata(gguf);
  vocabulary->model_.reset(llama_model_init_from_user(metadata.get(), no_tensor_data, nullptr, params));
  if (!vocabulary->model_) {
    return Error{ErrorCode::kUnsupported, "the vocabulary cannot be read: " + take_engine_error()};
  }
  KEYNEST_TRY(vocabulary->check_added_tokens());
  vocabulary->find_byte_tokens();
  return vocabulary;
}

Status Vocabulary::check_added_tokens() const {
  if (llama_vocab_get_add_bos(get()) && llama_vocab_bos(get()) == LLAMA_TOKEN_NULL) {
    return Error{ErrorCode::kInvalidFile,
                 "the vocabulary asks for a token at the start of texts but names none"};
  }
  if (llama_vocab_get_add_eos(get()) && llama_vocab_eos(get()) == LLAMA_TOKEN_NULL) {
    return Error{ErrorCode::kInvalidFile,
                 "the vocabulary asks for a token at the end of texts but names none"};
  }
  return {};
}

void Vocabulary::find_byte_tokens() {
  byte_tokens_.fill(LLAMA_TOKEN_NULL);
  for (Token token = size() - 1; token >= 0; --token) {
    const bool plain =
        (llama_vocab_get_attr(get(), token) & (LLAMA_TOKEN_ATTR_NORMAL | LLAMA_TOKEN_ATTR_BYTE)) != 0;
    char byte;
    if (!plain || llama_token_to_piece(get(), token, &byte, 1, 0, false) != 1) continue;
    byte_tokens_[static_cast<unsigned char>(byte)] = token;
  }
}

std::vector<Token> Vocabulary::tokenize(std::string_view text, bool add_special, bool parse_special) const {
  std::vector<Token> tokens;
  if (add_special && llama_vocab_get_add_bos(get())) tokens.push_back(llama_vocab_bos(get()));
  if (llama_vocab_type(get()) == LLAMA_VOCAB_TYPE_SPM) {
    append_text(text, parse_special, tokens);  // has byte tokens and keeps invalid bytes by itself
  } else {
    while (!text.empty()) {
      const std::size_t valid = valid_utf8_prefix(text);
      append_text(text.substr(0, valid), parse_special, tokens);
      text.remove_prefix(valid);
      const std::size_t invalid = invalid_utf8_prefix(text);
      append_bytes(text.substr(0, invalid), tokens);
      text.remove_prefix(invalid);
    }
  }
  if (add_special && llama_vocab_get_add_eos(get())) tokens.push_back(llama_vocab_eos(get()));
  return tokens;
}

void Vocabulary::append_text(std::string_view text, bool parse_special, std::vector<Token>& out) const {
  if (text.empty()) return;
  const std::size_t before = out.size();
  std::size_t room = text.size() / 3 + 16;
  for (;;) {
    out.resize(before + room);
    const std::int32_t count =
        llama_tokenize(get(), text.data(), static_cast<std::int32_t>(text.size()), out.data() + before,
                       static_cast<std::int32_t>(room), false, parse_special);
    out.resize(before + static_cast<std::size_t>(std::max(count, 0)));
    if (count >= 0 || count == std::numeric_limits<std::int32_t>::min()) return;
    room = static_cast<std::size_t>(-count);
  }
}

void Vocabulary::append_bytes(std::string_view bytes, std::vector<Token>& out) const {
  for (const char byte : bytes) {
    const Token token = byte_tokens_[static_cast<unsigned char>(byte)];
    if (token != LLAMA_TOKEN_NULL) out.push_back(token);
  }
}

std::string Vocabulary::piece(Token token, bool special) const {
  if (token < 0 || token >= size()) return {};
  std::string text(32, '\0');
  std::int32_t length =
      llama_token_to_piece(get(), token, text.data(), static_cast<std::int32_t>(text.size()), 0, special);
  if (length < 0) {
    text.resize(static_cast<std::size_t>(-length));
    length = llama_token_to_piece(get(), token, text.data(), -length, 0, special);
  }
  text.resize(static_cast<std::size_t>(std::max(length, 0)));
  return text;
}

bool Vocabulary::is_end(Token token) const {
  return token >= 0 && token < size() && llama_vocab_is_eog(get(), token);
}

}  // namespace keynest
