#include "kernels/kernel_test.h"

#include <algorithm>
#include <numeric>

#include "kernels/rows.h"
#include "kernels/simd_targets.h"

namespace keynest {

TestHead::TestHead(KvType type, int head_dim, int rows, int state_floats)
    : layout_(PageLayout::make(type, head_dim, state_floats)), rows_(rows) {
  for (int page = 0; page < (rows + kPageRows - 1) / kPageRows; ++page) {
    memory_.emplace_back(layout_.bytes);
    pages_.push_back(memory_.back().get());
    std::memset(pages_.back(), 0xff, layout_.bytes);
  }
}

void TestHead::fill(std::mt19937& random, const std::vector<Position>& positions) {
  const auto d = static_cast<std::size_t>(layout_.head_dim);
  const auto count = static_cast<std::size_t>(rows_) * d;
  const std::vector<float> keys = normal_floats(random, count), values = normal_floats(random, count);
  write_rows(view(), Row{0}, rows_, keys.data(), d, values.data(), d, positions.data());
}

namespace {

template <class Read>
std::vector<double> decode(const HeadRows& head, Read read) {
  const auto d = static_cast<std::size_t>(head.layout->head_dim);
  std::vector<double> all;
  std::vector<float> one(d);
  for (int row = 0; row < head.rows; ++row) {
    read(head, Row{row}, one.data());
    all.insert(all.end(), one.begin(), one.end());
  }
  return all;
}

}  // namespace

std::vector<double> TestHead::keys() const { return decode(view(), read_key); }
std::vector<double> TestHead::values() const { return decode(view(), read_value); }

std::vector<Position> random_positions(std::mt19937& random, int count, int limit) {
  std::vector<std::int32_t> all(static_cast<std::size_t>(limit));
  std::iota(all.begin(), all.end(), 0);
  std::shuffle(all.begin(), all.end(), random);
  std::vector<Position> positions;
  for (int i = 0; i < count; ++i) positions.push_back(Position{all[static_cast<std::size_t>(i)]});
  return positions;
}

std::vector<float> normal_floats(std::mt19937& random, std::size_t count) {
  std::normal_distribution<float> normal;
  std::vector<float> numbers(count);
  for (float& number : numbers) number = normal(random);
  return numbers;
}

std::vector<std::int64_t> machine_targets() { return hwy::SupportedAndGeneratedTargets(); }

std::string target_name(const testing::TestParamInfo<std::int64_t>& info) {
  return hwy::TargetName(info.param);
}

void EveryTarget::SetUp() {
  hwy::SetSupportedTargetsForTest(GetParam());
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

void EveryTarget::TearDown() {
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

}  // namespace keynest
