// The parts of a run between the command line and the session: processing a prompt, writing a reply.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cli/terminal.h"
#include "keynest/model.h"
#include "keynest/session.h"

namespace keynest::cli {

struct GenerateOptions {
  SamplingOptions sampling;
  std::int64_t max_tokens = 512;  ///< below 0 = no limit
  std::vector<std::string> stops;
  bool ignore_eos = false;
  bool keep_last = false;  ///< process the last token too, since the session goes on after it
};

enum class Finish {
  kEnd,          ///< the model ended the text
  kLimit,        ///< max_tokens
  kStop,         ///< a stop string
  kInterrupted,  ///< Ctrl-C
  kClosed,       ///< nobody reads the output any more
};

struct Reply {
  std::string text;
  std::int64_t tokens = 0;
  Finish finish = Finish::kEnd;
};

/// Processes prompt tokens with a progress bar. kCancelled after Ctrl-C or when the reader of `output` is
/// gone.
Status process_prompt(Session& session, std::span<const Token> tokens, Output& output, bool show_progress);

/// Generates after a processed prompt, streaming to `output`. What was written stays in `reply` also on an
/// error.
Status generate(const Model& model, Session& session, const GenerateOptions& options, Output& output,
                Reply& reply);

}  // namespace keynest::cli
