// The policy spec: which entries to keep, as a string such as "keydiff:anchor=mean,keep_last=20%".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "keynest/result.h"

namespace keynest {

/// A number of entries, given as a count or as a share of the budget N.
struct Amount {
  double value = 0;
  bool is_share = false;  ///< value is a fraction of N (0.2 for "20%")

  /// Entries, for a budget of `n`: the count, or int(value * n).
  std::int32_t entries(std::int32_t n) const {
    return static_cast<std::int32_t>(is_share ? value * n : value);
  }
  bool operator==(const Amount&) const = default;
};

enum class HeadAllocation { kUniform, kAdaptive };   ///< adaptive: AdaKV, heads of a layer compete
enum class LayerAllocation { kUniform, kPyramid };   ///< pyramid: PyramidKV, less with depth
enum class Schedule { kBlock, kPrefill };            ///< evict after every block / once after the prompt
enum class DecodeMode { kEvict, kAppend };           ///< in decode: hold the bound / append unscored

/// A parsed policy. Parse -> print -> parse is the identity.
///
/// Grammar: `method[:key=value[,key=value...]]`. Options every method takes: `heads=uniform|adaptive`,
/// `safeguard=` (share, with heads=adaptive), `layers=uniform|pyramid`, `beta=` (with layers=pyramid),
/// `schedule=block|prefill`, `decode=evict|append`, `keep_first=`, `keep_last=` (a count or `20%` of
/// N). Options of one method only are kept in `options`, already checked against its registry entry.
struct PolicySpec {
  std::string method = "keydiff";
  HeadAllocation heads = HeadAllocation::kUniform;
  LayerAllocation layers = LayerAllocation::kUniform;
  Schedule schedule = Schedule::kBlock;
  DecodeMode decode = DecodeMode::kEvict;
  double safeguard = 0.20;  ///< share of its budget a head keeps for itself (AdaKV's alpha)
  double beta = 20.0;       ///< PyramidKV's steepness
  Amount keep_first;        ///< the first positions, always kept
  Amount keep_last;         ///< the most recent entries, always kept
  std::vector<std::pair<std::string, std::string>> options;  ///< the method's own, non-default, in table order

  /// Errors: unknown method, option or value; the message lists what is allowed.
  static Result<PolicySpec> parse(std::string_view text);

  /// The shortest spec that parses to this.
  std::string print() const;

  bool operator==(const PolicySpec&) const = default;
};

/// One line per method for help texts: name, its options with defaults, what it does.
std::string policy_help();

}  // namespace keynest
