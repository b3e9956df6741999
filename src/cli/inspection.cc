#include "cli/inspection.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "cli/text_stream.h"

namespace keynest::cli {
namespace {

double dot(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (std::size_t j = 0; j < a.size(); ++j) sum += double{a[j]} * double{b[j]};
  return sum;
}

}  // namespace

std::string valid_utf8(std::string_view text) {
  using Json = nlohmann::json;
  const std::string quoted = Json(std::string(text)).dump(-1, ' ', false, Json::error_handler_t::replace);
  return Json::parse(quoted).get<std::string>();
}

std::vector<std::string> token_texts(const Model& model, const std::vector<Token>& tokens) {
  std::vector<std::string> texts;
  std::string held;
  for (const Token token : tokens) {
    held += model.piece(token, true);
    const bool last = texts.size() + 1 == tokens.size();
    const std::size_t tail = last ? 0 : incomplete_utf8_tail(held);
    texts.push_back(valid_utf8(std::string_view(held).substr(0, held.size() - tail)));
    held.erase(0, held.size() - tail);
  }
  return texts;
}

Result<InspectedRun> read_heads(const Session& session, const ModelInfo& info) {
  InspectedRun run{session.stats(), {}};
  for (int layer = 0; layer < info.layers; ++layer) {
    auto& heads = run.heads.emplace_back();
    for (int head = 0; head < info.kv_heads; ++head) {
      auto report = session.inspect(layer, head);
      if (!report) return report.error();
      heads.push_back(std::move(*report));
    }
  }
  return run;
}

std::vector<float> kept_share(const InspectedRun& run, std::size_t tokens) {
  std::vector<float> share(tokens);
  std::size_t heads = 0;
  for (const auto& layer : run.heads) {
    for (const HeadReport& head : layer) {
      ++heads;
      for (const Position p : head.positions) ++share[static_cast<std::size_t>(to_int(p))];
    }
  }
  for (float& s : share) s /= static_cast<float>(std::max<std::size_t>(heads, 1));
  return share;
}

std::vector<std::vector<float>> anchor_cosines(const std::vector<HeadReport>& heads) {
  std::vector<std::vector<float>> cosines;
  for (const HeadReport& a : heads) {
    auto& row = cosines.emplace_back();
    for (const HeadReport& b : heads) {
      const double norms = std::sqrt(dot(a.anchor, a.anchor) * dot(b.anchor, b.anchor));
      row.push_back(static_cast<float>(norms > 0 ? dot(a.anchor, b.anchor) / norms : 0.0));
    }
  }
  return cosines;
}

}  // namespace keynest::cli
