// keydiff: keys that differ most from the typical key of their head are kept.
// "KeyDiff: Key Similarity-Based KV Cache Eviction for Long-Context LLM Inference in Resource-Constrained
// Environments" (arXiv 2504.15364), section 3; the ablations of anchor and metric are its appendix. The
// default scores -cos(k_i, mean of k_j/|k_j|) in one pass over the keys where the store maintains their sum,
// else in two. Tested against golden/reference.py (keydiff*).
#include <algorithm>
#include <vector>

#include "kernels/key_scores.h"
#include "kernels/key_sums.h"
#include "kernels/rows.h"
#include "policy/registry.h"
#include "policy/scratch.h"

namespace keynest {
namespace {

enum class Anchor { kMean, kMeanRaw, kMedian, kMedianRaw };
enum class Metric { kCosine, kDot, kEuclid };

// Coordinate-wise median of the keys (`unit`: of k/|k|), the mean of the middle two for even counts.
// [head_dim]
void median_keys(const HeadRows& rows, bool unit, std::span<float> anchor) {
  const std::size_t dim = anchor.size();
  const auto count = static_cast<std::size_t>(rows.rows);
  std::vector<float> key(dim);
  std::vector<double> columns(dim * count);
  for (std::size_t row = 0; row < count; ++row) {
    read_key(rows, Row{static_cast<std::int32_t>(row)}, key.data());
    const auto page = static_cast<int>(row / kPageRows);
    const double scale = unit ? rows.inv_norms(page)[row % kPageRows] : 1.0;
    for (std::size_t j = 0; j < dim; ++j) columns[j * count + row] = scale * key[j];
  }
  for (std::size_t j = 0; j < dim; ++j) {
    const auto first = columns.begin() + static_cast<std::ptrdiff_t>(j * count);
    const auto last = first + static_cast<std::ptrdiff_t>(count);
    const auto upper = first + static_cast<std::ptrdiff_t>(count / 2);
    std::nth_element(first, upper, last);
    const double lower = count % 2 == 1 ? *upper : *std::max_element(first, upper);
    anchor[j] = static_cast<float>((lower + *upper) / 2);
  }
}

class KeyDiff final : public Policy {
 public:
  KeyDiff(Anchor anchor, Metric metric, int head_dim)
      : anchor_(anchor), metric_(metric), head_dim_(static_cast<std::size_t>(head_dim)) {}

  PolicyNeeds needs() const override {
    PolicyNeeds needs;
    needs.unit_key_sum = anchor_ == Anchor::kMean;
    return needs;
  }

  std::size_t scratch_bytes(std::int32_t) const override {
    return scratch_size<double>(head_dim_) + scratch_size<float>(head_dim_);
  }

  void score(const HeadView& head, std::span<float> scores) const override {
    Scratch scratch(head.scratch);
    const std::span<double> sum = scratch.take<double>(head_dim_);
    const std::span<float> anchor = scratch.take<float>(head_dim_);
    find_anchor(head.rows, sum, anchor);
    if (metric_ == Metric::kEuclid) return distance_keys(head.rows, anchor.data(), scores.data());
    for (float& x : anchor) x = -x;  // the score is minus the similarity
    (metric_ == Metric::kCosine ? cosine_keys : dot_keys)(head.rows, anchor.data(), scores.data());
  }

 private:
  void find_anchor(const HeadRows& rows, std::span<double> sum, std::span<float> anchor) const {
    if (anchor_ == Anchor::kMedian || anchor_ == Anchor::kMedianRaw) {
      return median_keys(rows, anchor_ == Anchor::kMedian, anchor);
    }
    (anchor_ == Anchor::kMean ? sum_unit_keys : sum_keys)(rows, sum.data());
    for (std::size_t j = 0; j < head_dim_; ++j) anchor[j] = static_cast<float>(sum[j] / rows.rows);
  }

  Anchor anchor_;
  Metric metric_;
  std::size_t head_dim_;
};

// The quadratic form, -sum_j cos(k_i, k_j), j = i included: it ranks as the default does and is here to show
// that.
class KeyDiffPairwise final : public Policy {
 public:
  explicit KeyDiffPairwise(int head_dim) : head_dim_(static_cast<std::size_t>(head_dim)) {}

  PolicyNeeds needs() const override { return {}; }

  void score(const HeadView& head, std::span<float> scores) const override {
    std::vector<float> key(head_dim_), cosines(scores.size());
    for (std::size_t i = 0; i < scores.size(); ++i) {
      read_key(head.rows, Row{static_cast<std::int32_t>(i)}, key.data());
      cosine_keys(head.rows, key.data(), cosines.data());
      double sum = 0;
      for (float cosine : cosines) sum += cosine;
      scores[i] = static_cast<float>(-sum);
    }
  }

 private:
  std::size_t head_dim_;
};

Anchor anchor_named(std::string_view name) {
  if (name == "mean") return Anchor::kMean;
  if (name == "mean_raw") return Anchor::kMeanRaw;
  return name == "median" ? Anchor::kMedian : Anchor::kMedianRaw;
}

Metric metric_named(std::string_view name) {
  if (name == "cosine") return Metric::kCosine;
  return name == "dot" ? Metric::kDot : Metric::kEuclid;
}

std::unique_ptr<Policy> make_keydiff(const OptionValues& values, const PolicySpec&, const CacheShape& shape) {
  if (values.text("anchor") == "pairwise") return std::make_unique<KeyDiffPairwise>(shape.head_dim);
  return std::make_unique<KeyDiff>(anchor_named(values.text("anchor")), metric_named(values.text("metric")),
                                   shape.head_dim);
}

Status check_keydiff(const OptionValues& values, const PolicySpec&) {
  if (values.text("anchor") != "pairwise" || values.text("metric") == "cosine") return {};
  return invalid_argument("policy option metric=" + std::string(values.text("metric")) +
                          " does not go with anchor=pairwise; allowed: cosine");
}

}  // namespace

MethodRow keydiff_method() {
  MethodRow row;
  row.name = "keydiff";
  row.help = "keys least like the mean key of their head (KeyDiff)";
  row.options = {{"anchor",
                  OptionKind::kChoice,
                  "mean",
                  "mean or median of the normalised or raw keys; pairwise: all pairs, quadratic",
                  {"mean", "mean_raw", "median", "median_raw", "pairwise"}},
                 {"metric",
                  OptionKind::kChoice,
                  "cosine",
                  "likeness of a key and the anchor",
                  {"cosine", "dot", "euclid"}}};
  row.make = make_keydiff;
  row.check = check_keydiff;
  return row;
}

}  // namespace keynest
