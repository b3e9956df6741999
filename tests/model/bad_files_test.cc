// Files that are not models, or models that lie about themselves: an Error each, with a reason.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>

#include "support/models.h"
#include "support/tiny_gguf.h"
#include "support/tiny_vocabulary.h"

namespace keynest::test {
namespace {

void write_file(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

Error load_error(const std::string& path) {
  const auto model = Model::load(path);
  if (model.ok()) {
    ADD_FAILURE() << "loaded";
    return {};
  }
  EXPECT_NE(model.error().message.find(path), std::string::npos) << model.error().message;
  return model.error();
}

/// One way to spoil a model, and what the message must then say.
struct Case {
  std::string name;
  std::string says;
  ErrorCode code = ErrorCode::kInvalidFile;
  std::function<void(gguf_context*)> metadata;
  std::function<void(std::vector<TinyTensor>&)> tensors;
  std::string architecture = "llama";
};

void PrintTo(const Case& test, std::ostream* out) { *out << test.name; }

class BadModel : public testing::TestWithParam<Case> {};

TEST_P(BadModel, IsRefused) {
  const Case& test = GetParam();
  const TemporaryDirectory directory;
  const std::string path = directory.file("bad.gguf");
  const TinyModel tiny = tiny_model(test.architecture);
  std::vector<TinyTensor> tensors = tiny_tensors(tiny);
  if (test.tensors) test.tensors(tensors);
  ASSERT_TRUE(write_tiny_gguf(path, tiny, tensors, test.metadata));
  const Error error = load_error(path);
  EXPECT_EQ(error.code, test.code) << error.message;
  EXPECT_NE(error.message.find(test.says), std::string::npos) << error.message;
}

Case set_u32(const std::string& key, std::uint32_t value, const std::string& says,
             ErrorCode code = ErrorCode::kInvalidFile) {
  const auto name = key + "_" + std::to_string(value);
  return {name, says, code, [=](gguf_context* g) { gguf_set_val_u32(g, key.c_str(), value); }, {}};
}

Case set_f32(const std::string& key, float value, const std::string& says) {
  const auto name = key + (std::isnan(value) ? "_nan" : std::isinf(value) ? "_inf" : "_below_zero");
  return {name,
          says,
          ErrorCode::kInvalidFile,
          [=](gguf_context* g) { gguf_set_val_f32(g, key.c_str(), value); },
          {}};
}

Case set_text(const std::string& key, const std::string& value, const std::string& says, ErrorCode code) {
  return {key + "_" + value,
          says,
          code,
          [=](gguf_context* g) { gguf_set_val_str(g, key.c_str(), value.c_str()); },
          {}};
}

Case remove_key(const std::string& key) {
  return {"without_" + key,
          key,
          ErrorCode::kInvalidFile,
          [=](gguf_context* g) { gguf_remove_key(g, key.c_str()); },
          {}};
}

/// Every key must have its own type: here it becomes an array of bytes, and then a number of 64 bits.
std::vector<Case> wrong_types(const std::string& key) {
  static const std::uint8_t kBytes[3] = {1, 2, 3};
  const auto array = [=](gguf_context* g) { gguf_set_arr_data(g, key.c_str(), GGUF_TYPE_UINT8, kBytes, 3); };
  const auto number = [=](gguf_context* g) { gguf_set_val_f64(g, key.c_str(), 1.0); };
  return {{key + "_as_bytes", key, ErrorCode::kInvalidFile, array, {}},
          {key + "_as_f64", key, ErrorCode::kInvalidFile, number, {}}};
}

std::vector<Case> metadata_cases() {
  std::vector<Case> all;
  const auto add = [&](const std::vector<Case>& more) { all.insert(all.end(), more.begin(), more.end()); };
  for (const char* key :
       {"general.architecture", "llama.context_length", "llama.embedding_length", "llama.block_count",
        "llama.feed_forward_length", "llama.attention.head_count", "llama.attention.layer_norm_rms_epsilon",
        "tokenizer.ggml.model", "tokenizer.ggml.tokens"}) {
    all.push_back(remove_key(key));
    add(wrong_types(key));
  }
  for (const char* key :
       {"llama.attention.head_count_kv", "llama.attention.key_length", "llama.attention.value_length",
        "llama.rope.dimension_count", "llama.rope.freq_base", "llama.rope.scaling.type",
        "llama.rope.scaling.factor", "llama.rope.scaling.original_context_length",
        "llama.rope.scaling.attn_factor", "llama.expert_count", "llama.attention.causal",
        "tokenizer.ggml.scores", "tokenizer.ggml.token_type", "tokenizer.ggml.pre",
        "tokenizer.ggml.bos_token_id", "tokenizer.ggml.add_bos_token", "tokenizer.ggml.add_space_prefix",
        "tokenizer.chat_template", "general.name"}) {
    add(wrong_types(key));
  }
  const auto invalid = ErrorCode::kInvalidFile, unsupported = ErrorCode::kUnsupported;
  const std::uint32_t huge = std::numeric_limits<std::uint32_t>::max();
  add({set_text("general.architecture", "mamba", "supported are: llama, qwen2, qwen3, gemma3", unsupported),
       set_u32("split.count", 2, "split over files", unsupported),
       set_u32("llama.expert_count", 8, "mixture-of-experts", unsupported),
       set_u32("llama.block_count", 0, "llama.block_count"),
       set_u32("llama.block_count", huge, "llama.block_count"),
       set_u32("llama.block_count", 3, "blk.2."),
       set_u32("llama.block_count", 1, "blk.1.", unsupported),
       set_u32("llama.embedding_length", 0, "llama.embedding_length"),
       set_u32("llama.embedding_length", huge, "llama.embedding_length"),
       set_u32("llama.embedding_length", 128, "shape"),
       set_u32("llama.feed_forward_length", 0, "feed_forward_length"),
       set_u32("llama.feed_forward_length", 32, "shape"),
       set_u32("llama.context_length", 0, "context_length"),
       set_u32("llama.context_length", huge, "context_length"),
       set_u32("llama.attention.head_count", 0, "head_count"),
       set_u32("llama.attention.head_count", 5, "multiple"),
       set_u32("llama.attention.head_count", huge, "head_count"),
       set_u32("llama.attention.head_count_kv", 0, "head_count_kv"),
       set_u32("llama.attention.head_count_kv", 3, "multiple"),
       set_u32("llama.attention.head_count_kv", 4, "shape"),
       set_u32("llama.attention.key_length", 12, "must be equal", unsupported),
       set_u32("llama.attention.key_length", 0, "must be equal", unsupported),
       set_u32("llama.rope.dimension_count", 8, "rope rotates", unsupported),
       set_u32("llama.rope.dimension_count", 0, "rope rotates", unsupported),
       set_text("llama.rope.scaling.type", "longrope", "none, linear and yarn", unsupported),
       set_f32("llama.rope.freq_base", std::nanf(""), "rope"),
       set_f32("llama.rope.freq_base", -1, "rope"),
       set_f32("llama.rope.scaling.factor", INFINITY, "rope"),
       set_f32("llama.rope.scaling.factor", -2, "rope"),
       set_f32("llama.rope.scaling.attn_factor", std::nanf(""), "rope"),
       set_f32("llama.attention.layer_norm_rms_epsilon", std::nanf(""), "epsilon"),
       set_f32("llama.attention.layer_norm_rms_epsilon", -1, "epsilon"),
       set_text("tokenizer.ggml.model", "bert", "'llama' and 'gpt2'", unsupported),
       set_text("tokenizer.ggml.model", "gpt2", "tokenizer.ggml.merges", invalid),
       set_u32("tokenizer.ggml.bos_token_id", kTinyVocabulary, "bos_token_id"),
       set_u32("tokenizer.ggml.eos_token_id", huge, "eos_token_id"),
       set_u32("tokenizer.ggml.fim_pad_token_id", 1000, "fim_pad_token_id")});
  all.push_back({"heads_per_layer_differ",
                 "differs between layers",
                 unsupported,
                 [](gguf_context* g) {
                   const std::uint32_t heads[2] = {4, 2};
                   gguf_set_arr_data(g, "llama.attention.head_count", GGUF_TYPE_UINT32, heads, 2);
                 },
                 {}});
  all.push_back({"heads_of_too_few_layers",
                 "for 2 layers",
                 invalid,
                 [](gguf_context* g) {
                   const std::uint32_t heads[1] = {4};
                   gguf_set_arr_data(g, "llama.attention.head_count", GGUF_TYPE_UINT32, heads, 1);
                 },
                 {}});
  all.push_back({"odd_head_size",
                 "multiple of 8",
                 unsupported,
                 [](gguf_context* g) {
                   gguf_set_val_u32(g, "llama.attention.key_length", 12);
                   gguf_set_val_u32(g, "llama.attention.value_length", 12);
                 },
                 {}});
  all.push_back({"not_causal",
                 "causal",
                 unsupported,
                 [](gguf_context* g) { gguf_set_val_bool(g, "llama.attention.causal", false); },
                 {}});
  return all;
}

/// The file's own token list with token `id` replaced.
void replace_token(gguf_context* gguf, std::size_t id, const std::string& text,
                   std::size_t count = kTinyVocabulary) {
  const std::int64_t key = gguf_find_key(gguf, "tokenizer.ggml.tokens");
  std::vector<std::string> tokens;
  for (std::size_t i = 0; i < count; ++i) tokens.push_back(gguf_get_arr_str(gguf, key, i));
  if (id < count) tokens[id] = text;
  std::vector<const char*> pointers;
  for (const std::string& token : tokens) pointers.push_back(token.c_str());
  gguf_set_arr_str(gguf, "tokenizer.ggml.tokens", pointers.data(), pointers.size());
}

std::vector<Case> vocabulary_cases() {
  const auto invalid = ErrorCode::kInvalidFile, unsupported = ErrorCode::kUnsupported;
  const auto token = [=](const std::string& name, std::size_t id, const std::string& text,
                         const std::string& says, ErrorCode code) {
    return Case{name, says, code, [=](gguf_context* g) { replace_token(g, id, text); }, {}};
  };
  const auto scores = [=](const std::string& name, std::size_t count, float value, const std::string& says) {
    return Case{name,
                says,
                invalid,
                [=](gguf_context* g) {
                  const std::vector<float> values(count, value);
                  gguf_set_arr_data(g, "tokenizer.ggml.scores", GGUF_TYPE_FLOAT32, values.data(), count);
                },
                {}};
  };
  const auto types = [=](const std::string& name, std::size_t count, std::int32_t value,
                         const std::string& says, ErrorCode code = ErrorCode::kInvalidFile) {
    return Case{name,
                says,
                code,
                [=](gguf_context* g) {
                  const std::vector<std::int32_t> values(count, value);
                  gguf_set_arr_data(g, "tokenizer.ggml.token_type", GGUF_TYPE_INT32, values.data(), count);
                },
                {}};
  };
  const auto merge = [=](const std::string& name, const char* text) {
    return Case{name,
                "merge 0",
                invalid,
                [=](gguf_context* g) {
                  gguf_set_arr_str(g, "tokenizer.ggml.merges", const_cast<const char**>(&text), 1);
                },
                {},
                "qwen2"};
  };
  return {token("same_token_twice", 300, "th", "appears twice", invalid),
          {"name_of_an_empty_token",
           "appears twice",
           invalid,
           [](gguf_context* g) {
             replace_token(g, 301, "");
             replace_token(g, 302, "[EMPTY_301]");
           },
           {}},
          token("huge_token", 300, std::string(10000, 'x'), "implausible", invalid),
          token("no_byte_token", 5 + 0x41, "<lost>", "does not read like", invalid),
          {"too_few_tokens",
           "shape",
           invalid,
           [](gguf_context* g) {
             const auto* types = static_cast<const std::int32_t*>(
                 gguf_get_arr_data(g, gguf_find_key(g, "tokenizer.ggml.token_type")));
             const std::vector<std::int32_t> fewer(types, types + kTinyVocabulary - 1);
             replace_token(g, 1000, "", fewer.size());
             gguf_set_arr_data(g, "tokenizer.ggml.token_type", GGUF_TYPE_INT32, fewer.data(), fewer.size());
             gguf_remove_key(g, "tokenizer.ggml.scores");
           },
           {}},
          {"no_types",
           "token_type",
           invalid,
           [](gguf_context* g) { gguf_remove_key(g, "tokenizer.ggml.token_type"); },
           {}},
          types("no_byte_tokens", kTinyVocabulary, 1, "no byte token <0x00>", unsupported),
          scores("too_few_scores", kTinyVocabulary - 1, 0, "scores"),
          scores("too_many_scores", kTinyVocabulary + 1, 0, "scores"),
          scores("score_nan", kTinyVocabulary, std::nanf(""), "not a number"),
          types("too_few_types", kTinyVocabulary - 1, 1, "token types"),
          types("unknown_type", kTinyVocabulary, 7, "type 7"),
          types("negative_type", kTinyVocabulary, -1, "type -1"),
          types("all_are_bytes", kTinyVocabulary, 6, "does not read like"),
          merge("merge_of_one_part", "ab"),
          merge("merge_without_second_part", "a "),
          merge("empty_merge", ""),
          {"unknown_word_splitter",
           "unknown pre-tokenizer",
           unsupported,
           [](gguf_context* g) { gguf_set_val_str(g, "tokenizer.ggml.pre", "nothing"); },
           {},
           "qwen2"}};
}

std::vector<Case> tensor_cases() {
  const auto invalid = ErrorCode::kInvalidFile, unsupported = ErrorCode::kUnsupported;
  const auto find = [](std::vector<TinyTensor>& tensors, const std::string& name) {
    return std::find_if(tensors.begin(), tensors.end(), [&](const TinyTensor& t) { return t.name == name; });
  };
  std::vector<Case> all;
  for (const TinyTensor& tensor : tiny_tensors(tiny_model("llama"))) {
    const std::string name = tensor.name;
    all.push_back({"without_" + name, name, invalid, {}, [=](std::vector<TinyTensor>& tensors) {
                     tensors.erase(find(tensors, name));
                   }});
    all.push_back({"larger_" + name, name, invalid, {}, [=](std::vector<TinyTensor>& tensors) {
                     find(tensors, name)->shape.back() += 32;
                   }});
    all.push_back({"deeper_" + name, name, invalid, {}, [=](std::vector<TinyTensor>& tensors) {
                     find(tensors, name)->shape.resize(3, 2);
                   }});
  }
  all.push_back({"norm_of_other_type", "must be f32", unsupported, {}, [=](std::vector<TinyTensor>& tensors) {
                   find(tensors, "output_norm.weight")->type = GGML_TYPE_F16;
                 }});
  all.push_back({"unknown_tensor", "extra.weight", unsupported, {}, [](std::vector<TinyTensor>& tensors) {
                   tensors.push_back({"extra.weight", GGML_TYPE_F32, {8}});
                 }});
  all.push_back({"experts", "ffn_gate_inp", unsupported, {}, [](std::vector<TinyTensor>& tensors) {
                   tensors.push_back({"blk.0.ffn_gate_inp.weight", GGML_TYPE_F32, {64, 4}});
                 }});
  all.push_back({"wrong_rope_factors", "rope_freqs", invalid, {}, [](std::vector<TinyTensor>& tensors) {
                   tensors.push_back({"rope_freqs.weight", GGML_TYPE_F32, {4}});
                 }});
  all.push_back({"no_tensors", "token_embd.weight", invalid, {}, [](std::vector<TinyTensor>& tensors) {
                   tensors.clear();
                 }});
  return all;
}

std::vector<Case> gemma_cases() {
  std::vector<Case> all{
      set_u32("gemma3.attention.sliding_window", 0xFFFFFFFF, "sliding window"),
      set_f32("gemma3.rope.freq_base_swa", std::nanf(""), "rope base"),
      set_f32("gemma3.final_logit_softcapping", std::nanf(""), "cap on logits"),
      {"pattern_of_other_layers",
       "3 booleans",
       ErrorCode::kInvalidFile,
       [](gguf_context* g) {
         const std::int8_t flags[2] = {1, 0};
         gguf_set_arr_data(g, "gemma3.attention.sliding_window_pattern", GGUF_TYPE_BOOL, flags, 2);
       },
       {}},
      {"pattern_as_text",
       "sliding_window_pattern",
       ErrorCode::kInvalidFile,
       [](gguf_context* g) { gguf_set_val_str(g, "gemma3.attention.sliding_window_pattern", "6"); },
       {}}};
  for (Case& test : all) test.architecture = "gemma3";
  return all;
}

std::string test_name(const testing::TestParamInfo<Case>& test) {
  std::string name = test.param.name;
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
}

INSTANTIATE_TEST_SUITE_P(Metadata, BadModel, testing::ValuesIn(metadata_cases()), test_name);
INSTANTIATE_TEST_SUITE_P(Vocabulary, BadModel, testing::ValuesIn(vocabulary_cases()), test_name);
INSTANTIATE_TEST_SUITE_P(Tensors, BadModel, testing::ValuesIn(tensor_cases()), test_name);
INSTANTIATE_TEST_SUITE_P(Gemma, BadModel, testing::ValuesIn(gemma_cases()), test_name);

TEST(BadFile, MissingEmptyOrNoFile) {
  const TemporaryDirectory directory;
  EXPECT_NE(load_error(directory.file("missing.gguf")).message.find("No such file"), std::string::npos);
  EXPECT_NE(load_error(directory.path()).message.find("directory"), std::string::npos);
  ASSERT_EQ(mkfifo(directory.file("pipe.gguf").c_str(), 0600), 0);
  EXPECT_NE(load_error(directory.file("pipe.gguf")).message.find("regular file"), std::string::npos);
  write_file(directory.file("empty.gguf"), "");
  EXPECT_NE(load_error(directory.file("empty.gguf")).message.find("empty"), std::string::npos);
  write_file(directory.file("text.gguf"), "once upon a time there was a file that was no model");
  EXPECT_NE(load_error(directory.file("text.gguf")).message.find("not a GGUF file"), std::string::npos);
}

/// "GGUF", version, counts of tensors and keys, then `rest`.
std::string header(std::uint32_t version, std::uint64_t tensors, std::uint64_t keys,
                   const std::string& rest) {
  std::string bytes = "GGUF";
  bytes.append(reinterpret_cast<const char*>(&version), 4);
  bytes.append(reinterpret_cast<const char*>(&tensors), 8);
  bytes.append(reinterpret_cast<const char*>(&keys), 8);
  return bytes + rest;
}

std::string number(std::uint64_t value, std::size_t bytes) {
  return std::string(reinterpret_cast<const char*>(&value), bytes);
}

TEST(BadFile, AbsurdHeaders) {
  const TemporaryDirectory directory;
  const std::string path = directory.file("bad.gguf");
  const std::string key = number(1, 8) + "k";
  const std::vector<std::string> files{
      header(0, 0, 0, ""),
      header(1, 0, 0, ""),
      header(4, 0, 0, ""),
      header(0x03000000, 0, 0, ""),
      header(3, ~0ull, 0, std::string(100, '\0')),
      header(3, 0, ~0ull, std::string(100, '\0')),
      header(3, 1ull << 62, 1ull << 62, std::string(100, '\0')),
      header(3, 0, 1, number(~0ull, 8)),                                            // a key without end
      header(3, 0, 1, key + number(13, 4) + number(0, 8)),                          // an unknown type
      header(3, 0, 1, key + number(8, 4) + number(~0ull, 8)),                       // a text without end
      header(3, 0, 1, key + number(9, 4) + number(4, 4) + number(~0ull, 8)),        // an array without end
      header(3, 0, 1, key + number(9, 4) + number(12, 4) + number(1ull << 61, 8)),  // its bytes overflow
      header(3, 0, 1, key + number(9, 4) + number(8, 4) + number(1ull << 60, 8)),   // of texts
      header(3, 0, 1, key + number(9, 4) + number(9, 4) + number(1, 8)),            // of arrays
      header(3, 1, 0, key + number(5, 4) + std::string(80, '\1')),                  // five dimensions
      header(3, 1, 0, key + number(4, 4) + std::string(44, '\x7F')),              // more bytes than there are
      header(3, 0, 1, number(0, 8) + number(0, 4) + "a"),                         // a key without name
      header(3, 0, 1, number(2, 8) + std::string(2, '\0') + number(0, 4) + "a"),  // a name of zero bytes
      header(3, 0, 2, key + number(0, 4) + "a" + key + number(0, 4) + "b"),       // one key twice
  };
  for (std::size_t i = 0; i < files.size(); ++i) {
    write_file(path, files[i]);
    const Error error = load_error(path);
    EXPECT_TRUE(error.code == ErrorCode::kInvalidFile || error.code == ErrorCode::kUnsupported) << i;
  }
}

}  // namespace
}  // namespace keynest::test
