// All heads of one sequence. A step is: reserve -> (rows are written, attended) -> plan, perhaps arrange ->
// prepare -> commit -> apply; no entry changes before apply, and take_back and cancel take a step back.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "cache/head_cache.h"
#include "cache/page_pool.h"
#include "keynest/result.h"

namespace keynest {

/// A planned eviction of one layer, with the moves and pages it takes, ready to be applied head by head. One
/// that was applied may be planned again: its memory is reused.
struct LayerEviction {
  int layer = 0;
  std::vector<std::int32_t> kept;           ///< [kv_heads] entries after it
  std::vector<std::vector<RowMove>> moves;  ///< [kv_heads]
  std::vector<std::vector<RowTurn>> turns;  ///< [kv_heads] keys that turn to their new rank after the moves
  std::optional<KeyRotation> rotation;      ///< of those
  std::vector<std::vector<Page*>> fresh;    ///< [kv_heads] pages for copies of shared ones
  std::vector<unsigned char> arranged;      ///< [kv_heads] the moves have been made, see arrange()

  /// The moves of a head that apply() has to make.
  std::span<const RowMove> moves_left(std::size_t kv_head) const {
    return arranged[kv_head] != 0 ? std::span<const RowMove>() : std::span(moves[kv_head]);
  }
};

class SequenceCache {
 public:
  SequenceCache(std::shared_ptr<PagePool> pool, int layers, int kv_heads);
  ~SequenceCache();
  SequenceCache(SequenceCache&&) noexcept = default;
  SequenceCache& operator=(SequenceCache&&) = delete;

  /// The heads of `layer` maintain the sum of their unit keys from now on (see HeadRows::unit_sum).
  void keep_unit_sum(int layer);

  int layers() const { return layers_; }
  int kv_heads() const { return kv_heads_; }
  const PageLayout& layout() const { return pool_->layout(); }
  PagePool& pool() const { return *pool_; }

  const HeadCache& head(int layer, int kv_head) const { return heads_[index(layer, kv_head)]; }
  /// Entries and the rows reserved after them.
  HeadRows rows(int layer, int kv_head) const { return head(layer, kv_head).view_with(layout(), pending_); }
  /// Entries of all heads of a layer, reserved rows included.
  std::int64_t entries(int layer) const;
  /// The most entries (average over heads, rounded up) any layer holds.
  std::int32_t widest_layer() const;
  std::int32_t pending() const { return pending_; }

  /// Makes room for `count` more rows in every head. `exclusive`: pages shared with a fork are copied first,
  /// because the policy rewrites the state of entries it already holds. Errors: kOutOfMemory; nothing has
  /// changed then.
  Status reserve(std::int32_t count, bool exclusive = false);
  /// Reserved rows become entries / are forgotten.
  void commit();
  void cancel();

  /// From the rows every head of a layer keeps to an eviction that can be applied; reserved rows count as
  /// entries.
  /// `rotation`: keys are rotated by their rank in their head and follow it (see turns_to_ranks); null: they
  /// stay as they are. Its frequencies must outlive the eviction.
  void plan(int layer, std::span<const std::vector<Row>> kept, LayerEviction& eviction,
            const KeyRotation* rotation = nullptr) const;
  /// The two parts of plan(): begin_plan(), then every head, which distinct threads may do.
  void begin_plan(int layer, LayerEviction& eviction, const KeyRotation* rotation = nullptr) const;
  void plan_head(int kv_head, std::span<const Row> kept, LayerEviction& eviction) const;
  /// Makes the moves of a planned head ahead of apply(), while attention has left its rows in the caches.
  /// Rows only change places, among reserved ones too, so this mutates no entries; where it would have to
  /// (shared pages, turning keys) it leaves the moves to apply(). Distinct heads may run on distinct threads.
  void arrange(LayerEviction& eviction, int kv_head);
  /// Undoes arrange() for all heads. To be called before cancel(); without effect after apply().
  void take_back(LayerEviction& eviction);
  /// Takes the pages that the evictions need. Errors: kOutOfMemory; nothing has changed then.
  Status prepare(std::span<LayerEviction*> evictions);
  /// The only step that mutates entries. Distinct heads may run on distinct threads. Call after commit().
  void apply(LayerEviction& eviction, int kv_head);

  /// Drops the rows of a head from `rows` on.
  void truncate(int layer, int kv_head, std::int32_t rows);

  /// A second sequence that shares all pages until either writes.
  SequenceCache fork() const;

 private:
  std::size_t index(int layer, int kv_head) const {
    return static_cast<std::size_t>(layer) * static_cast<std::size_t>(kv_heads_) +
           static_cast<std::size_t>(kv_head);
  }

  void release_fresh();

  std::shared_ptr<PagePool> pool_;
  int layers_, kv_heads_;
  std::vector<HeadCache> heads_;  // [layers, kv_heads]
  std::vector<Page*> fresh_;      // on their way from the pool to a head; else empty
  std::int32_t pending_ = 0;
};

}  // namespace keynest
