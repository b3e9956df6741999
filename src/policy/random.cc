// random: a fixed random score per (seed, layer, head, position); a control. An entry keeps its score for
// life, so after any blocks the kept set is a uniform sample of all positions seen.
#include <cstdint>

#include "policy/registry.h"

namespace keynest {
namespace {

// Finaliser of SplitMix64 (Steele, Lea, Flood, "Fast Splittable Pseudorandom Number Generators", figure 17).
std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

class Random final : public Policy {
 public:
  explicit Random(std::uint64_t seed) : seed_(seed) {}

  PolicyNeeds needs() const override { return {}; }

  void score(const HeadView& head, std::span<float> scores) const override {
    const std::uint64_t place =
        static_cast<std::uint64_t>(head.layer) << 32 | static_cast<std::uint32_t>(head.head);
    const std::uint64_t stream = mix(mix(seed_) ^ place);
    for (int page = 0, row = 0; page < head.rows.page_count(); ++page) {
      const Position* positions = head.rows.positions(page);
      for (int i = 0; i < head.rows.rows_in_page(page); ++i, ++row) {
        const auto position = static_cast<std::uint64_t>(to_int(positions[i]));
        scores[static_cast<std::size_t>(row)] = static_cast<float>(mix(stream ^ position) >> 40) * 0x1p-24f;
      }
    }
  }

 private:
  std::uint64_t seed_;
};

}  // namespace

MethodRow random_method() {
  MethodRow row;
  row.name = "random";
  row.help = "a random sample of all positions seen; a control";
  row.options = {{"seed", OptionKind::kInteger, "0", "same seed, same sample", {}, 0, 2147483647.0}};
  row.make = [](const OptionValues& values, const PolicySpec&, const CacheShape&) -> std::unique_ptr<Policy> {
    return std::make_unique<Random>(static_cast<std::uint64_t>(values.integer("seed")));
  };
  return row;
}

}  // namespace keynest
