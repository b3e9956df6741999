#include "model/vocabulary_check.h"

#include <cctype>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <deque>
#include <unordered_set>

namespace keynest {
namespace {

constexpr std::size_t kMaxTokenBytes = 8192;
constexpr std::size_t kMaxPrintedBytes = std::size_t{256} << 20;  // see check_tokens

constexpr std::int32_t kByteType = 6;  // the last of the format's token types

const std::string kPrefix = "tokenizer.ggml.";

/// An array under "tokenizer.ggml.NAME", checked to hold `type`; its id is negative when missing or wrong.
struct Array {
  std::int64_t id = -1;
  std::size_t size = 0;
};

Array find_array(Metadata& metadata, const std::string& name, gguf_type type, bool required) {
  const std::string key = kPrefix + name;
  const gguf_context* gguf = metadata.gguf();
  const std::int64_t id = gguf_find_key(gguf, key.c_str());
  if (id < 0 && !required) return {};
  if (id < 0 || gguf_get_kv_type(gguf, id) != GGUF_TYPE_ARRAY || gguf_get_arr_type(gguf, id) != type) {
    metadata.fail(ErrorCode::kInvalidFile,
                  "metadata key '" + key + "' must be an array of " + gguf_type_name(type));
    return {};
  }
  return {id, gguf_get_arr_n(gguf, id)};
}

/// libllama calls an empty token "[EMPTY_<id>]", and aborts when two tokens read the same.
bool check_unique(Metadata& metadata, const Array& tokens) {
  std::unordered_set<std::string_view> seen;
  std::deque<std::string> names_of_empty;
  seen.reserve(tokens.size);
  for (std::size_t i = 0; i < tokens.size; ++i) {
    std::string_view text = gguf_get_arr_str(metadata.gguf(), tokens.id, i);
    if (text.empty()) text = names_of_empty.emplace_back("[EMPTY_" + std::to_string(i) + "]");
    if (seen.insert(text).second) continue;
    metadata.fail(ErrorCode::kInvalidFile, "token " + std::to_string(i) + " of the vocabulary appears twice");
    return false;
  }
  return true;
}

/// Lengths: libllama prints each token once per character of it that is no byte of a byte-level vocabulary,
/// so a few long tokens could take all memory.
bool check_lengths(Metadata& metadata, const Array& tokens) {
  std::size_t printed = 0;
  for (std::size_t i = 0; i < tokens.size; ++i) {
    const char* text = gguf_get_arr_str(metadata.gguf(), tokens.id, i);
    const std::size_t length = std::strlen(text);
    std::size_t wide = 0;
    for (std::size_t j = 0; j < length; ++j) wide += (static_cast<unsigned char>(text[j]) & 0xC0) == 0xC0;
    printed += wide * length;
    if (length <= kMaxTokenBytes && printed <= kMaxPrintedBytes) continue;
    metadata.fail(ErrorCode::kInvalidFile, "token " + std::to_string(i) + " of the vocabulary has " +
                                               std::to_string(length) + " bytes, which is implausible");
    return false;
  }
  return true;
}

void check_scores(Metadata& metadata, std::size_t tokens) {
  const std::string key = kPrefix + "scores";
  const std::int64_t id = gguf_find_key(metadata.gguf(), key.c_str());
  if (id < 0) return;
  const Array scores = find_array(metadata, "scores", GGUF_TYPE_FLOAT32, true);
  if (scores.id < 0) return;
  if (scores.size != tokens) {
    metadata.fail(ErrorCode::kInvalidFile, "the vocabulary has " + std::to_string(tokens) + " tokens and " +
                                               std::to_string(scores.size) + " scores");
    return;
  }
  const auto* values = static_cast<const float*>(gguf_get_arr_data(metadata.gguf(), scores.id));
  for (std::size_t i = 0; i < tokens; ++i) {
    if (!std::isnan(values[i])) continue;
    metadata.fail(ErrorCode::kInvalidFile, "the score of token " + std::to_string(i) + " is not a number");
    return;
  }
}

bool is_hex(char c) { return std::isxdigit(static_cast<unsigned char>(c)) != 0; }

/// "<0xAB>"
bool names_byte(const char* text) {
  return std::strlen(text) == 6 && std::strncmp(text, "<0x", 3) == 0 && is_hex(text[3]) && is_hex(text[4]) &&
         text[5] == '>';
}

void check_types(Metadata& metadata, const Array& tokens) {
  const Array types = find_array(metadata, "token_type", GGUF_TYPE_INT32, false);
  if (types.id < 0) return;
  if (types.size != tokens.size) {
    metadata.fail(ErrorCode::kInvalidFile, "the vocabulary has " + std::to_string(tokens.size) +
                                               " tokens and " + std::to_string(types.size) + " token types");
    return;
  }
  const auto* values = static_cast<const std::int32_t*>(gguf_get_arr_data(metadata.gguf(), types.id));
  for (std::size_t i = 0; i < types.size; ++i) {
    const bool known = values[i] >= 0 && values[i] <= kByteType;
    if (known && (values[i] != kByteType || names_byte(gguf_get_arr_str(metadata.gguf(), tokens.id, i))))
      continue;
    metadata.fail(ErrorCode::kInvalidFile,
                  "token " + std::to_string(i) + " of the vocabulary has type " + std::to_string(values[i]) +
                      (known ? " (byte) but does not read like <0x0A>" : "; 0 to 6 exist"));
    return;
  }
}

void check_merges(Metadata& metadata) {
  const Array merges = find_array(metadata, "merges", GGUF_TYPE_STRING, true);
  for (std::size_t i = 0; merges.id >= 0 && i < merges.size; ++i) {
    const char* text = gguf_get_arr_str(metadata.gguf(), merges.id, i);
    const char* space = *text == '\0' ? nullptr : std::strchr(text + 1, ' ');
    if (space != nullptr && space[1] != '\0') continue;
    metadata.fail(ErrorCode::kInvalidFile,
                  "merge " + std::to_string(i) + " of the vocabulary has no two parts");
    return;
  }
}

void check_special_ids(Metadata& metadata, std::size_t tokens) {
  constexpr const char* kNames[] = {"bos",     "eos",     "eot",     "eom",     "unknown", "seperator",
                                    "padding", "mask",    "fim_pre", "fim_suf", "fim_mid", "fim_pad",
                                    "fim_rep", "fim_sep", "prefix",  "suffix",  "middle"};
  for (const char* name : kNames) {
    const std::string key = kPrefix + name + "_token_id";
    const std::uint32_t id = metadata.u32(key, 0);
    if (id < tokens) continue;
    metadata.fail(ErrorCode::kInvalidFile, "metadata key '" + key + "' is " + std::to_string(id) +
                                               "; the vocabulary has " + std::to_string(tokens) + " tokens");
  }
}

/// Byte tokens stand for whatever the vocabulary has no other token for; libllama finds them by their names.
void check_byte_tokens(Metadata& metadata, const Array& tokens) {
  const Array types = find_array(metadata, "token_type", GGUF_TYPE_INT32, true);
  if (types.id < 0 || types.size != tokens.size) return;
  const auto* values = static_cast<const std::int32_t*>(gguf_get_arr_data(metadata.gguf(), types.id));
  std::unordered_set<std::string> bytes;
  for (std::size_t i = 0; i < tokens.size; ++i) {
    if (values[i] == kByteType) bytes.insert(gguf_get_arr_str(metadata.gguf(), tokens.id, i));
  }
  char name[8];
  for (int byte = 0; byte < 256; ++byte) {
    std::snprintf(name, sizeof(name), "<0x%02X>", byte);
    if (bytes.contains(name)) continue;
    metadata.fail(ErrorCode::kUnsupported, std::string("the vocabulary has no byte token ") + name +
                                               "; one for every byte is needed to read any text");
    return;
  }
}

}  // namespace

void check_vocabulary(Metadata& metadata) {
  const std::string model = metadata.text(kPrefix + "model");
  if (metadata.status().ok() && model != "llama" && model != "gpt2") {
    metadata.fail(ErrorCode::kUnsupported,
                  "tokenizer '" + model + "' is not supported; 'llama' and 'gpt2' are");
  }
  metadata.text(kPrefix + "pre", "");
  metadata.text("tokenizer.chat_template", "");
  for (const char* name : {"add_bos_token", "add_eos_token", "add_sep_token", "add_space_prefix"}) {
    metadata.flag(kPrefix + name, false);
  }
  const Array tokens = find_array(metadata, "tokens", GGUF_TYPE_STRING, true);
  if (tokens.id < 0 || !check_lengths(metadata, tokens) || !check_unique(metadata, tokens)) return;
  check_scores(metadata, tokens.size);
  check_types(metadata, tokens);
  check_special_ids(metadata, tokens.size);
  if (model == "gpt2") check_merges(metadata);
  if (model == "llama") check_byte_tokens(metadata, tokens);
}

}  // namespace keynest
