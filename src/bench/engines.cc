#include "bench/engines.h"

#include <cmath>
#include <fstream>
#include <sstream>

#include "bench/process.h"
#include "bench/runs.h"

namespace keynest::bench {
namespace {

constexpr int kNotInstalled = 3;  // a peer's exit code

std::string last_line(const std::string& text) {
  const auto end = text.find_last_not_of(" \t\r\n");
  if (end == std::string::npos) return {};
  const auto start = text.find_last_of('\n', end);
  return text.substr(start == std::string::npos ? 0 : start + 1,
                     end - (start == std::string::npos ? 0 : start + 1) + 1);
}

/// Why a process that ended so has no result; empty when it may have one.
std::string failure(const ProcessEnd& end, double limit) {
  if (end.timed_out)
    return "did not end within " + std::to_string(std::llround(limit)) + " s and was killed (--limit)";
  if (end.exit_code == 0) return {};
  const std::string why = last_line(end.err);
  return "ended with " + std::to_string(end.exit_code) + (why.empty() ? "" : ": " + why);
}

std::vector<std::string> keynest_command(const KeynestEngine& engine, const Task& task,
                                         const std::string& stats) {
  std::vector<std::string> command{engine.program,
                                   "run",
                                   "-m",
                                   task.model,
                                   "-f",
                                   task.prompt_file,
                                   "--no-chat",
                                   "--policy",
                                   engine.policy,
                                   "-n",
                                   std::to_string(task.answer),
                                   "--ignore-eos",
                                   "--threads",
                                   std::to_string(task.threads),
                                   "--stats",
                                   stats,
                                   "-q"};
  command.insert(command.end(), engine.flags.begin(), engine.flags.end());
  return command;
}

/// The figures of --stats under the names that all engines use.
Json figures_of(const Json& stats) {
  const auto part = [&](const char* name) { return stats.contains(name) ? stats[name] : Json::object(); };
  return {{"prompt_tokens", stats.value("prompt_tokens", 0)},
          {"ttft_seconds", number_of(stats, "ttft_seconds")},
          {"decode_tokens_per_second", number_of(part("decode"), "tokens_per_second")},
          {"peak_resident_bytes", stats.value("peak_rss_bytes", std::int64_t{0})},
          {"cache_bytes", part("cache").value("peak_bytes", std::int64_t{0})},
          {"full_cache_bytes", part("cache").value("full_bytes", std::int64_t{0})},
          {"evict_seconds", number_of(stats, "evict_seconds")},
          {"budget", stats.value("budget", 0)},
          {"block", stats.value("block", 0)},
          {"gemm", text_of(stats, "gemm")}};
}

/// What is wrong with a peer's figures; empty: nothing.
std::string complaint(const Json& figures) {
  for (const char* field :
       {"prompt_tokens", "ttft_seconds", "decode_tokens_per_second", "peak_resident_bytes"}) {
    const double value = number_of(figures, field, -1);
    if (!std::isfinite(value) || value <= 0) return std::string("its result has no ") + field;
  }
  return {};
}

Json read_json(const std::string& path) {
  std::ifstream file(path);
  return Json::parse(file, nullptr, false);
}

}  // namespace

Json last_object(const std::string& text) {
  Json found;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    Json object = Json::parse(line, nullptr, false);
    if (object.is_object()) found = std::move(object);
  }
  return found;
}

Result<Measured> run_keynest(const KeynestEngine& engine, const Task& task, const Stopped& stopped) {
  const std::string stats_file = task.prompt_file + ".stats";
  const auto end = run_process(keynest_command(engine, task, stats_file), task.limit_seconds, stopped);
  if (!end) return end.error();
  Measured measured;
  measured.problem = failure(*end, task.limit_seconds);
  if (!measured.problem.empty()) return measured;
  const Json stats = read_json(stats_file);
  if (!stats.is_object()) {
    measured.problem = "wrote no statistics";
    return measured;
  }
  measured.figures = figures_of(stats);
  measured.figures["process_seconds"] = end->seconds;
  return measured;
}

Result<Measured> run_peer(const std::string& script, std::int64_t budget, const Task& task,
                          const Stopped& stopped) {
  std::vector<std::string> command{script,
                                   "--model",
                                   task.model,
                                   "--prompt",
                                   task.prompt_file,
                                   "--tokens",
                                   std::to_string(task.plain),
                                   "--answer",
                                   std::to_string(task.answer),
                                   "--threads",
                                   std::to_string(task.threads)};
  if (budget > 0) command.insert(command.end(), {"--budget", std::to_string(budget)});
  const auto end = run_process(command, task.limit_seconds, stopped);
  Measured measured;
  if (!end && end.error().code == ErrorCode::kCancelled) return end.error();
  if (!end) {
    measured.missing = end.error().message;
    return measured;
  }
  if (end->exit_code == kNotInstalled) {
    measured.missing = last_line(end->err);
    if (measured.missing.empty()) measured.missing = "scripts/get-peers installs it";
    return measured;
  }
  measured.problem = failure(*end, task.limit_seconds);
  if (!measured.ok()) return measured;
  measured.figures = last_object(end->out);
  measured.problem = measured.figures.is_object() ? complaint(measured.figures) : "printed no line of JSON";
  if (measured.ok()) measured.figures["process_seconds"] = end->seconds;
  return measured;
}

}  // namespace keynest::bench
