#include "bench/kernels.h"

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "bench/kernel_cases.h"
#include "bench/rounds.h"

namespace keynest::bench {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_of(const Work& work, std::int64_t runs) {
  const auto started = Clock::now();
  for (std::int64_t i = 0; i < runs; ++i) work();
  return std::chrono::duration<double>(Clock::now() - started).count();
}

/// One side of a case with its data, and how often it is run to take the time asked for.
struct Side {
  std::string name;
  Work work;
  std::int64_t runs = 1;

  void settle(double seconds) {
    seconds_of(work, 1);  // touches its memory
    for (double spent = seconds_of(work, runs); spent < seconds / 2 && runs < (1 << 24);) {
      runs *= spent > 0 ? std::clamp<std::int64_t>(static_cast<std::int64_t>(seconds / spent), 2, 16) : 16;
      spent = seconds_of(work, runs);
    }
  }
};

std::vector<Side> sides_of(const KernelCase& each, double seconds) {
  std::vector<Side> sides;
  const auto add = [&](const char* name, const std::function<Work()>& prepare) {
    Work work = prepare ? prepare() : Work();
    if (!work) return;
    sides.push_back({name, std::move(work)});
    sides.back().settle(seconds);
  };
  add("keynest", each.prepare);
  add("ggml", each.ggml);
  return sides;
}

Status measure(const KernelCase& each, const KernelOptions& options, Recorder& recorder) {
  KEYNEST_TRY(recorder.check());
  recorder.tell(each.kernel + ": " + each.shape);
  auto sides = sides_of(each, options.seconds);
  for (int round = 0; round < options.rounds; ++round) {
    // Every other round the other way round, so that neither always comes after the other.
    std::reverse(sides.begin(), sides.end());
    for (const Side& side : sides) {
      const double seconds = seconds_of(side.work, side.runs) / static_cast<double>(side.runs);
      KEYNEST_TRY(recorder.add({{"part", "kernels"},
                                {"kernel", each.kernel},
                                {"shape", each.shape},
                                {"name", side.name},
                                {"round", round},
                                {"seconds", seconds},
                                {"flops", each.flops / seconds},
                                {"bytes", each.bytes / seconds}}));
    }
  }
  return {};
}

std::vector<KernelCase> all_cases() {
  std::vector<KernelCase> cases;
  add_attention_cases(cases);
  add_cache_cases(cases);
  return cases;
}

std::vector<KernelCase> chosen_cases(const KernelOptions& options) {
  std::vector<KernelCase> chosen;
  for (KernelCase& each : all_cases()) {
    const auto& only = options.only;
    const bool wanted = only.empty() || std::find(only.begin(), only.end(), each.kernel) != only.end();
    const bool first = chosen.empty() || chosen.back().kernel != each.kernel;
    if (wanted && (first || !options.quick)) chosen.push_back(std::move(each));
  }
  return chosen;
}

}  // namespace

std::vector<std::string> kernel_names() {
  std::vector<std::string> names;
  for (const KernelCase& each : all_cases()) {
    if (names.empty() || names.back() != each.kernel) names.push_back(each.kernel);
  }
  return names;
}

Status bench_kernels(const KernelOptions& options, Recorder& recorder) {
  std::string last;
  for (const KernelCase& each : chosen_cases(options)) {
    if (each.kernel != last) KEYNEST_TRY(recorder.add(peak_run(1, std::nullopt, options.seconds)));
    last = each.kernel;
    KEYNEST_TRY(measure(each, options, recorder));
  }
  return recorder.add(peak_run(1, std::nullopt, options.seconds));
}

}  // namespace keynest::bench
