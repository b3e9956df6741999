// A tiny model on disk, and what the library says about it, to compare the program with.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "keynest/session.h"
#include "support/tiny_gguf.h"

namespace keynest::test {

/// Tests that share one tiny model; its random weights never mean to end a text, so runs give --ignore-eos.
class Tiny : public testing::Test {
 protected:
  static constexpr int kTrainedContext = 64;

  static void SetUpTestSuite();
  static void TearDownTestSuite();

  /// Another file of the shared directory.
  static std::string file(const std::string& name) { return directory_->file(name); }
  static void write(const std::string& name, const std::string& content);
  static std::string read(const std::string& name);

  /// `keynest COMMAND -m MODEL -t 1 --ignore-eos ...`
  static std::vector<std::string> command(const std::string& name, std::vector<std::string> more);
  static std::vector<std::string> run_command(std::vector<std::string> more) {
    return command("run", std::move(more));
  }

  /// The greedy text after `tokens` through the library, `count` tokens of it.
  static std::string continue_text(const std::vector<Token>& tokens, int count);
  static std::vector<Token> tokens(const std::string& text) { return model_->tokenize(text, true, true); }

  static std::unique_ptr<TemporaryDirectory> directory_;
  static std::shared_ptr<const Model> model_;
};

bool holds(const std::string& text, const std::string& part);

/// Part of the text as --stop understands it, whatever the bytes.
std::string escaped(const std::string& bytes);

}  // namespace keynest::test
