// One layer in which a policy evicts: nothing but the policy's own work is run.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "bench/fixtures.h"
#include "policy/evictor.h"

namespace keynest::bench {

/// A layer that holds `rows` entries per head, of which a block of `block` has just been attended. What an
/// eviction of as many leaves behind for the next is there.
class Layer {
 public:
  /// `spec` is a valid policy of the one layer of `shape`.
  Layer(const std::string& spec, const CacheShape& shape, KvType type, int rows, int block, int threads = 1);

  int heads() const { return static_cast<int>(scores_.size()); }
  /// Observes the block and scores every entry of heads [first, last); threads may do so at once, each with
  /// heads of its own. False: an error of the policy.
  bool score_heads(int first, int last, int thread);
  bool score() { return score_heads(0, heads(), 0); }
  /// score(), then chooses the entries that stay: all but a block's, and brings the sums that the store
  /// maintains up to date. The layer stays as it is.
  bool evict();

  double key_bytes() const { return heads_.key_bytes(); }
  /// What the policy takes per head beside keys and values: state, scores, scratch of one thread.
  std::size_t extra_bytes() const;

 private:
  void cut_unit_sum(const HeadRows& rows, std::span<const Row> kept);

  std::shared_ptr<const Evictor> evictor_;
  Heads heads_;
  std::vector<std::vector<double>> unit_sums_;  // [heads][head_dim], as the store has them before an eviction
  std::vector<HeadRows> rows_;                  // [heads]
  HeadQueries queries_;
  std::vector<Aligned> scratch_;  // of every thread
  LayerStep step_;
  LayerState state_;
  LayerPlan plan_;
  std::vector<std::vector<float>> scores_;
  std::vector<Row> gone_;
  std::vector<double> cut_;
};

}  // namespace keynest::bench
