// The program: reads the command line, runs the chosen command.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <memory>
#include <string>

#include "cli/commands.h"
#include "cli/help.h"
#include "cli/report.h"
#include "cli/terminal.h"
#include "keynest/session.h"

namespace {

using namespace keynest::cli;

constexpr const char* kAbout =
    "keynest runs language models on long inputs inside a fixed KV-cache budget: every layer and head keeps "
    "only\n"
    "the entries that matter most, so memory stays the same however long the prompt gets.";

constexpr const char* kExamples = R"(Examples:
  Ask about a long document with a cache of 2048 entries per layer and head:
    keynest run -m model.gguf -f report.txt -p "What was decided in May?" --budget 2048
  Talk about a book, never holding more than 64 MiB of cache:
    keynest chat -m model.gguf -f book.txt --budget 64MiB
  See which keys a policy keeps, without any model:
    keynest score --policy keydiff --keys keys.npy --budget 128 --kept kept.npy
  Measure how fast it is on this machine:
    keynest bench decode -m model.gguf

`keynest COMMAND --help` tells about each command, with examples and the list of policies.
Exit status: 0 done, 1 the work failed, 2 the command line is wrong, 130 stopped by Ctrl-C.)";

/// The words of the command line that name a command, and the last one of them.
struct Chosen {
  const CLI::App* command;
  std::string words;
};

Chosen chosen_command(const CLI::App& app) {
  Chosen chosen{&app, {}};
  for (auto below = app.get_subcommands(); !below.empty(); below = chosen.command->get_subcommands()) {
    chosen.command = below.front();
    chosen.words += " " + chosen.command->get_name();
  }
  return chosen;
}

/// What is wrong where one of several commands should stand.
std::string without_command(const CLI::App& app) {
  const auto unknown = app.remaining();
  std::string commands;
  for (const CLI::App* command : app.get_subcommands({})) commands += " " + command->get_name();
  if (unknown.empty()) return "which command? there are:" + commands;
  return "there is no command or flag \"" + unknown.front() + "\"; the commands are:" + commands;
}

std::string message_of(const CLI::App& command, const CLI::ParseError& error) {
  const auto unknown = command.remaining();
  const bool is_extra = dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr && !unknown.empty();
  return is_extra ? "there is no flag or argument \"" + unknown.front() + "\" here" : error.what();
}

int usage_error(const CLI::App& app, const CLI::ParseError& error) {
  const auto [command, words] = chosen_command(app);
  const bool has_commands = !command->get_subcommands({}).empty();
  const std::string message = has_commands ? without_command(*command) : message_of(*command, error);
  return report(keynest::invalid_argument(message + "\nTry `keynest" + words + " --help`."));
}

int run_program(int argc, char** argv) {
  occupy_standard_streams();
  CLI::App app(kAbout, "keynest");
  Context context;
  app.require_subcommand(1);
  app.set_version_flag("--version", keynest::version_text, "Print the version, SIMD target and engine");
  app.formatter(std::make_shared<HelpFormatter>());
  add_run(app, context);
  add_chat(app, context);
  add_score(app, context);
  add_inspect(app, context);
  add_bench(app, context);
  for (CLI::App* command : app.get_subcommands({})) command->group("Commands");
  app.footer(kExamples);  // last, as commands would inherit it
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return error.get_exit_code() == 0 ? app.exit(error) : usage_error(app, error);
  }
  return context.work();
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run_program(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "keynest: internal error: %s\n", error.what());
    return kExitFailed;
  }
}
