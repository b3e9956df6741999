// The policy spec: which entries to keep, as a string such as "keydiff:anchor=mean,keep_last=20%".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "keynest/result.h"
#include "keynest/types.h"

namespace keynest {

/// Positions [first, last) of a sequence.
struct PositionRange {
  Position first{}, last{};
  bool operator==(const PositionRange&) const = default;
};

/// A number of entries, given as a count or as a share of the budget N.
struct Amount {
  double value = 0;
  bool is_share = false;  ///< value is a fraction of N (0.2 for "20%")

  /// Entries, for a budget of `n`: the count, or int(value * n) in double.
  std::int32_t entries(std::int32_t n) const {
    return static_cast<std::int32_t>(is_share ? value * n : value);
  }
  bool operator==(const Amount&) const = default;
};

enum class HeadAllocation { kUniform, kAdaptive };  ///< adaptive: AdaKV, heads of a layer compete
enum class LayerAllocation { kUniform, kPyramid };  ///< pyramid: PyramidKV, less with depth
enum class Schedule { kBlock, kPrefill };           ///< evict after every block / once after the prompt
enum class DecodeMode { kEvict, kAppend };          ///< in decode: hold the bound / append unscored
enum class Positions { kTrue, kCache };             ///< what RoPE rotates by: positions / ranks in the cache

/// A parsed policy. Parse -> print -> parse is the identity.
///
/// Grammar: `method[:key=value[,key=value...]]`. Options every method takes: `heads=uniform|adaptive`,
/// `safeguard=` (share, with heads=adaptive), `layers=uniform|pyramid`, `beta=` (with layers=pyramid),
/// `schedule=block|prefill`, `decode=evict|append`, `positions=true|cache`, `keep_first=`, `keep_last=` (a
/// count or `20%` of N). Options of one method only are kept in `options`, already checked against its
/// registry entry. A method may have other defaults than the ones below (`nestedkv` has heads=adaptive);
/// parse applies them and print leaves them out. A preset (`nestedkv-paper`) is a name for a spec: parse
/// gives what it stands for.
struct PolicySpec {
  std::string method = "keydiff";
  HeadAllocation heads = HeadAllocation::kUniform;
  LayerAllocation layers = LayerAllocation::kUniform;
  Schedule schedule = Schedule::kBlock;
  DecodeMode decode = DecodeMode::kEvict;
  Positions positions = Positions::kTrue;
  double safeguard = 0.20;  ///< share of its budget a head keeps for itself (AdaKV's alpha)
  double beta = 20.0;       ///< PyramidKV's steepness
  Amount keep_first;        ///< the first positions, always kept
  Amount keep_last;         ///< the most recent positions, always kept
  /// The method's own options, (name, value), non-default, in table order.
  std::vector<std::pair<std::string, std::string>> options;

  /// Errors: unknown method, option or value; the message lists what is allowed.
  static Result<PolicySpec> parse(std::string_view text);

  /// The shortest spec that parses to this.
  std::string print() const;

  bool operator==(const PolicySpec&) const = default;
};

/// Help text: every method and preset with its options, defaults and what it does, then the options every
/// method takes.
std::string policy_help();

/// Names of the methods and presets a spec may start with.
std::vector<std::string> policy_names();

}  // namespace keynest
