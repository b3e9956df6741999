// What `keynest inspect` found out, and its two forms: JSON and a page.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "keynest/model.h"
#include "keynest/session.h"

namespace keynest::cli {

/// One policy over the prompt.
struct InspectedRun {
  Stats stats;
  std::vector<std::vector<HeadReport>> heads;  ///< [layers][kv_heads]
};

struct Inspection {
  ModelInfo model;
  std::vector<Token> tokens;        ///< the prompt
  std::vector<std::string> pieces;  ///< [tokens] see token_texts
  std::vector<InspectedRun> runs;
};

/// The text of every token, valid UTF-8. A character cut over several tokens is shown with the one that ends
/// it; bytes that are no character become U+FFFD. Together they are the text.
std::vector<std::string> token_texts(const Model& model, const std::vector<Token>& tokens);

/// `text` with bytes that are part of no UTF-8 character replaced by U+FFFD.
std::string valid_utf8(std::string_view text);

/// Reads all heads of a session that has processed the prompt.
Result<InspectedRun> read_heads(const Session& session, const ModelInfo& info);

/// [tokens] share of all (layer, KV head) that keep each position.
std::vector<float> kept_share(const InspectedRun& run, std::size_t tokens);

/// cos between the anchors of the heads of one layer, [kv_heads][kv_heads].
std::vector<std::vector<float>> anchor_cosines(const std::vector<HeadReport>& heads);

/// The JSON of --json (docs/cli.md), on one line with a newline at its end.
std::string inspection_json(const Inspection& inspection);

/// The page of --html, whole: nothing it needs is outside.
std::string inspection_page(const Inspection& inspection);

}  // namespace keynest::cli
