#include "bench/compare.h"

#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <system_error>

#include "bench/rounds.h"
#include "bench/text.h"

namespace keynest::bench {
namespace {

namespace fs = std::filesystem;

/// A folder for prompts and statistics, gone afterwards.
class Scratch {
 public:
  Scratch() {
    std::error_code error;
    path_ = (fs::temp_directory_path(error) / "keynest-bench-XXXXXX").string();
    if (error || ::mkdtemp(path_.data()) == nullptr) path_.clear();
  }
  ~Scratch() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  bool ok() const { return !path_.empty(); }
  std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

Error no_scratch() {
  return {ErrorCode::kIo,
          "no temporary folder could be made for the prompts; set TMPDIR to one that can be written"};
}

/// One engine of the comparison.
struct Contender {
  std::string name;
  std::function<Result<Measured>(const Task& task)> run;
  bool installed = true;
  std::int64_t fails_from = std::numeric_limits<std::int64_t>::max();  ///< tokens
};

class Comparison {
 public:
  Comparison(const CompareOptions& options, Recorder& recorder) : options_(options), recorder_(recorder) {}

  Status run(const char* part, std::vector<Contender> contenders);

 private:
  Status write_prompts();
  Status run_one(const char* part, Contender& contender, const Task& task, int round);

  const CompareOptions& options_;
  Recorder& recorder_;
  Scratch scratch_;
  std::vector<Task> tasks_;  // one a length
};

/// The prompts of all lengths; the model is kept no longer than that, as memory is what is compared. Read
/// again, a text may have a token less than was asked for, and without a first special token it has one less
/// too.
Status Comparison::write_prompts() {
  const auto model = options_.load_model();
  if (!model) return model.error();
  for (const std::int64_t tokens : options_.lengths) {
    const std::string file = scratch_.file("prompt-" + std::to_string(tokens) + ".txt");
    const std::string text = text_of(**model, options_.text, static_cast<std::size_t>(tokens));
    const auto plain = static_cast<std::int64_t>((*model)->tokenize(text, false, false).size());
    std::ofstream out(file, std::ios::binary);
    out << text;
    out.close();
    if (!out) return Error{ErrorCode::kIo, file + ": writing failed; is the disk full?"};
    tasks_.push_back({options_.model_path, file, tokens, std::min(tokens, plain), options_.answer,
                      options_.threads, options_.limit_seconds});
  }
  return {};
}

Status Comparison::run_one(const char* part, Contender& contender, const Task& task, int round) {
  if (!contender.installed || task.tokens >= contender.fails_from) return {};
  const std::string label = contender.name + ", " + std::to_string(task.tokens) + " tokens";
  recorder_.tell(std::string(part) + " round " + std::to_string(round + 1) + ": " + label);
  const auto measured = contender.run(task);
  if (!measured) return measured.error();
  Json run = {{"part", part}, {"name", contender.name}, {"length", task.tokens}, {"round", round}};
  if (!measured->missing.empty()) {
    contender.installed = false;
    recorder_.tell(contender.name + " is left out: " + measured->missing);
    run["missing"] = measured->missing;
  } else if (!measured->problem.empty()) {
    contender.fails_from = task.tokens;
    recorder_.tell(label + ": " + measured->problem);
    run["problem"] = measured->problem;
  } else {
    run.update(measured->figures);
  }
  return recorder_.add(std::move(run));
}

Status Comparison::run(const char* part, std::vector<Contender> contenders) {
  if (!scratch_.ok()) return no_scratch();
  KEYNEST_TRY(write_prompts());
  for (int round = 0; round < options_.rounds; ++round) {
    for (const Task& task : tasks_) {
      KEYNEST_TRY(recorder_.add(peak_run(options_.threads, round, options_.peak_seconds)));
      for (const std::size_t i : order_of(contenders.size(), round)) {
        KEYNEST_TRY(run_one(part, contenders[i], task, round));
      }
    }
  }
  return {};
}

std::vector<Contender> keynest_contenders(const CompareOptions& options, const Stopped& stopped) {
  std::vector<Contender> contenders;
  for (const KeynestEngine& engine : options.keynest) {
    contenders.push_back({"keynest " + engine.policy, [engine, stopped](const Task& task) {
                            return run_keynest(engine, task, stopped);
                          }});
  }
  return contenders;
}

}  // namespace

Status bench_compare(const CompareOptions& options, Recorder& recorder) {
  const Stopped stopped = recorder.host().stopped;
  auto contenders = keynest_contenders(options, stopped);
  for (const std::string& peer : options.peers) {
    const std::string script = options.peer_folder + "/" + peer;
    contenders.push_back({peer, [script, stopped, budget = options.budget](const Task& task) {
                            return run_peer(script, budget, task, stopped);
                          }});
  }
  return Comparison(options, recorder).run("compare", std::move(contenders));
}

Status bench_memory(const CompareOptions& options, Recorder& recorder) {
  return Comparison(options, recorder).run("memory", keynest_contenders(options, recorder.host().stopped));
}

}  // namespace keynest::bench
