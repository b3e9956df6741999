// Flags that the commands under `keynest bench` share, and what they become.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "bench/recorder.h"
#include "bench/sessions.h"
#include "cli/flags.h"

namespace keynest::cli {

/// Where results go and how much is measured.
struct MeasureFlags {
  int rounds = 0;  ///< 0: the command's own default
  bool quick = false, quiet = false;
  std::string json;
};

/// What the commands that run a model have in common.
struct ModelBenchFlags {
  ModelFlags model;
  CacheFlags cache;
  std::vector<std::string> policies;
  std::vector<std::int64_t> lengths;
  std::string text;
  MeasureFlags measure;
};

void declare(CLI::App& command, MeasureFlags& flags, int rounds);

/// `name` is the flag of the lengths, such as "--depths"; lengths and policies hold their defaults.
void declare(CLI::App& command, ModelBenchFlags& flags, const char* name, const char* help);

/// Numbers separated by commas.
void add_numbers(CLI::App& command, const char* name, std::vector<std::int64_t>& values, const char* help);

/// --answer: tokens generated after the prompt.
void add_answer(CLI::App& command, int& answer);

/// Errors: flags.json cannot be written.
Status check(const MeasureFlags& flags);

/// Sorts the lengths. Errors (kInvalidArgument): one below `least`, two closer than `apart`.
Status check_lengths(std::vector<std::int64_t>& lengths, const char* name, std::int64_t least,
                     std::int64_t apart);

/// A session for every policy and block; `full` has no budget. Errors: those of session_options, a policy
/// given twice.
Result<std::vector<SessionOptions>> bench_sessions(const ModelBenchFlags& flags,
                                                   const std::vector<std::int64_t>& blocks);

/// The text of the prompts: --text, or the licences of the system.
Result<std::string> bench_text(const ModelBenchFlags& flags);

/// Threads as a number, not "all".
int thread_count(int wanted);

/// What a result says about the model and the threads.
bench::Json head_of(const ModelBenchFlags& flags);

/// Runs `work` and prints its tables, also when it was stopped. Returns an ExitCode.
int run_bench(const MeasureFlags& flags, bench::Json head,
              const std::function<Status(bench::Recorder&)>& work);

}  // namespace keynest::cli
