// The JSON of --stats.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "keynest/stats.h"

namespace keynest::cli {

/// What --stats reports beside the session's own numbers.
struct RunRecord {
  std::string model;                  ///< the model file
  std::string text;                   ///< the generated text, as printed
  std::int64_t generated_tokens = 0;  ///< tokens of the text; the last one need not have been processed
};

/// One JSON object, indented, with a newline at its end. Bytes of the text that are no UTF-8 become U+FFFD.
std::string stats_json(const Stats& stats, const RunRecord& record);

/// The most memory this process has held; 0 where the system does not tell.
std::size_t peak_rss_bytes();

}  // namespace keynest::cli
