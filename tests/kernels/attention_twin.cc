#include "kernels/attention_twin.h"

#include <algorithm>
#include <cmath>

#include "kernels/rows.h"

namespace keynest {

std::string describe(const Case& c) {
  return std::string(name_of(c.type)) + " d=" + std::to_string(c.head_dim) +
         " rows=" + std::to_string(c.rows) + " group=" + std::to_string(c.group) +
         " tokens=" + std::to_string(c.tokens) + " window=" + std::to_string(c.window);
}

Problem::Problem(const Case& in, std::mt19937& random) : c(in), head(in.type, in.head_dim, in.rows) {
  const int length = c.rows + c.rows / 2 + 10;
  std::vector<Position> positions = random_positions(random, c.rows, length);
  // The queries' own tokens are among the entries, as after an append, but anywhere.
  for (int t = 0; t < c.tokens; ++t) query_positions.push_back(Position{length + t});
  for (int t = 0; t < std::min(c.tokens, c.rows); ++t)
    positions[static_cast<std::size_t>(t)] = query_positions[t];
  std::shuffle(positions.begin(), positions.end(), random);
  if (c.tokens > c.rows || c.window > 0) {
    // Whatever the window hides, the first entry is at the first query's position or before.
    positions[0] = query_positions[0];
  }
  head.fill(random, positions);
  const auto d = static_cast<std::size_t>(c.head_dim);
  const auto count = static_cast<std::size_t>(c.tokens) * c.group;
  queries = normal_floats(random, count * d);
  out.assign(count * (d + 3), -7.0f);
  row_max.assign(count, 0.0f);
  row_sum.assign(count, 0.0f);
  block.queries = queries.data();
  block.token_stride = d;  // heads outermost here, tokens outermost in `out`
  block.head_stride = d * static_cast<std::size_t>(c.tokens);
  block.tokens = c.tokens;
  block.group = c.group;
  block.positions = query_positions.data();
  block.scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim));
  block.window = c.window;
  block.out = out.data();
  block.out_token_stride = (d + 3) * static_cast<std::size_t>(c.group);
  block.out_head_stride = d + 3;
  block.row_max = row_max.data();
  block.row_sum = row_sum.data();
}

void Problem::rewrite(const std::vector<float>& keys, const std::vector<float>& values) {
  const HeadRows view = head.view();
  const auto d = static_cast<std::size_t>(c.head_dim);
  std::vector<Position> positions;
  for (int row = 0; row < c.rows; ++row) positions.push_back(view.position(Row{row}));
  write_rows(view, Row{0}, c.rows, keys.data(), d, values.data(), d, positions.data());
}

void Problem::attend(int first, int last) {
  std::vector<std::byte> scratch = scratch_for(*this);
  keynest::attend(head.view(), block, first, last, scratch.data());
}

Expected attend_one(const Problem& p, const std::vector<double>& keys, const std::vector<double>& values,
                    int token, int member) {
  const auto d = static_cast<std::size_t>(p.c.head_dim);
  const float* query = p.block.queries + token * p.block.token_stride + member * p.block.head_stride;
  const int at = to_int(p.query_positions[static_cast<std::size_t>(token)]);
  const HeadRows view = p.head.view();
  Expected e;
  std::vector<double> logits(static_cast<std::size_t>(p.c.rows), -std::numeric_limits<double>::infinity());
  for (int row = 0; row < p.c.rows; ++row) {
    const int position = to_int(view.position(Row{row}));
    if (position > at || (p.c.window > 0 && at - position >= p.c.window)) continue;
    double dot = 0;
    for (std::size_t dim = 0; dim < d; ++dim)
      dot += query[dim] * keys[static_cast<std::size_t>(row) * d + dim];
    logits[static_cast<std::size_t>(row)] = dot * p.block.scale;
    e.max = std::max(e.max, dot * p.block.scale);
  }
  for (const double logit : logits) e.weights.push_back(std::exp(logit - e.max));
  for (const double weight : e.weights) e.sum += weight;
  e.out.assign(d, 0.0);
  for (std::size_t row = 0; row < e.weights.size(); ++row) {
    e.weights[row] /= e.sum;
    for (std::size_t dim = 0; dim < d; ++dim) e.out[dim] += e.weights[row] * values[row * d + dim];
  }
  return e;
}

std::vector<std::byte> scratch_for(const Problem& p) {
  return std::vector<std::byte>(attention_scratch_bytes(p.head.layout(), p.c.group));
}

}  // namespace keynest
