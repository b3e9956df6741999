// The table of methods. A new method is one file that defines `<name>_method()` and one line in registry.cc.
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "policy/options.h"
#include "policy/policy.h"

namespace keynest {

struct MethodRow {
  std::string_view name;
  std::string_view help;
  std::vector<OptionRow> options;
  /// Null: nothing is ever evicted.
  std::unique_ptr<Policy> (*make)(const OptionValues& values, const PolicySpec& spec,
                                  const CacheShape& shape) = nullptr;
  HeadAllocation heads = HeadAllocation::kUniform;  ///< default of heads=
  /// Options that exclude each other; null: none.
  Status (*check)(const OptionValues& values, const PolicySpec& spec) = nullptr;
};

/// A name for a longer spec.
struct PresetRow {
  std::string_view name, stands_for, help;
};

/// Every method, in the order of the help.
std::span<const MethodRow> methods();
std::span<const PresetRow> presets();

/// Null when unknown.
const MethodRow* find_method(std::string_view name);
const PresetRow* find_preset(std::string_view name);

/// An option that every method takes, bound to its field of the spec.
struct CommonOption {
  OptionRow row;  ///< fallback of heads= is the method's
  void (*set)(PolicySpec& spec, std::string_view canonical) = nullptr;
  std::string (*get)(const PolicySpec& spec) = nullptr;
};

std::span<const CommonOption> common_options();

}  // namespace keynest
