#include "policy/registry.h"

#include <algorithm>
#include <array>

// One line per method: the name of its function <name>_method() and its place in the help.
#define KEYNEST_METHODS(X) \
  X(full)                  \
  X(sink)                  \
  X(keydiff)               \
  X(nestedkv)              \
  X(tova)                  \
  X(snapkv)                \
  X(h2o)                   \
  X(knorm)                 \
  X(random)

namespace keynest {

#define X(name) MethodRow name##_method();
KEYNEST_METHODS(X)
#undef X

std::span<const MethodRow> methods() {
#define X(name) name##_method(),
  static const std::array kRows = {KEYNEST_METHODS(X)};
#undef X
  return kRows;
}

std::span<const PresetRow> presets() {
  static constexpr std::array<PresetRow, 1> kRows = {
      {{"nestedkv-paper", "nestedkv:schedule=prefill,decode=append",
        "NestedKV as published: once after the prompt, generated tokens kept unscored"}}};
  return kRows;
}

const MethodRow* find_method(std::string_view name) {
  const auto rows = methods();
  const auto found =
      std::find_if(rows.begin(), rows.end(), [&](const MethodRow& r) { return r.name == name; });
  return found == rows.end() ? nullptr : &*found;
}

const PresetRow* find_preset(std::string_view name) {
  const auto rows = presets();
  const auto found =
      std::find_if(rows.begin(), rows.end(), [&](const PresetRow& r) { return r.name == name; });
  return found == rows.end() ? nullptr : &*found;
}

}  // namespace keynest
