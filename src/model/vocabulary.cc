#include "model/vocabulary.h"

#include <algorithm>

#include "model/engine_guard.h"

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
  const std::int64_t prefix = gguf_find_key(gguf, "tokenizer.ggml.add_space_prefix");
  vocabulary->study_tokens(prefix < 0 ? vocabulary->sentence_piece() : gguf_get_val_bool(gguf, prefix));
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

void Vocabulary::study_tokens(bool space_prefix) {
  byte_tokens_.fill(LLAMA_TOKEN_NULL);
  cuts_ = {.after_newline = !space_prefix, .before_space = true, .drop_space = space_prefix};
  const int kind = sentence_piece() ? LLAMA_TOKEN_ATTR_BYTE : LLAMA_TOKEN_ATTR_NORMAL | LLAMA_TOKEN_ATTR_BYTE;
  for (Token token = size() - 1; token >= 0; --token) {
    const std::string bytes = piece(token, true);
    cuts_.see_token(bytes);
    const bool plain = (llama_vocab_get_attr(get(), token) & kind) != 0;
    if (plain && bytes.size() == 1) byte_tokens_[static_cast<unsigned char>(bytes[0])] = token;
  }
  if (!sentence_piece()) append_text("\xEF\xBF\xBD", false, replacement_);
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
