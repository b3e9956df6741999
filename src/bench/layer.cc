#include "bench/layer.h"

#include <algorithm>

namespace keynest::bench {

Layer::Layer(const std::string& spec, const CacheShape& shape, KvType type, int rows, int block, int threads)
    : evictor_(*Evictor::create(*PolicySpec::parse(spec), shape)),
      heads_(PageLayout::make(type, shape.head_dim, evictor_->needs().row_state), shape.kv_heads, rows),
      queries_(heads_, block, shape.group),
      state_(evictor_->new_state()),
      scores_(size(shape.kv_heads)) {
  for (int i = 0; i < threads; ++i) {
    scratch_.emplace_back(std::max(evictor_scratch_bytes(*evictor_, heads_.layout(), rows),
                                   attention_scratch_bytes(heads_.layout(), shape.group)));
  }
  // The statistics that attention leaves behind are not the policy's work.
  if (evictor_->needs().attention != AttentionNeed::kNone) {
    for (std::size_t h = 0; h < scores_.size(); ++h) {
      attention_statistics(heads_.views()[h], queries_.blocks()[h], 0, block, scratch_[0].data());
    }
  }
  step_.heads = heads_.views();
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

bool Layer::evict() { return score() && evictor_->plan(step_, scores_, plan_).ok(); }

std::size_t Layer::extra_bytes() const {
  const PolicyNeeds& needs = evictor_->needs();
  const std::size_t rows = size(heads_.views()[0].rows), heads = scores_.size();
  return rows * sizeof(float) * (1 + size(needs.row_state)) + size(needs.head_state) * sizeof(double) +
         state_.query_ring.size() * sizeof(float) / heads +
         evictor_scratch_bytes(*evictor_, heads_.layout(), static_cast<std::int32_t>(rows));
}

}  // namespace keynest::bench
