#include "cache/head_cache.h"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "kernels/key_sums.h"
#include "kernels/rows.h"

namespace keynest {
namespace {

std::size_t pages_for(std::int32_t rows) {
  return static_cast<std::size_t>((rows + kPageRows - 1) / kPageRows);
}

std::size_t page_of(Row row) { return static_cast<std::size_t>(to_int(row) / kPageRows); }

Page* take_last(std::vector<Page*>& pages) {
  assert(!pages.empty());
  Page* page = pages.back();
  pages.pop_back();
  return page;
}

}  // namespace

void moves_to_keep(std::span<const Row> kept, std::vector<RowMove>& moves) {
  moves.clear();
  const auto count = static_cast<std::int32_t>(kept.size());
  const auto tail = std::partition_point(kept.begin(), kept.end(), [&](Row r) { return to_int(r) < count; });
  auto source = tail;
  auto present = kept.begin();
  for (std::int32_t row = 0; row < count && source != kept.end(); ++row) {
    if (present != tail && to_int(*present) == row) {
      ++present;
    } else {
      moves.push_back({*source++, Row{row}});
    }
  }
}

void turns_to_ranks(const HeadRows& head, std::span<const Row> kept, std::span<const RowMove> moves,
                    std::vector<RowTurn>& turns) {
  const auto count = static_cast<std::int32_t>(kept.size());
  thread_local std::vector<Row> by_rank;           // of the entries before
  thread_local std::vector<std::int32_t> arrives;  // where a kept row lies afterwards; -1: nowhere
  by_rank.resize(static_cast<std::size_t>(head.rows));
  for (std::int32_t r = 0; r < head.rows; ++r) by_rank[static_cast<std::size_t>(r)] = Row{r};
  std::sort(by_rank.begin(), by_rank.end(),
            [&](Row a, Row b) { return head.position(a) < head.position(b); });

  arrives.assign(by_rank.size(), -1);
  for (const Row row : kept) arrives[static_cast<std::size_t>(to_int(row))] = to_int(row);
  for (const RowMove& move : moves) arrives[static_cast<std::size_t>(to_int(move.from))] = to_int(move.to);

  turns.clear();
  std::int32_t rank = 0;
  for (std::int32_t before = 0; before < head.rows && rank < count; ++before) {
    const std::int32_t row =
        arrives[static_cast<std::size_t>(to_int(by_rank[static_cast<std::size_t>(before)]))];
    if (row < 0) continue;
    if (rank != before) turns.push_back({Row{row}, rank - before});
    ++rank;
  }
}

std::size_t HeadCache::first_written(bool exclusive) const {
  return exclusive ? 0 : static_cast<std::size_t>(rows_ / kPageRows);
}

std::size_t HeadCache::pages_to_append(std::int32_t count, bool exclusive) const {
  if (count == 0) return 0;
  std::size_t copies = 0;
  for (std::size_t i = first_written(exclusive); i < pages_.size(); ++i)
    copies += pages_[i]->shared() ? 1 : 0;
  return pages_for(rows_ + count) - pages_for(rows_) + copies;
}

void HeadCache::replace(std::size_t index, Page* fresh, PagePool& pool) {
  std::memcpy(fresh->data, data_[index], pool.layout().bytes);
  pool.release(pages_[index]);
  pages_[index] = fresh;
  data_[index] = fresh->data;
}

void HeadCache::reserve(std::int32_t count, bool exclusive, std::vector<Page*>& fresh, PagePool& pool) {
  assert(pages_.size() == pages_for(rows_));
  if (count == 0) return;
  for (std::size_t i = first_written(exclusive); i < pages_.size(); ++i) {
    if (pages_[i]->shared()) replace(i, take_last(fresh), pool);
  }
  while (pages_.size() < pages_for(rows_ + count)) {
    pages_.push_back(take_last(fresh));
    data_.push_back(pages_.back()->data);
  }
}

bool HeadCache::any_shared() const {
  return std::any_of(pages_.begin(), pages_.end(), [](const Page* page) { return page->shared(); });
}

std::size_t HeadCache::pages_to_apply(std::span<const RowMove> moves, std::span<const RowTurn> turns) const {
  if (!any_shared()) return 0;
  std::vector<bool> written(pages_.size());
  for (const RowMove& move : moves) written[page_of(move.to)] = true;
  for (const RowTurn& turn : turns) written[page_of(turn.row)] = true;
  std::size_t count = 0;
  for (std::size_t page = 0; page < pages_.size(); ++page) count += written[page] && pages_[page]->shared();
  return count;
}

/// The page of `row` may be written afterwards.
void HeadCache::own(Row row, std::vector<Page*>& fresh, PagePool& pool) {
  const std::size_t page = page_of(row);
  if (pages_[page]->shared()) replace(page, take_last(fresh), pool);
}

/// The sum of the rows that stay is the sum of all less those that go: what moves overwrite, and rows from
/// `kept` on that do not move. `rows`: before the moves. Where a pass over all rows costs less, and where
/// keys are turned, there is no sum afterwards: the next score makes the pass, and finds the same bits.
void HeadCache::cut_unit_sum(const HeadRows& rows, std::int32_t kept, std::span<const RowMove> moves,
                             bool turned) {
  summed_rows_ = 0;
  if (turned || !keeps_unit_sum(rows.rows, rows.rows - kept)) return;
  thread_local std::vector<Row> gone;
  gone.clear();
  auto next = moves.begin();
  for (std::int32_t row = kept; row < rows.rows; ++row) {
    const bool moves_away = next != moves.end() && to_int(next->from) == row;
    gone.push_back(moves_away ? (next++)->to : Row{row});
  }
  sum_unit_keys(rows, unit_sum_.data());
  subtract_unit_keys(rows, gone, unit_sum_.data());
  summed_rows_ = kept;
}

void HeadCache::apply(std::int32_t kept, std::span<const RowMove> moves, std::span<const RowTurn> turns,
                      const KeyRotation& rotation, std::vector<Page*>& fresh, PagePool& pool) {
  const HeadRows rows = view(pool.layout());
  if (!unit_sum_.empty()) cut_unit_sum(rows, kept, moves, !turns.empty());
  for (const RowMove& move : moves) {
    own(move.to, fresh, pool);
    move_row(rows, move.from, move.to);
  }
  truncate(kept, pool);
  for (const RowTurn& turn : turns) own(turn.row, fresh, pool);
  rotate_keys(view(pool.layout()), turns, rotation);
}

bool HeadCache::arrange(std::int32_t kept, std::span<const RowMove> moves, std::int32_t pending,
                        const PageLayout& layout) {
  if (any_shared()) return false;
  const HeadRows rows = view_with(layout, pending);
  if (!unit_sum_.empty()) cut_unit_sum(rows, kept, moves, false);
  for (const RowMove& move : moves) swap_rows(rows, move.from, move.to);
  return true;
}

void HeadCache::take_back(std::span<const RowMove> moves, std::int32_t pending, const PageLayout& layout) {
  const HeadRows rows = view_with(layout, pending);
  for (const RowMove& move : moves) swap_rows(rows, move.from, move.to);
  summed_rows_ = 0;
}

void HeadCache::truncate(std::int32_t rows, PagePool& pool) {
  assert(rows <= rows_);
  rows_ = rows;
  if (summed_rows_ > rows) summed_rows_ = 0;
  while (pages_.size() > pages_for(rows)) {
    pool.release(pages_.back());
    pages_.pop_back();
    data_.pop_back();
  }
}

HeadCache HeadCache::share(PagePool& pool) const {
  for (Page* page : pages_) pool.add_reference(page);
  return *this;
}

}  // namespace keynest
