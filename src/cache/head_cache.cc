#include "cache/head_cache.h"

#include <algorithm>
#include <cassert>
#include <cstring>

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

std::vector<RowMove> moves_to_keep(std::span<const Row> kept) {
  std::vector<RowMove> moves;
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
  return moves;
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

std::size_t HeadCache::pages_to_apply(std::span<const RowMove> moves) const {
  std::size_t count = 0;
  std::size_t last = pages_.size();
  for (const RowMove& move : moves) {  // ascending destinations: pages come in runs
    const std::size_t page = page_of(move.to);
    if (page != last && pages_[page]->shared()) ++count;
    last = page;
  }
  return count;
}

void HeadCache::apply(std::int32_t kept, std::span<const RowMove> moves, std::vector<Page*>& fresh,
                      PagePool& pool) {
  const HeadRows rows = view(pool.layout());
  for (const RowMove& move : moves) {
    const std::size_t page = page_of(move.to);
    if (pages_[page]->shared()) replace(page, take_last(fresh), pool);
    move_row(rows, move.from, move.to);
  }
  truncate(kept, pool);
}

void HeadCache::truncate(std::int32_t rows, PagePool& pool) {
  assert(rows <= rows_);
  rows_ = rows;
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
