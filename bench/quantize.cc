// Writes a model with all its matrices in another type of weights, to measure speed by type. A file that is
// quantised already loses what it loses twice: for speed only, and with f32 a reference of the same weights.
#include <ggml.h>
#include <llama.h>

#include <cstdio>
#include <map>
#include <string>

namespace {

const std::map<std::string, llama_ftype> kTypes{
    {"f32", LLAMA_FTYPE_ALL_F32},          {"f16", LLAMA_FTYPE_MOSTLY_F16},
    {"bf16", LLAMA_FTYPE_MOSTLY_BF16},     {"q4_0", LLAMA_FTYPE_MOSTLY_Q4_0},
    {"q4_1", LLAMA_FTYPE_MOSTLY_Q4_1},     {"q5_0", LLAMA_FTYPE_MOSTLY_Q5_0},
    {"q5_1", LLAMA_FTYPE_MOSTLY_Q5_1},     {"q8_0", LLAMA_FTYPE_MOSTLY_Q8_0},
    {"q4_k", LLAMA_FTYPE_MOSTLY_Q4_K_S},   {"q5_k", LLAMA_FTYPE_MOSTLY_Q5_K_S},
    {"q6_k", LLAMA_FTYPE_MOSTLY_Q6_K},     {"iq4_nl", LLAMA_FTYPE_MOSTLY_IQ4_NL},
    {"q4_k_m", LLAMA_FTYPE_MOSTLY_Q4_K_M},
};

}  // namespace

int main(int argc, char** argv) {
  const auto type = argc == 4 ? kTypes.find(argv[3]) : kTypes.end();
  if (type == kTypes.end()) {
    std::fprintf(stderr, "usage: %s MODEL OUT TYPE; types:", argv[0]);
    for (const auto& [name, ftype] : kTypes) std::fprintf(stderr, " %s", name.c_str());
    std::fprintf(stderr, "\n");
    return 2;
  }
  const auto only_errors = [](ggml_log_level level, const char* text, void*) {
    if (level == GGML_LOG_LEVEL_ERROR) std::fputs(text, stderr);
  };
  llama_log_set(only_errors, nullptr);
  llama_model_quantize_params params = llama_model_quantize_default_params();
  params.ftype = type->second;
  params.allow_requantize = true;
  params.pure = type->first != "q4_k_m";
  return llama_model_quantize(argv[1], argv[2], &params) == 0 ? 0 : 1;
}
