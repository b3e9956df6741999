// What the kernel tests share: a head with random entries, its decoded numbers as double, and running on
// every SIMD target of the machine.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <random>
#include <string>
#include <vector>

#include "kernels/page.h"

namespace keynest {

/// Memory aligned as pages are.
class AlignedBytes {
 public:
  explicit AlignedBytes(std::size_t bytes)
      : data_(static_cast<std::byte*>(::operator new(bytes, std::align_val_t(kPageAlignment)))) {}
  std::byte* get() const { return data_.get(); }

 private:
  struct Free {
    void operator()(std::byte* p) const { ::operator delete(p, std::align_val_t(kPageAlignment)); }
  };
  std::unique_ptr<std::byte, Free> data_;
};

/// A head in pages of its own. Memory of rows not written is NaN (of any type), so that reading it shows.
class TestHead {
 public:
  TestHead(KvType type, int head_dim, int rows, int state_floats = 0);

  HeadRows view() const { return {&layout_, pages_.data(), rows_}; }
  const PageLayout& layout() const { return layout_; }
  int rows() const { return rows_; }

  /// Fills all rows: normal keys and values, `positions` in the order given.
  void fill(std::mt19937& random, const std::vector<Position>& positions);

  /// Entries as stored, decoded one by one: [rows, head_dim].
  std::vector<double> keys() const;
  std::vector<double> values() const;

 private:
  PageLayout layout_;
  int rows_;
  std::vector<AlignedBytes> memory_;
  std::vector<std::byte*> pages_;
};

/// Distinct positions below `limit`, in random order.
std::vector<Position> random_positions(std::mt19937& random, int count, int limit);

std::vector<float> normal_floats(std::mt19937& random, std::size_t count);

/// A test that runs once per SIMD target of this machine; the parameter is Highway's bit.
class EveryTarget : public testing::TestWithParam<std::int64_t> {
 protected:
  void SetUp() override;
  void TearDown() override;
};

std::vector<std::int64_t> machine_targets();
std::string target_name(const testing::TestParamInfo<std::int64_t>& info);

#define KEYNEST_EVERY_TARGET(Suite) \
  INSTANTIATE_TEST_SUITE_P(Simd, Suite, testing::ValuesIn(machine_targets()), target_name)

}  // namespace keynest
