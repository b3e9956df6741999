// Looking up figures among the runs of a result.
#pragma once

#include <string>
#include <vector>

#include "bench/recorder.h"

namespace keynest::bench {

/// A field of a run; nothing where it is missing or of another kind.
double number_of(const Json& run, const char* field, double otherwise = 0);
std::string text_of(const Json& run, const char* field);

/// Runs, in the order they were made.
class Runs {
 public:
  Runs() = default;
  /// All runs of a result; none when it has no list of them.
  explicit Runs(const Json& results);

  Runs where(const char* field, const std::string& value) const;
  Runs where(const char* field, double value) const;

  /// Different values, in the order they come / ascending.
  std::vector<std::string> texts(const char* field) const;
  std::vector<double> numbers(const char* field) const;

  /// Of every run; runs without it are left out.
  std::vector<double> values(const char* field) const;
  bool empty() const { return runs_.empty(); }
  const Json& first() const { return *runs_.front(); }

 private:
  template <typename Wanted>
  Runs filter(const Wanted& wanted) const;
  std::vector<const Json*> runs_;
};

/// a[field] / b[field] of rounds that both have.
std::vector<double> round_ratios(const Runs& a, const Runs& b, const char* field);

}  // namespace keynest::bench
