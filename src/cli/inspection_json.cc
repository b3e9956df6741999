#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "cli/inspection.h"

namespace keynest::cli {
namespace {

/// Fields in the order they are added; single precision, so that numbers are printed as short as they are.
using Json = nlohmann::basic_json<nlohmann::ordered_map, std::vector, std::string, bool, std::int64_t,
                                  std::uint64_t, float>;

Json positions_json(const std::vector<Position>& positions) {
  Json json = Json::array();
  for (const Position p : positions) json.push_back(to_int(p));
  return json;
}

float length(const std::vector<float>& x) {
  double sum = 0;
  for (const float v : x) sum += double{v} * double{v};
  return static_cast<float>(std::sqrt(sum));
}

Json head_json(const HeadReport& head, std::size_t layer, std::size_t kv_head) {
  return {{"layer", layer},
          {"kv_head", kv_head},
          {"entries", head.positions.size()},
          {"positions", positions_json(head.positions)},
          {"scores", head.scores},  // NaN is printed as null
          {"cosines", head.cosines},
          {"anchor_length", length(head.anchor)}};
}

Json run_json(const InspectedRun& run, std::size_t tokens) {
  Json heads = Json::array(), anchors = Json::array();
  for (std::size_t layer = 0; layer < run.heads.size(); ++layer) {
    anchors.push_back(anchor_cosines(run.heads[layer]));
    for (std::size_t head = 0; head < run.heads[layer].size(); ++head) {
      heads.push_back(head_json(run.heads[layer][head], layer, head));
    }
  }
  return {{"policy", run.stats.policy},
          {"budget", run.stats.budget},
          {"evictions", run.stats.evictions},
          {"cache_bytes", run.stats.cache.bytes},
          {"full_bytes", run.stats.cache.full_bytes},
          {"kept_share", kept_share(run, tokens)},
          {"heads", std::move(heads)},
          {"anchor_cosines", std::move(anchors)}};
}

}  // namespace

std::string inspection_json(const Inspection& inspection) {
  const ModelInfo& model = inspection.model;
  Json runs = Json::array();
  for (const InspectedRun& run : inspection.runs) runs.push_back(run_json(run, inspection.tokens.size()));
  const Json json = {
      {"format", "keynest-inspect"},
      {"version", 1},
      {"model", model.path},
      {"name", model.name},
      {"layers", model.layers},
      {"kv_heads", model.kv_heads},
      {"head_dim", model.head_dim},
      {"layer_windows", model.layer_windows},
      {"block", inspection.runs.empty() ? 0 : inspection.runs.front().stats.block},
      {"tokens", inspection.tokens},
      {"texts", inspection.pieces},
      {"runs", std::move(runs)},
  };
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace keynest::cli
