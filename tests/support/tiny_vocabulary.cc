#include "support/tiny_vocabulary.h"

#include <cstdio>

namespace keynest::test {
namespace {

enum TokenType : std::int32_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6
};

struct Vocabulary {
  std::vector<std::string> tokens;
  std::vector<std::int32_t> types;
  std::vector<float> scores;

  void add(const std::string& token, TokenType type, float score = 0) {
    tokens.push_back(token);
    types.push_back(type);
    scores.push_back(score);
  }
  void pad() {
    while (tokens.size() < static_cast<std::size_t>(kTinyVocabulary)) {
      add("<pad" + std::to_string(tokens.size()) + ">", kUnused);
    }
  }
};

std::vector<const char*> pointers(const std::vector<std::string>& texts) {
  std::vector<const char*> result;
  for (const std::string& text : texts) result.push_back(text.c_str());
  return result;
}

void set_texts(gguf_context* gguf, const char* key, const std::vector<std::string>& texts) {
  gguf_set_arr_str(gguf, key, pointers(texts).data(), texts.size());
}

void set_tokens(gguf_context* gguf, const Vocabulary& vocabulary) {
  set_texts(gguf, "tokenizer.ggml.tokens", vocabulary.tokens);
  gguf_set_arr_data(gguf, "tokenizer.ggml.token_type", GGUF_TYPE_INT32, vocabulary.types.data(),
                    vocabulary.types.size());
}

void set_sentence_piece(gguf_context* gguf, bool space_prefix) {
  Vocabulary vocabulary;
  vocabulary.add("<unk>", kUnknown);
  vocabulary.add("<s>", kControl);
  vocabulary.add("</s>", kControl);
  vocabulary.add("<|im_start|>", kControl);
  vocabulary.add("<|im_end|>", kControl);
  char name[8];
  for (int byte = 0; byte < 256; ++byte) {
    std::snprintf(name, sizeof(name), "<0x%02X>", byte);
    vocabulary.add(name, kByte);
  }
  float score = 0;
  const std::string space = "\xe2\x96\x81";
  for (const char* word : {"th", "the", "he", "in", "and", "is", "on"}) {
    vocabulary.add(word, kNormal, score -= 1);
    vocabulary.add(space + word, kNormal, score -= 1);
  }
  for (char letter = 'a'; letter <= 'z'; ++letter)
    vocabulary.add(std::string(1, letter), kNormal, score -= 1);
  vocabulary.add(space, kNormal, score -= 1);
  vocabulary.pad();
  gguf_set_val_str(gguf, "tokenizer.ggml.model", "llama");
  set_tokens(gguf, vocabulary);
  gguf_set_arr_data(gguf, "tokenizer.ggml.scores", GGUF_TYPE_FLOAT32, vocabulary.scores.data(),
                    vocabulary.scores.size());
  gguf_set_val_u32(gguf, "tokenizer.ggml.bos_token_id", 1);
  gguf_set_val_u32(gguf, "tokenizer.ggml.eos_token_id", 2);
  gguf_set_val_bool(gguf, "tokenizer.ggml.add_bos_token", true);
  gguf_set_val_bool(gguf, "tokenizer.ggml.add_space_prefix", space_prefix);
}

std::string utf8(int character) {
  if (character < 0x80) return std::string(1, static_cast<char>(character));
  return {static_cast<char>(0xC0 | (character >> 6)), static_cast<char>(0x80 | (character & 0x3F))};
}

/// The character a byte-level vocabulary writes for a byte: itself where printable, else from U+0100 on.
std::vector<std::string> byte_characters() {
  std::vector<std::string> characters;
  int next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
    characters.push_back(utf8(printable ? byte : next++));
  }
  return characters;
}

void set_byte_level(gguf_context* gguf, const std::string& pre) {
  Vocabulary vocabulary;
  const std::vector<std::string> bytes = byte_characters();
  for (const std::string& byte : bytes) vocabulary.add(byte, kNormal);
  const std::string& space = bytes[' '];
  std::vector<std::string> merges;
  const auto merge = [&](const std::string& left, const std::string& right) {
    merges.push_back(left + " " + right);
    vocabulary.add(left + right, kNormal);
  };
  merge("h", "e");
  merge(space, "t");
  merge(space + "t", "he");
  merge("i", "n");
  merge("a", "n");
  merge("an", "d");
  merge(space, "and");
  for (const char* name : {"<|endoftext|>", "<|im_start|>", "<|im_end|>"}) vocabulary.add(name, kControl);
  const auto end = static_cast<std::uint32_t>(vocabulary.tokens.size()) - 3;
  vocabulary.pad();
  gguf_set_val_str(gguf, "tokenizer.ggml.model", "gpt2");
  gguf_set_val_str(gguf, "tokenizer.ggml.pre", pre.c_str());
  set_tokens(gguf, vocabulary);
  set_texts(gguf, "tokenizer.ggml.merges", merges);
  gguf_set_val_u32(gguf, "tokenizer.ggml.bos_token_id", end);
  gguf_set_val_u32(gguf, "tokenizer.ggml.eos_token_id", end);
  gguf_set_val_bool(gguf, "tokenizer.ggml.add_bos_token", false);
}

}  // namespace

void set_tiny_vocabulary(gguf_context* gguf, const TinyModel& model) {
  if (model.tokenizer == TinyModel::Tokenizer::kSentencePiece) {
    set_sentence_piece(gguf, model.architecture != "gemma3");
  } else {
    set_byte_level(gguf, model.architecture.starts_with("qwen") ? "qwen2" : "gpt-2");
  }
  if (!model.chat_template.empty()) {
    gguf_set_val_str(gguf, "tokenizer.chat_template", model.chat_template.c_str());
  }
}

}  // namespace keynest::test
