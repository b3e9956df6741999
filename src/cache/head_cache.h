// The entries of one (layer, KV head): a list of pages and a row count. Rows are dense; their order has no
// meaning.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cache/page_pool.h"
#include "kernels/page.h"
#include "kernels/rotate.h"

namespace keynest {

/// A row that moves when a plan is applied.
struct RowMove {
  Row from, to;
};

/// moves = those that leave exactly `kept` (ascending) in rows [0, kept.size()) of a head: holes are filled
/// from the tail.
void moves_to_keep(std::span<const Row> kept, std::vector<RowMove>& moves);

/// Every key turned to its rank: turns = those of the entries that lie in rows [0, kept.size()) after `moves`
/// (see moves_to_keep), ascending by rank. `head`: the entries before, rotated by their rank among
/// themselves; ranks follow positions.
void turns_to_ranks(const HeadRows& head, std::span<const Row> kept, std::span<const RowMove> moves,
                    std::vector<RowTurn>& turns);

/// Not thread-safe; distinct heads may be used from distinct threads. Does not own a pool: the SequenceCache
/// that holds it returns its pages.
class HeadCache {
 public:
  std::int32_t rows() const { return rows_; }
  std::size_t pages() const { return pages_.size(); }

  /// The committed entries.
  HeadRows view(const PageLayout& layout) const { return view_with(layout, 0); }
  /// The committed entries and `pending` rows after them that were reserved.
  HeadRows view_with(const PageLayout& layout, std::int32_t pending) const {
    return {&layout, data_.data(), rows_ + pending, unit_sum_.data(), summed_rows_};
  }

  /// From now on evictions leave behind the sum of the unit keys of `head_dim` numbers of all entries there
  /// are.
  void keep_unit_sum(int head_dim) { unit_sum_.resize(static_cast<std::size_t>(head_dim)); }

  /// Fresh pages that appending `count` rows takes: new ones, and a copy of the last page when it is shared
  /// (`exclusive`: of every shared page, for policies that rewrite the state of old entries).
  std::size_t pages_to_append(std::int32_t count, bool exclusive) const;

  /// Makes room for `count` rows after the committed ones, taking pages_to_append() pages off the end of
  /// `fresh`.
  void reserve(std::int32_t count, bool exclusive, std::vector<Page*>& fresh, PagePool& pool);

  /// Reserved rows become entries.
  void commit(std::int32_t count) { rows_ += count; }

  /// Fresh pages that applying `moves` and then `turns` takes: copies of shared pages that are written to.
  std::size_t pages_to_apply(std::span<const RowMove> moves, std::span<const RowTurn> turns) const;

  /// Keeps `kept` rows after `moves` and `turns`; copies shared pages into pages taken off the end of
  /// `fresh`.
  void apply(std::int32_t kept, std::span<const RowMove> moves, std::span<const RowTurn> turns,
             const KeyRotation& rotation, std::vector<Page*>& fresh, PagePool& pool);

  /// Makes the moves of a plan while `pending` rows are still reserved, without losing anything: rows change
  /// places, so that take_back() undoes it and truncate() to `kept` rows completes it. False, with nothing
  /// done, where pages are shared.
  bool arrange(std::int32_t kept, std::span<const RowMove> moves, std::int32_t pending,
               const PageLayout& layout);
  void take_back(std::span<const RowMove> moves, std::int32_t pending, const PageLayout& layout);

  /// Drops the rows from `rows` on, and pages that hold nothing (reserved ones too).
  void truncate(std::int32_t rows, PagePool& pool);

  /// A second holder of the same pages.
  HeadCache share(PagePool& pool) const;

 private:
  std::size_t first_written(bool exclusive) const;
  bool any_shared() const;
  void replace(std::size_t index, Page* fresh, PagePool& pool);
  void own(Row row, std::vector<Page*>& fresh, PagePool& pool);
  void cut_unit_sum(const HeadRows& rows, std::int32_t kept, std::span<const RowMove> moves, bool turned);

  std::vector<Page*> pages_;
  std::vector<std::byte*> data_;  // pages_[i]->data, as the kernels want it
  std::int32_t rows_ = 0;
  std::vector<double> unit_sum_;  // sum_unit_keys() of rows [0, summed_rows_); empty: none is kept
  std::int32_t summed_rows_ = 0;
};

}  // namespace keynest
