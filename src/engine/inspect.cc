// What a session shows of one head: entries, their last scores, and how alike their keys are.
#include <algorithm>
#include <limits>
#include <numeric>
#include <string>

#include "engine/session_impl.h"
#include "kernels/key_scores.h"
#include "kernels/key_sums.h"

namespace keynest {
namespace {

constexpr float kNone = std::numeric_limits<float>::quiet_NaN();

/// Rows of a head in the order of their positions.
std::vector<Row> by_position(const HeadRows& rows) {
  std::vector<Row> order(static_cast<std::size_t>(rows.rows));
  for (std::int32_t r = 0; r < rows.rows; ++r) order[static_cast<std::size_t>(r)] = Row{r};
  std::sort(order.begin(), order.end(), [&](Row a, Row b) { return rows.position(a) < rows.position(b); });
  return order;
}

/// [head_dim] mean unit key; `cosines` [rows] of every key to it.
std::vector<float> anchor_of(const HeadRows& rows, std::vector<float>& cosines) {
  const auto head_dim = static_cast<std::size_t>(rows.layout->head_dim);
  std::vector<double> sum(head_dim);
  std::vector<float> anchor(head_dim);
  cosines.resize(static_cast<std::size_t>(rows.rows));
  if (rows.rows == 0) return anchor;
  sum_unit_keys(rows, sum.data());
  for (std::size_t j = 0; j < head_dim; ++j) anchor[j] = static_cast<float>(sum[j] / rows.rows);
  cosine_keys(rows, anchor.data(), cosines.data());
  return anchor;
}

/// The recorded scores of `positions` (ascending); NaN where there are none.
std::vector<float> recorded_scores(const std::vector<Position>& recorded, const std::vector<float>& scores,
                                   const std::vector<Position>& positions) {
  std::vector<std::size_t> order(recorded.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](auto a, auto b) { return recorded[a] < recorded[b]; });
  std::vector<float> out(positions.size(), kNone);
  std::size_t next = 0;
  for (std::size_t i = 0; i < positions.size(); ++i) {
    while (next < order.size() && recorded[order[next]] < positions[i]) ++next;
    if (next < order.size() && recorded[order[next]] == positions[i]) out[i] = scores[order[next]];
  }
  return out;
}

}  // namespace

Result<HeadReport> SessionImpl::inspect(int layer, int kv_head) const {
  const SequenceCache& cache = sequence_.cache;
  if (layer < 0 || layer >= cache.layers() || kv_head < 0 || kv_head >= cache.kv_heads()) {
    return invalid_argument("there is no KV head " + std::to_string(kv_head) + " in layer " +
                            std::to_string(layer) + ": give layer 0 to " +
                            std::to_string(cache.layers() - 1) + ", head 0 to " +
                            std::to_string(cache.kv_heads() - 1));
  }
  const HeadRows rows = cache.rows(layer, kv_head);
  HeadReport report;
  std::vector<float> cosines;
  report.anchor = anchor_of(rows, cosines);
  for (const Row row : by_position(rows)) {
    report.positions.push_back(rows.position(row));
    report.cosines.push_back(cosines[static_cast<std::size_t>(to_int(row))]);
  }
  report.scores.assign(report.positions.size(), kNone);
  if (sequence_.records.empty()) return report;
  const LayerRecord& record = sequence_.records[static_cast<std::size_t>(layer)];
  const auto head = static_cast<std::size_t>(kv_head);
  if (head < record.positions.size()) {
    report.scores = recorded_scores(record.positions[head], record.scores[head], report.positions);
  }
  return report;
}

}  // namespace keynest
