// The help text of --policy, printed from the registry.
#include "policy/registry.h"

namespace keynest {
namespace {

void add_option(std::string& text, const OptionRow& row) {
  text += "      ";
  text += row.name;
  text += "=";
  text += allowed_values(row);
  if (!row.fallback.empty()) text += " (default " + std::string(row.fallback) + ")";
  text += "\n          " + std::string(row.help) + "\n";
}

}  // namespace

std::string policy_help() {
  std::string text = "METHOD[:OPTION=VALUE[,OPTION=VALUE...]]\n\nmethods\n";
  for (const MethodRow& method : methods()) {
    text += "  " + std::string(method.name) + ": " + std::string(method.help);
    if (method.heads == HeadAllocation::kAdaptive) text += " (heads=adaptive by default)";
    text += "\n";
    for (const OptionRow& row : method.options) add_option(text, row);
  }
  for (const PresetRow& preset : presets()) {
    text += "  " + std::string(preset.name) + ": " + std::string(preset.help) + "\n      short for " +
            std::string(preset.stands_for) + "\n";
  }
  text += "\noptions of every method\n";
  for (const CommonOption& option : common_options()) add_option(text, option.row);
  return text;
}

}  // namespace keynest
