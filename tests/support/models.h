// Loading models in tests.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>

#include "model/graph.h"

namespace keynest::test {

/// Null, and a failed test, when the file does not load. All products are ggml's, so that logits can be
/// compared with libllama's to the bit.
inline std::shared_ptr<const GraphModel> load_model(const std::string& path, ModelOptions options = {}) {
  options.gemm = Gemm::kGgml;
  auto model = Model::load(path, options);
  if (!model) {
    ADD_FAILURE() << model.error().message;
    return nullptr;
  }
  return std::dynamic_pointer_cast<const GraphModel>(*model);
}

/// The path of a real model under KEYNEST_MODELS_DIR; empty when it is not there, and the test should skip
/// itself.
inline std::string real_model_path(const std::string& file) {
  const char* directory = std::getenv("KEYNEST_MODELS_DIR");
  if (directory == nullptr) return {};
  const std::string path = std::string(directory) + "/" + file;
  return std::filesystem::exists(path) ? path : std::string();
}

}  // namespace keynest::test
