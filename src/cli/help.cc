#include "cli/help.h"

#include <sstream>
#include <utility>

namespace keynest::cli {
namespace {

constexpr std::size_t kNameColumns = 30;
constexpr std::size_t kColumns = 110;

std::string description(const CLI::Option& option) {
  std::string text = option.get_description();
  const std::string fallback = option.get_default_str();
  if (option.get_type_size() != 0 && !fallback.empty()) text += " (default " + fallback + ")";
  return text;
}

}  // namespace

std::string wrap(const std::string& text, std::size_t indent, std::size_t width) {
  std::istringstream words(text);
  std::string out;
  std::size_t column = indent;
  for (std::string word; words >> word;) {
    if (!out.empty() && column + 1 + word.size() > width) {
      out += "\n" + std::string(indent, ' ');
      column = indent;
    } else if (!out.empty()) {
      out += ' ';
      ++column;
    }
    out += word;
    column += word.size();
  }
  return out;
}

HelpFormatter::HelpFormatter() { column_width(kNameColumns); }

std::string HelpFormatter::make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const {
  // Groups come with a blank line before and one after.
  return CLI::detail::find_and_replace(CLI::Formatter::make_help(app, std::move(name), mode), "\n\n\n",
                                       "\n\n");
}

std::string HelpFormatter::make_usage(const CLI::App* app, std::string name) const {
  std::string text = "\nUsage: " + (name.empty() ? app->get_name() : name);
  for (const CLI::Option* option : app->get_options()) {
    if (option->get_required()) text += " " + option->get_name() + " " + option->get_type_name();
  }
  text += app->get_subcommands({}).empty() ? " [OPTIONS]\n" : " COMMAND [OPTIONS]\n";
  return text;
}

std::string HelpFormatter::make_group(std::string group, bool is_positional,
                                      std::vector<const CLI::Option*> options) const {
  std::string text = "\n" + group + ":\n";
  for (const CLI::Option* option : options) text += make_option(option, is_positional);
  return text;
}

std::string HelpFormatter::make_option(const CLI::Option* option, bool is_positional) const {
  std::string name = "  " + make_option_name(option, is_positional);
  if (option->get_type_size() != 0) name += " " + option->get_type_name();
  name += name.size() + 1 < kNameColumns ? std::string(kNameColumns - name.size(), ' ')
                                         : "\n" + std::string(kNameColumns, ' ');
  return name + wrap(description(*option), kNameColumns, kColumns) + "\n";
}

}  // namespace keynest::cli
