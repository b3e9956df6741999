// Parsing and printing of policy specs; the grammar is in keynest/policy.h.
#include <algorithm>

#include "policy/options.h"
#include "policy/registry.h"
#include "policy/suggest.h"

namespace keynest {
namespace {

std::vector<std::string_view> option_names(const MethodRow& method) {
  std::vector<std::string_view> names;
  for (const OptionRow& row : method.options) names.push_back(row.name);
  for (const CommonOption& option : common_options()) names.push_back(option.row.name);
  return names;
}

Error unknown_method(std::string_view name) {
  const std::vector<std::string> names = policy_names();
  const std::vector<std::string_view> views(names.begin(), names.end());
  return invalid_argument("unknown policy " + quoted(name) + did_you_mean(name, views) +
                          "; allowed: " + join(views));
}

Error unknown_option(const MethodRow& method, std::string_view name) {
  const std::vector<std::string_view> names = option_names(method);
  return invalid_argument("policy " + std::string(method.name) + " has no option " + quoted(name) +
                          did_you_mean(name, names) + "; allowed: " + join(names));
}

std::string_view common_fallback(const CommonOption& option, const MethodRow* method) {
  const bool adaptive = method != nullptr && method->heads == HeadAllocation::kAdaptive;
  return option.row.name == "heads" && adaptive ? "adaptive" : option.row.fallback;
}

void set_own_option(PolicySpec& spec, const MethodRow& method, const OptionRow& row, std::string value) {
  std::erase_if(spec.options, [&](const auto& o) { return o.first == row.name; });  // a preset's value
  if (value == row.fallback) return;
  spec.options.emplace_back(row.name, std::move(value));
  const auto place = [&](const auto& option) {
    return std::find_if(method.options.begin(), method.options.end(),
                        [&](const OptionRow& r) { return r.name == option.first; });
  };
  std::sort(spec.options.begin(), spec.options.end(),
            [&](const auto& a, const auto& b) { return place(a) < place(b); });
}

Status set_option(PolicySpec& spec, const MethodRow& method, std::string_view name, std::string_view value) {
  for (const OptionRow& row : method.options) {
    if (row.name != name) continue;
    Result<std::string> text = canonical_value(row, value);
    if (!text) return text.error();
    set_own_option(spec, method, row, std::move(*text));
    return {};
  }
  for (const CommonOption& option : common_options()) {
    if (option.row.name != name) continue;
    const Result<std::string> text = canonical_value(option.row, value);
    if (!text) return text.error();
    option.set(spec, *text);
    return {};
  }
  return unknown_option(method, name);
}

Status set_options(PolicySpec& spec, const MethodRow& method, std::string_view text) {
  std::vector<std::string_view> given;
  for (std::size_t from = 0; from <= text.size();) {
    const std::size_t to = std::min(text.find(',', from), text.size());
    const std::string_view item = text.substr(from, to - from);
    from = to + 1;
    const std::size_t equals = item.find('=');
    if (equals == std::string_view::npos) {
      return invalid_argument(
          "policy option " + quoted(item) +
          " has no value; write name=value[,name=value...], names: " + join(option_names(method)));
    }
    const std::string_view name = item.substr(0, equals);
    if (std::find(given.begin(), given.end(), name) != given.end()) {
      return invalid_argument("policy option " + quoted(name) + " is given twice; give it once");
    }
    given.push_back(name);
    KEYNEST_TRY(set_option(spec, method, name, item.substr(equals + 1)));
  }
  return {};
}

// A rank is the same number in every head only where all heads hold the same number of entries.
Status check_positions(const PolicySpec& spec) {
  if (spec.positions == Positions::kTrue) return {};
  const bool adaptive = spec.heads == HeadAllocation::kAdaptive;
  if (!adaptive && spec.layers == LayerAllocation::kUniform) return {};
  const std::string clash = adaptive ? "heads" : "layers";
  return invalid_argument(
      "policy option positions=cache needs heads and layers that all hold the same number of "
      "entries, but " +
      clash + "=" + (adaptive ? "adaptive" : "pyramid") + " lets them differ; add " + clash + "=uniform");
}

Status check_together(const PolicySpec& spec, const MethodRow& method) {
  const PolicySpec defaults;
  if (spec.safeguard != defaults.safeguard && spec.heads == HeadAllocation::kUniform) {
    return invalid_argument("policy option safeguard= has no effect with heads=uniform; add heads=adaptive");
  }
  if (spec.beta != defaults.beta && spec.layers == LayerAllocation::kUniform) {
    return invalid_argument("policy option beta= has no effect with layers=uniform; add layers=pyramid");
  }
  KEYNEST_TRY(check_positions(spec));
  if (method.check == nullptr) return {};
  return method.check(OptionValues(method.options, spec), spec);
}

Result<PolicySpec> parse_method(std::string_view name) {
  if (const PresetRow* preset = find_preset(name)) return PolicySpec::parse(preset->stands_for);
  const MethodRow* method = find_method(name);
  if (method == nullptr) return unknown_method(name);
  PolicySpec spec;
  spec.method = method->name;
  spec.heads = method->heads;
  return spec;
}

}  // namespace

Result<PolicySpec> PolicySpec::parse(std::string_view text) {
  const std::size_t colon = text.find(':');
  Result<PolicySpec> spec = parse_method(text.substr(0, colon));
  if (!spec) return spec;
  const MethodRow& method = *find_method(spec->method);
  if (colon != std::string_view::npos) KEYNEST_TRY(set_options(*spec, method, text.substr(colon + 1)));
  KEYNEST_TRY(check_together(*spec, method));
  return spec;
}

std::string PolicySpec::print() const {
  const MethodRow* row = find_method(method);
  std::string text = method;
  char separator = ':';
  const auto add = [&](std::string_view name, std::string_view value) {
    text += separator;
    text += name;
    text += '=';
    text += value;
    separator = ',';
  };
  for (const auto& [name, value] : options) add(name, value);
  for (const CommonOption& option : common_options()) {
    const std::string value = option.get(*this);
    if (value != common_fallback(option, row)) add(option.row.name, value);
  }
  return text;
}

std::vector<std::string> policy_names() {
  std::vector<std::string> names;
  for (const MethodRow& method : methods()) names.emplace_back(method.name);
  for (const PresetRow& preset : presets()) names.emplace_back(preset.name);
  return names;
}

}  // namespace keynest
