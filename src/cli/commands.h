// The commands of the program, one file each. `add_<command>` adds a command and its flags to the
// application; when the user chooses it, its callback leaves the work in the context, and main runs that
// after the whole command line has been read. Flag values live in a shared_ptr that the callback captures.
#pragma once

#include <functional>

namespace CLI {  // NOLINT(readability-identifier-naming): the name of CLI11
class App;
}

namespace keynest::cli {

/// What the program tells its caller.
enum ExitCode : int {
  kExitOk = 0,
  kExitFailed = 1,         ///< the work failed: a file, memory, writing
  kExitUsage = 2,          ///< a value on the command line is not allowed
  kExitInterrupted = 130,  ///< Ctrl-C
};

/// Filled by the callback of the chosen command.
struct Context {
  std::function<int()> work;  ///< does the work, returns an ExitCode
};

void add_run(CLI::App& app, Context& context);
void add_chat(CLI::App& app, Context& context);
void add_score(CLI::App& app, Context& context);
void add_inspect(CLI::App& app, Context& context);
void add_bench(CLI::App& app, Context& context);

}  // namespace keynest::cli
