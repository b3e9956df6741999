// How help texts are laid out.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace keynest::cli {

/// One flag a line, with its default in words and the description wrapped beside it.
class HelpFormatter : public CLI::Formatter {
 public:
  HelpFormatter();
  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override;
  std::string make_usage(const CLI::App* app, std::string name) const override;
  std::string make_group(std::string group, bool is_positional,
                         std::vector<const CLI::Option*> options) const override;
  std::string make_option(const CLI::Option* option, bool is_positional) const override;
};

/// `text` in lines of at most `width` columns, the later ones after `indent` blanks.
std::string wrap(const std::string& text, std::size_t indent, std::size_t width);

}  // namespace keynest::cli
