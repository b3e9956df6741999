// keynest bench show: tables and the picture of results that --json has kept.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "bench/plot.h"
#include "bench/tables.h"
#include "cli/atomic_file.h"
#include "cli/bench_commands.h"
#include "cli/report.h"
#include "cli/terminal.h"

namespace keynest::cli {
namespace {

struct ShowFlags {
  std::vector<std::string> files;
  std::string plot;
};

Result<bench::Json> read_results(const std::string& path) {
  const auto text = read_file(path);
  if (!text) return text.error();
  bench::Json results = bench::Json::parse(*text, nullptr, false);
  const bool fits = results.is_object() && results.contains("runs") && results["runs"].is_array();
  if (fits) return results;
  return Error{ErrorCode::kInvalidFile, path + ": holds no results of `keynest bench ... --json`"};
}

Status show(const ShowFlags& flags) {
  if (!flags.plot.empty()) KEYNEST_TRY(check_writable(flags.plot));
  bench::Json all = {{"runs", bench::Json::array()}};
  std::string text;
  for (const std::string& path : flags.files) {
    const auto results = read_results(path);
    if (!results) return results.error();
    text += (text.empty() ? "" : "\n") + bench::print_tables(*results);
    for (const bench::Json& run : (*results)["runs"]) all["runs"].push_back(run);
  }
  if (!flags.plot.empty()) {
    const auto picture = bench::plot_compare(all);
    if (!picture) return picture.error();
    KEYNEST_TRY(write_whole_file(flags.plot, *picture));
  }
  return Output().write(text);
}

}  // namespace

void add_bench_show(CLI::App& bench, Context& context) {
  auto flags = std::make_shared<ShowFlags>();
  CLI::App* command = bench.add_subcommand("show", "Tables and a picture of results kept with --json");
  command->add_option("FILE", flags->files, "Results of one or several benchmarks")
      ->required()
      ->type_name("...")
      ->group("Input");
  command->add_option("--plot", flags->plot, "Draw what `compare` measured, of all files together, as SVG")
      ->type_name("FILE.svg")
      ->group("Output");
  command->footer(R"(Examples:
  The tables again:
    keynest bench show compare.json
  Time and memory against the length of the prompt, from two benchmarks:
    keynest bench show short.json long.json --plot compare.svg)");
  command->callback([flags, &context] {
    context.work = [flags] {
      const Status done = show(*flags);
      return done ? kExitOk : report(done.error());
    };
  });
}

}  // namespace keynest::cli
