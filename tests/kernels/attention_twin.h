// What the tests of attention share: problems, and a scalar twin of attention in double.
#pragma once

#include <cstddef>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "kernels/attention.h"
#include "kernels/kernel_test.h"

namespace keynest {

/// One case: `tokens` queries at the end of a sequence of `length` tokens of which `rows` are held.
struct Case {
  KvType type = KvType::kF16;
  int head_dim = 64, rows = 200, group = 1, tokens = 5, window = 0;
};

std::string describe(const Case& c);

/// Inputs of a case, and what the twin makes of them.
struct Problem {
  Case c;
  TestHead head;
  std::vector<float> queries, out, row_max, row_sum;
  std::vector<Position> query_positions;
  QueryBlock block;

  Problem(const Case& in, std::mt19937& random);

  /// The head once more, with these keys and values [rows, head_dim].
  void rewrite(const std::vector<float>& keys, const std::vector<float>& values);
  /// attend() of tokens [first, last).
  void attend(int first, int last);

  float& out_at(int token, int member, int dim) {
    return block
        .out[token * block.out_token_stride + member * block.out_head_stride + static_cast<std::size_t>(dim)];
  }
};

/// Weights, statistics and outputs of one query, in double.
struct Expected {
  std::vector<double> weights, out;
  double max = -std::numeric_limits<double>::infinity(), sum = 0;
};

/// `keys` and `values` [rows, head_dim] are those of the head, decoded.
Expected attend_one(const Problem& p, const std::vector<double>& keys, const std::vector<double>& values,
                    int token, int member);

std::vector<std::byte> scratch_for(const Problem& p);

}  // namespace keynest
