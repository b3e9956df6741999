#include "cache/sequence_cache.h"

#include <algorithm>
#include <cassert>

namespace keynest {

SequenceCache::SequenceCache(std::shared_ptr<PagePool> pool, int layers, int kv_heads)
    : pool_(std::move(pool)),
      layers_(layers),
      kv_heads_(kv_heads),
      heads_(static_cast<std::size_t>(layers) * static_cast<std::size_t>(kv_heads)) {}

SequenceCache::~SequenceCache() {
  for (HeadCache& head : heads_) head.truncate(0, *pool_);
}

void SequenceCache::keep_unit_sum(int layer) {
  for (int h = 0; h < kv_heads_; ++h) heads_[index(layer, h)].keep_unit_sum(layout().head_dim);
}

std::int64_t SequenceCache::entries(int layer) const {
  std::int64_t sum = 0;
  for (int h = 0; h < kv_heads_; ++h) sum += head(layer, h).rows() + pending_;
  return sum;
}

std::int32_t SequenceCache::widest_layer() const {
  std::int64_t most = 0;
  for (int layer = 0; layer < layers_; ++layer) most = std::max(most, entries(layer));
  return static_cast<std::int32_t>((most + kv_heads_ - 1) / kv_heads_);
}

Status SequenceCache::reserve(std::int32_t count, bool exclusive) {
  assert(pending_ == 0);
  std::size_t pages = 0;
  for (const HeadCache& head : heads_) pages += head.pages_to_append(count, exclusive);
  KEYNEST_TRY(pool_->allocate(pages, fresh_));
  for (HeadCache& head : heads_) head.reserve(count, exclusive, fresh_, *pool_);
  release_fresh();
  pending_ = count;
  return {};
}

void SequenceCache::commit() {
  for (HeadCache& head : heads_) head.commit(pending_);
  pending_ = 0;
}

void SequenceCache::cancel() {
  pending_ = 0;
  for (HeadCache& head : heads_) head.truncate(head.rows(), *pool_);
}

/// The other holder of a shared page may have let go meanwhile; copies that were not needed go back.
void SequenceCache::release_fresh() {
  for (Page* page : fresh_) pool_->release(page);
  fresh_.clear();
}

void SequenceCache::plan(int layer, std::span<const std::vector<Row>> kept, LayerEviction& eviction,
                         const KeyRotation* rotation) const {
  assert(kept.size() == static_cast<std::size_t>(kv_heads_));
  begin_plan(layer, eviction, rotation);
  for (int h = 0; h < kv_heads_; ++h) plan_head(h, kept[static_cast<std::size_t>(h)], eviction);
}

void SequenceCache::begin_plan(int layer, LayerEviction& eviction, const KeyRotation* rotation) const {
  const auto heads = static_cast<std::size_t>(kv_heads_);
  eviction.layer = layer;
  eviction.kept.resize(heads);
  eviction.moves.resize(heads);
  eviction.turns.resize(heads);
  eviction.fresh.resize(heads);
  eviction.arranged.assign(heads, 0);
  eviction.rotation = rotation != nullptr ? std::optional(*rotation) : std::nullopt;
}

void SequenceCache::plan_head(int kv_head, std::span<const Row> kept, LayerEviction& eviction) const {
  const auto h = static_cast<std::size_t>(kv_head);
  eviction.kept[h] = static_cast<std::int32_t>(kept.size());
  moves_to_keep(kept, eviction.moves[h]);
  eviction.turns[h].clear();
  if (!eviction.rotation) return;
  turns_to_ranks(rows(eviction.layer, kv_head), kept, eviction.moves[h], eviction.turns[h]);
}

void SequenceCache::arrange(LayerEviction& eviction, int kv_head) {
  const auto h = static_cast<std::size_t>(kv_head);
  if (eviction.rotation) return;
  HeadCache& head = heads_[index(eviction.layer, kv_head)];
  if (head.arrange(eviction.kept[h], eviction.moves[h], pending_, layout())) eviction.arranged[h] = 1;
}

void SequenceCache::take_back(LayerEviction& eviction) {
  for (std::size_t h = 0; h < eviction.arranged.size(); ++h) {
    if (eviction.arranged[h] == 0) continue;
    HeadCache& head = heads_[index(eviction.layer, static_cast<int>(h))];
    head.take_back(eviction.moves[h], pending_, layout());
    eviction.arranged[h] = 0;
  }
}

Status SequenceCache::prepare(std::span<LayerEviction*> evictions) {
  std::size_t total = 0;
  for (const LayerEviction* e : evictions) {
    for (int h = 0; h < kv_heads_; ++h) {
      const auto i = static_cast<std::size_t>(h);
      total += head(e->layer, h).pages_to_apply(e->moves_left(i), e->turns[i]);
    }
  }
  KEYNEST_TRY(pool_->allocate(total, fresh_));
  for (LayerEviction* e : evictions) {
    for (int h = 0; h < kv_heads_; ++h) {
      const auto i = static_cast<std::size_t>(h);
      const std::size_t needed = head(e->layer, h).pages_to_apply(e->moves_left(i), e->turns[i]);
      const std::size_t count = std::min(fresh_.size(), needed);
      e->fresh[i].assign(fresh_.end() - static_cast<std::ptrdiff_t>(count), fresh_.end());
      fresh_.resize(fresh_.size() - count);
    }
  }
  release_fresh();
  return {};
}

void SequenceCache::apply(LayerEviction& eviction, int kv_head) {
  const auto i = static_cast<std::size_t>(kv_head);
  HeadCache& head = heads_[index(eviction.layer, kv_head)];
  if (eviction.arranged[i] != 0) {
    head.truncate(eviction.kept[i], *pool_);
  } else {
    head.apply(eviction.kept[i], eviction.moves[i], eviction.turns[i],
               eviction.rotation.value_or(KeyRotation{}), eviction.fresh[i], *pool_);
  }
  eviction.arranged[i] = 0;
  for (Page* page : eviction.fresh[i]) pool_->release(page);
  eviction.fresh[i].clear();
}

void SequenceCache::truncate(int layer, int kv_head, std::int32_t rows) {
  heads_[index(layer, kv_head)].truncate(rows, *pool_);
}

SequenceCache SequenceCache::fork() const {
  assert(pending_ == 0);
  SequenceCache copy(pool_, layers_, kv_heads_);
  for (std::size_t i = 0; i < heads_.size(); ++i) copy.heads_[i] = heads_[i].share(*pool_);
  return copy;
}

}  // namespace keynest
