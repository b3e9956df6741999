#include "bench/layer.h"

#include <algorithm>

#include "kernels/key_sums.h"

namespace keynest::bench {

Layer::Layer(const std::string& spec, const CacheShape& shape, KvType type, int rows, int block, int threads)
    : evictor_(*Evictor::create(*PolicySpec::parse(spec), shape)),
      heads_(PageLayout::make(type, shape.head_dim, evictor_->needs().row_state), shape.kv_heads, rows),
      unit_sums_(evictor_->needs().unit_key_sum ? size(shape.kv_heads) : 0),
      rows_(heads_.views()),
      queries_(heads_, block, shape.group),
      state_(evictor_->new_state()),
      scores_(size(shape.kv_heads)) {
  for (int i = 0; i < threads; ++i) {
    scratch_.emplace_back(std::max(evictor_scratch_bytes(*evictor_, heads_.layout(), rows),
                                   attention_scratch_bytes(heads_.layout(), shape.group)));
  }
  for (std::size_t h = 0; h < unit_sums_.size() && keeps_unit_sum(rows, block); ++h) {
    HeadRows before = rows_[h];
    before.rows = rows - block;
    unit_sums_[h].resize(size(shape.head_dim));
    sum_unit_keys(before, unit_sums_[h].data());
    rows_[h].unit_sum = unit_sums_[h].data();
    rows_[h].summed_rows = before.rows;
  }
  // The statistics that attention leaves behind are not the policy's work.
  if (evictor_->needs().attention != AttentionNeed::kNone) {
    for (std::size_t h = 0; h < scores_.size(); ++h) {
      attention_statistics(heads_.views()[h], queries_.blocks()[h], 0, block, scratch_[0].data());
    }
  }
  step_.heads = rows_;
  step_.queries = queries_.blocks();
  step_.appended = block;
  step_.seen = step_.announced = rows;
  step_.budget = rows - block;
}

bool Layer::score_heads(int first, int last, int thread) {
  void* scratch = scratch_[size(thread)].data();
  for (int h = first; h < last; ++h) evictor_->observe(state_, step_, h, scratch);
  bool ok = true;
  for (int h = first; h < last; ++h) {
    ok = evictor_->score(state_, step_, h, scores_[size(h)], scratch).ok() && ok;
  }
  return ok;
}

bool Layer::evict() {
  if (!score() || !evictor_->plan(step_, scores_, plan_).ok()) return false;
  for (std::size_t h = 0; h < unit_sums_.size(); ++h) {
    if (rows_[h].summed_rows > 0) cut_unit_sum(rows_[h], plan_.kept[h]);
  }
  return true;
}

void Layer::cut_unit_sum(const HeadRows& rows, std::span<const Row> kept) {
  gone_.clear();
  auto next = kept.begin();
  for (std::int32_t row = 0; row < rows.rows; ++row) {
    if (next != kept.end() && *next == Row{row}) {
      ++next;
    } else {
      gone_.push_back(Row{row});
    }
  }
  cut_.resize(size(rows.layout->head_dim));
  sum_unit_keys(rows, cut_.data());
  subtract_unit_keys(rows, gone_, cut_.data());
}

std::size_t Layer::extra_bytes() const {
  const PolicyNeeds& needs = evictor_->needs();
  const std::size_t rows = size(rows_[0].rows), heads = scores_.size();
  const std::size_t sum = needs.unit_key_sum ? size(heads_.layout().head_dim) * sizeof(double) : 0;
  return rows * sizeof(float) * (1 + size(needs.row_state)) + size(needs.head_state) * sizeof(double) + sum +
         state_.query_ring.size() * sizeof(float) / heads +
         evictor_scratch_bytes(*evictor_, heads_.layout(), static_cast<std::int32_t>(rows));
}

}  // namespace keynest::bench
