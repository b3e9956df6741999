#include "cli/bench_flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <thread>
#include <utility>

#include "bench/tables.h"
#include "bench/text.h"
#include "cli/atomic_file.h"
#include "cli/interrupt.h"
#include "cli/number_flag.h"
#include "cli/report.h"
#include "cli/terminal.h"

namespace keynest::cli {
namespace {

bench::Host host_of(const MeasureFlags& flags) {
  const auto save = [path = flags.json](const std::string& json) -> Status {
    if (path.empty()) return {};
    return write_whole_file(path, json);
  };
  const auto tell = [quiet = flags.quiet](const std::string& line) {
    if (!quiet) remark(line);
  };
  return {save, tell, interrupted};
}

}  // namespace

void declare(CLI::App& command, MeasureFlags& flags, int rounds) {
  constexpr const char* kGroup = "Measuring";
  flags.rounds = rounds;
  command.add_option("--rounds", flags.rounds, "How often everything is measured, in turns")
      ->type_name("N")
      ->capture_default_str()
      ->check(number_from(1, 1000, "1 to 1000 rounds"))
      ->group(kGroup);
  command
      .add_flag("--quick", flags.quick, "Little of everything, once: shows that it works, measures nothing")
      ->group(kGroup);
  command.add_option("--json", flags.json, "Keep every single run in this file, written after each")
      ->type_name("FILE")
      ->group("Output");
  command.add_flag("-q,--quiet", flags.quiet, "No progress on standard error")->group("Output");
}

void add_numbers(CLI::App& command, const char* name, std::vector<std::int64_t>& values, const char* help) {
  command.add_option(name, values, help)
      ->type_name("N,N,...")
      ->delimiter(',')
      ->default_str(CLI::detail::join(values))
      ->group("Measuring");
}

void declare(CLI::App& command, ModelBenchFlags& flags, const char* name, const char* help) {
  declare(command, flags.model);
  declare(command, flags.cache);
  for (const char* other : {"--policy", "--decode-block"}) command.remove_option(command.get_option(other));
  command
      .add_option(
          "--policy", flags.policies,
          "What the cache keeps, such as keydiff (`keynest run --help` lists them); may be given several "
          "times")
      ->type_name("SPEC")
      ->default_str(CLI::detail::join(flags.policies, ", "))
      ->allow_extra_args(false)
      ->group("Cache");
  add_numbers(command, name, flags.lengths, help);
  command.add_option("--text", flags.text, "Text of the prompts (default: the licences of the system)")
      ->type_name("FILE")
      ->group("Measuring");
}

void add_answer(CLI::App& command, int& answer) {
  command.add_option("--answer", answer, "Tokens generated after the prompt")
      ->type_name("N")
      ->capture_default_str()
      ->check(number_from(2, 1 << 16, "2 to 65536 tokens"))
      ->group("Measuring");
}

Status check(const MeasureFlags& flags) {
  if (flags.json.empty()) return {};
  return check_writable(flags.json);
}

Status check_lengths(std::vector<std::int64_t>& lengths, const char* name, std::int64_t least,
                     std::int64_t apart) {
  constexpr std::int64_t kMost = 1 << 22;
  std::sort(lengths.begin(), lengths.end());
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    if (lengths[i] < least || lengths[i] > kMost) {
      return invalid_argument(std::string(name) + " " + std::to_string(lengths[i]) +
                              " is not allowed; give " + std::to_string(least) + " to " +
                              std::to_string(kMost) + " tokens");
    }
    if (i > 0 && lengths[i] - lengths[i - 1] < apart) {
      return invalid_argument(std::string(name) + " " + std::to_string(lengths[i - 1]) + " and " +
                              std::to_string(lengths[i]) + " are too close; leave " + std::to_string(apart) +
                              " tokens or more between two of them");
    }
  }
  return {};
}

Result<std::vector<SessionOptions>> bench_sessions(const ModelBenchFlags& flags,
                                                   const std::vector<std::int64_t>& blocks) {
  std::vector<SessionOptions> sessions;
  for (const std::int64_t block : blocks) {
    for (const std::string& policy : flags.policies) {
      CacheFlags cache = flags.cache;
      cache.policy = policy;
      cache.block = static_cast<std::int32_t>(block);
      cache.threads = thread_count(cache.threads);
      auto options = session_options(cache);
      if (!options) return options.error();
      if (options->policy.method == "full") options->budget = {};
      const auto same = [&](const SessionOptions& other) {
        return other.policy == options->policy && other.block == options->block;
      };
      if (std::any_of(sessions.begin(), sessions.end(), same)) {
        return invalid_argument("--policy " + policy + " is given twice; give every policy once");
      }
      sessions.push_back(*options);
    }
  }
  return sessions;
}

Result<std::string> bench_text(const ModelBenchFlags& flags) {
  if (flags.text.empty()) return bench::licence_texts();
  auto text = read_file(flags.text);
  if (text && text->empty()) return invalid_argument("--text " + flags.text + ": the file is empty");
  return text;
}

int thread_count(int wanted) {
  return wanted > 0 ? wanted : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

bench::Json head_of(const ModelBenchFlags& flags) {
  const std::string& path = flags.model.path;
  return {{"model", path.substr(path.find_last_of('/') + 1)}, {"threads", thread_count(flags.cache.threads)}};
}

int run_bench(const MeasureFlags& flags, bench::Json head,
              const std::function<Status(bench::Recorder&)>& work) {
  bench::Json results = {{"machine", bench::describe_machine()}};
  results.update(head);
  bench::Recorder recorder(std::move(results), host_of(flags));
  const Status done = work(recorder);
  Status printed;
  if (!recorder.results()["runs"].empty()) printed = Output().write(bench::print_tables(recorder.results()));
  if (interrupted()) return kExitInterrupted;
  if (!done) return report(done.error());
  return printed ? kExitOk : report(printed.error());
}

}  // namespace keynest::cli
