#include "bench/text.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>

namespace keynest::bench {
namespace {

namespace fs = std::filesystem;
constexpr const char* kLicences = "/usr/share/common-licenses";

}  // namespace

Result<std::string> licence_texts() {
  std::vector<fs::path> files;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(kLicences, error)) {
    if (entry.is_regular_file(error) && !entry.is_symlink(error)) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  std::ostringstream text;
  for (const auto& file : files) text << std::ifstream(file).rdbuf() << '\n';
  if (text.str().size() > files.size()) return text.str();
  return Error{ErrorCode::kIo, std::string(kLicences) + " holds no texts; give one with --text FILE"};
}

std::vector<Token> text_tokens(const Model& model, const std::string& text, std::size_t count) {
  std::string enough = text;
  auto tokens = model.tokenize(enough, true, false);
  while (tokens.size() < count && !tokens.empty()) {
    enough += enough;
    tokens = model.tokenize(enough, true, false);
  }
  tokens.resize(std::min(tokens.size(), count));
  return tokens;
}

std::string text_of(const Model& model, const std::string& text, std::size_t count) {
  const auto tokens = text_tokens(model, text, count + 64);
  std::string best;
  std::size_t take = count, distance = count + 1;
  // Read again, a text cut between two tokens may have a token more or less.
  for (int attempt = 0; attempt < 8 && distance > 0 && take <= tokens.size(); ++attempt) {
    std::string start;
    for (std::size_t i = 0; i < take; ++i) start += model.piece(tokens[i]);
    const std::size_t found = model.tokenize(start, true, true).size();
    const std::size_t off = found > count ? found - count : count - found;
    if (off < distance) {
      distance = off;
      best = std::move(start);
    }
    take = take + count - found;
  }
  return best;
}

}  // namespace keynest::bench
