// Options of a spec as rows of a table: name, kind, default, allowed values, help. Values are kept as
// canonical text, so that equal values are equal strings.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "keynest/policy.h"
#include "keynest/result.h"

namespace keynest {

enum class OptionKind {
  kChoice,   ///< one of `allowed`
  kSubset,   ///< one or more of `allowed`, joined by '+'
  kInteger,  ///< a whole number, least..most
  kNumber,   ///< least..most
  kShare,    ///< 0..1, or a percentage
  kAmount,   ///< a count, or a percentage of N
};

struct OptionRow {
  std::string_view name;
  OptionKind kind = OptionKind::kChoice;
  std::string_view fallback;  ///< canonical default; empty: unset has a meaning of its own, see help
  std::string_view help;
  std::vector<std::string_view> allowed;  ///< kChoice, kSubset
  double least = 0, most = 0;             ///< kInteger, kNumber
  bool odd = false;                       ///< kInteger
};

/// What may be written, for messages and help: "mean|max", "a whole number from 1 to 64".
std::string allowed_values(const OptionRow& row);

/// The canonical text of a value. Errors list what is allowed.
Result<std::string> canonical_value(const OptionRow& row, std::string_view value);

/// The values of a method's own options, defaults filled in.
class OptionValues {
 public:
  OptionValues(const std::vector<OptionRow>& rows, const PolicySpec& spec) : rows_(rows), spec_(spec) {}

  std::string_view text(std::string_view name) const;
  bool has(std::string_view name, std::string_view member) const;  ///< kSubset
  bool on(std::string_view name) const { return text(name) == "on"; }
  std::int64_t integer(std::string_view name) const;  ///< 0 when unset
  Amount amount(std::string_view name) const;

 private:
  const std::vector<OptionRow>& rows_;
  const PolicySpec& spec_;
};

}  // namespace keynest
