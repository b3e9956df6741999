// keynest_needle: a number hidden in a long text, asked for inside budgets. How many each policy still reads.
#include "eval/needle.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <vector>

#include "eval/answer.h"
#include "keynest/model.h"
#include "keynest/session.h"
#include "needle_log.h"
#include "needle_table.h"

namespace keynest::bench {
namespace {

constexpr const char* kAbout =
    "Needle in a haystack: a 7-digit number in a long text, asked for at its end. Prints how many answers "
    "are\n"
    "exact, and the share of leading digits right, for every policy and budget. docs/quality.md says more.";

constexpr const char* kExamples =
    "Examples:\n"
    "  scripts/get-essays\n"
    "  build/keynest_needle -m models/Qwen2.5-Coder-0.5B-Instruct.Q4_K_M.gguf --json needle.jsonl\n"
    "  build/keynest_needle -m MODEL --haystack book.txt --policy nestedkv --policy keydiff --budget 896\n"
    "A run that was stopped goes on where it was when --json names the same file.\n";

struct Flags {
  std::string model, chat_template = "chatml", json;
  std::vector<std::string> haystack;
  std::vector<std::string> policies{"full", "nestedkv", "keydiff", "snapkv", "tova",
                                    "h2o",  "sink",     "knorm",   "random"};
  std::vector<std::string> budgets{"512", "1024", "2048"};
  eval::NeedleOptions tasks;
  int block = 128, threads = 0, most = 24;
  bool by_depth = false;
};

/// One policy inside one budget.
struct Setting {
  SessionOptions options;
  std::string policy, budget;  ///< as printed
  std::size_t row = 0, column = 0;
};

Result<std::string> read_haystack(const std::vector<std::string>& paths) {
  std::string text;
  for (const std::string& path : paths) {
    std::ifstream in(path, std::ios::binary);
    if (!in) return Error{ErrorCode::kIo, path + ": cannot be read; scripts/get-essays fetches a haystack"};
    text.append(std::istreambuf_iterator<char>(in), {});
    text += '\n';
  }
  return text;
}

/// FNV-1a: tells haystacks apart in the log.
std::string fingerprint(std::string_view text) {
  std::uint64_t hash = 14695981039346656037ull;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ull;
  char digits[20];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(hash));
  return digits;
}

/// Policies without a budget run once.
Result<std::vector<Setting>> settings_of(const Flags& flags) {
  std::vector<Setting> settings;
  for (std::size_t row = 0; row < flags.policies.size(); ++row) {
    const auto policy = PolicySpec::parse(flags.policies[row]);
    if (!policy) return policy.error();
    const bool full = policy->method == "full";
    for (std::size_t column = 0; column < (full ? 1 : flags.budgets.size()); ++column) {
      const auto budget = Budget::parse(full ? "full" : flags.budgets[column]);
      if (!budget) return budget.error();
      Setting setting;
      setting.policy = policy->print();
      setting.budget = budget->print();
      setting.row = row;
      setting.column = column;
      setting.options.policy = *policy;
      setting.options.budget = *budget;
      setting.options.block = flags.block;
      setting.options.threads = flags.threads;
      settings.push_back(setting);
    }
  }
  return settings;
}

class Check {
 public:
  Check(const Flags& flags, std::shared_ptr<const Model> model, NeedleLog log)
      : flags_(flags), model_(std::move(model)), log_(std::move(log)), started_(Clock::now()) {}

  Status run(const std::string& haystack);
  void print() const;

 private:
  using Clock = std::chrono::steady_clock;

  nlohmann::json key(const Setting& setting, const eval::NeedleTask& task, const std::string& haystack) const;
  static nlohmann::json filled_in(nlohmann::json line, const eval::NeedleTask& task,
                                  const eval::Answer& answer);
  Status ask(const Setting& setting, std::span<const eval::NeedleTask> tasks, int needle,
             const std::string& haystack);
  void count(const Setting& setting, const eval::NeedleTask& task, const nlohmann::json& line);
  void show_progress(const Setting& setting, const nlohmann::json& line);

  const Flags& flags_;
  std::shared_ptr<const Model> model_;
  NeedleLog log_;
  std::vector<NeedleRow> rows_;
  Clock::time_point started_;
  std::size_t done_ = 0, asked_ = 0, all_ = 0;
};

nlohmann::json Check::key(const Setting& setting, const eval::NeedleTask& task,
                          const std::string& haystack) const {
  const std::string& path = flags_.model;
  return {{"model", path.substr(path.find_last_of('/') + 1)},
          {"haystack", haystack},
          {"tokens", flags_.tasks.tokens},
          {"depths", flags_.tasks.depths},
          {"digits", flags_.tasks.digits},
          {"seed", flags_.tasks.seed},
          {"depth", task.depth},
          {"needle", task.needle},
          {"policy", setting.policy},
          {"budget", setting.budget},
          {"block", flags_.block},
          {"most", flags_.most}};
}

nlohmann::json Check::filled_in(nlohmann::json line, const eval::NeedleTask& task,
                                const eval::Answer& answer) {
  const eval::NeedleScore score = eval::score_number(answer.text, task.number);
  line.update({{"expected", task.number},
               {"answer", answer.text},
               {"exact", score.exact},
               {"leading", score.leading},
               {"prompt_tokens", answer.prompt_tokens}});
  return line;
}

void Check::count(const Setting& setting, const eval::NeedleTask& task, const nlohmann::json& line) {
  NeedleCell& cell = rows_[setting.row].cells[setting.column];
  const bool exact = line.value("exact", false);
  ++cell.answers;
  cell.exact += exact;
  cell.leading += line.value("leading", 0.0);
  cell.exact_by_depth[task.depth] += exact;
}

void Check::show_progress(const Setting& setting, const nlohmann::json& line) {
  const double seconds = std::chrono::duration<double>(Clock::now() - started_).count();
  const double left =
      seconds / static_cast<double>(std::max<std::size_t>(asked_, 1)) * static_cast<double>(all_ - done_);
  std::string answer = line.value("answer", "").substr(0, 40);
  std::replace(answer.begin(), answer.end(), '\n', ' ');
  std::fprintf(stderr, "%zu of %zu, %.0f min left: %s, N = %s, depth %d: %s (%s)\n", done_, all_, left / 60,
               setting.policy.c_str(), setting.budget.c_str(), line.value("depth", 0),
               line.value("exact", false) ? "right" : "wrong", answer.c_str());
}

Status Check::run(const std::string& haystack) {
  const auto settings = settings_of(flags_);
  if (!settings) return settings.error();
  const auto tasks = eval::make_needle_tasks(haystack, flags_.tasks, [&](std::string_view text) {
    return model_->tokenize(text, false, false).size();
  });
  if (!tasks) return tasks.error();
  for (const std::string& policy : flags_.policies) rows_.push_back({policy, {}});
  for (const Setting& setting : *settings) rows_[setting.row].cells.emplace_back();
  all_ = settings->size() * tasks->size();
  const std::string print = fingerprint(haystack);
  // Part by part, so that a check that is stopped has compared all policies on what it asked.
  for (int needle = 0; needle < flags_.tasks.needles; ++needle) {
    for (const Setting& setting : *settings) KEYNEST_TRY(ask(setting, *tasks, needle, print));
  }
  return {};
}

/// The questions of one part of the haystack, at all depths, that the log does not answer yet.
Status Check::ask(const Setting& setting, std::span<const eval::NeedleTask> tasks, int needle,
                  const std::string& haystack) {
  std::vector<const eval::NeedleTask*> open;
  std::vector<std::string> prompts;
  for (const eval::NeedleTask& task : tasks) {
    if (task.needle != needle) continue;
    if (const nlohmann::json* known = log_.find(key(setting, task, haystack))) {
      ++done_;
      count(setting, task, *known);
    } else {
      open.push_back(&task);
      prompts.push_back(task.prompt);
    }
  }
  const eval::AnswerOptions options{setting.options, flags_.chat_template, flags_.most};
  const Status status =
      eval::answer_all(model_, prompts, options, [&](std::size_t i, const eval::Answer& made) {
        const nlohmann::json line = filled_in(key(setting, *open[i], haystack), *open[i], made);
        ++done_;
        ++asked_;
        count(setting, *open[i], line);
        show_progress(setting, line);
        return log_.add(line);
      });
  if (status) return status;
  return Error{status.error().code,
               setting.policy + ", budget " + setting.budget + ": " + status.error().message};
}

void Check::print() const {
  std::printf("%s\n", needle_table(flags_.budgets, rows_).c_str());
  if (flags_.by_depth)
    std::printf("%s\n", needle_depth_table(flags_.budgets, rows_, flags_.tasks.depths).c_str());
}

void add_flags(CLI::App& app, Flags& flags) {
  app.footer(kExamples);
  app.add_option("-m,--model", flags.model, "GGUF file")->required();
  app.add_option("--haystack", flags.haystack, "Texts to hide numbers in (models/essays/*.txt)");
  app.add_option("--policy", flags.policies, "A policy spec; may be given several times (every method)");
  app.add_option("--budget", flags.budgets, "A budget; may be given several times (512, 1024, 2048)");
  app.add_option("--block", flags.block, "Prompt tokens between two evictions")->capture_default_str();
  app.add_option("--tokens", flags.tasks.tokens, "Tokens of a prompt, template aside")->capture_default_str();
  app.add_option("--depths", flags.tasks.depths, "Places of the number")->capture_default_str();
  app.add_option("--needles", flags.tasks.needles, "Numbers per place")->capture_default_str();
  app.add_option("--seed", flags.tasks.seed, "The same seed hides the same numbers")->capture_default_str();
  app.add_option("-n,--max-tokens", flags.most, "Tokens of an answer, at most")->capture_default_str();
  app.add_option("--chat-template", flags.chat_template, "Built-in template; empty: the model's own")
      ->capture_default_str();
  app.add_option("-t,--threads", flags.threads, "0 = all cores")->capture_default_str();
  app.add_option("--json", flags.json,
                 "Every answer as a line of JSON; answers that are there are not asked again");
  app.add_flag("--by-depth", flags.by_depth, "Print exact answers per depth as well");
}

std::vector<std::string> essays(const std::string& model) {
  const std::filesystem::path folder = std::filesystem::path(model).parent_path() / "essays";
  std::vector<std::string> paths;
  std::error_code missing;
  for (const auto& entry : std::filesystem::directory_iterator(folder, missing)) {
    if (entry.path().extension() == ".txt") paths.push_back(entry.path().string());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

Status run_check(Flags& flags) {
  if (flags.haystack.empty()) flags.haystack = essays(flags.model);
  if (flags.haystack.empty()) {
    return invalid_argument("no haystack; run scripts/get-essays, or give texts with --haystack");
  }
  const auto haystack = read_haystack(flags.haystack);
  if (!haystack) return haystack.error();
  auto log = NeedleLog::open(flags.json);
  if (!log) return log.error();
  auto model = Model::load(flags.model);
  if (!model) return model.error();
  Check check(flags, *model, std::move(*log));
  KEYNEST_TRY(check.run(*haystack));
  check.print();
  return {};
}

}  // namespace
}  // namespace keynest::bench

int main(int argc, char** argv) try {
  CLI::App app(keynest::bench::kAbout);
  keynest::bench::Flags flags;
  keynest::bench::add_flags(app, flags);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  const keynest::Status status = keynest::bench::run_check(flags);
  if (status) return 0;
  std::fprintf(stderr, "keynest_needle: %s\n", status.error().message.c_str());
  return status.error().code == keynest::ErrorCode::kInvalidArgument ? 2 : 1;
} catch (const std::exception& error) {  // of CLI11 or the JSON library; keynest throws none
  std::fprintf(stderr, "keynest_needle: %s\n", error.what());
  return 1;
}
