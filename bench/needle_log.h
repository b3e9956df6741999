// The answers of the needle check as lines of JSON, so that a check can go on where it was stopped.
#pragma once

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "keynest/result.h"

namespace keynest::bench {

/// Fields that say which answer a line is; all others are what came out.
inline constexpr const char* kNeedleKey[] = {"model", "haystack", "tokens", "depths", "digits", "seed",
                                             "depth", "needle",   "policy", "budget", "block",  "most"};

class NeedleLog {
 public:
  /// Reads what `path` holds; with an empty path nothing is kept. A last line that is not whole is dropped.
  /// Errors: kIo when it cannot be written.
  static Result<NeedleLog> open(const std::string& path);

  /// The line with the key of `line`, or null.
  const nlohmann::json* find(const nlohmann::json& line) const;
  Status add(nlohmann::json line);

 private:
  std::string path_;
  std::ofstream file_;
  std::vector<nlohmann::json> lines_;
};

}  // namespace keynest::bench
