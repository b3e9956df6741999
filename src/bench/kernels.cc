#include "bench/kernels.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>

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

/// Threads, and what they can do at most.
struct Machine {
  Team team;
  Traffic memory, cache;

  explicit Machine(int threads) : team(threads), memory(team, Source::kMemory), cache(team, Source::kCache) {}
  Traffic& traffic(Source source) { return source == Source::kMemory ? memory : cache; }
};

/// Those of one thread and those of several, made when they are wanted.
using Machines = std::map<int, Machine>;

/// One side of a case with its data, and how often it is run to take the time asked for.
struct Side {
  std::string name;
  Work work;
  double flops = 0, bytes = 0;  // of one run
  std::int64_t runs = 1;

  void settle(double seconds) {
    seconds_of(work, 1);  // touches its memory
    for (double spent = seconds_of(work, runs); spent < seconds / 2 && runs < (1 << 24);) {
      runs *= spent > 0 ? std::clamp<std::int64_t>(static_cast<std::int64_t>(seconds / spent), 2, 16) : 16;
      spent = seconds_of(work, runs);
    }
  }
};

/// What the machine does in the same round, for the shares.
void add_limits(const KernelCase& each, Machine& machine, std::vector<Side>& sides) {
  Team& team = machine.team;
  Traffic& traffic = machine.traffic(each.source);
  if (each.flops > 0) {
    constexpr std::int64_t kRounds = 1 << 14;
    sides.push_back(
        {"fma", [&team] { team.run([](int) { run_fma(kRounds); }); }, run_fma(kRounds) * team.threads()});
  }
  if (each.bytes > 0) sides.push_back({"copy", [&traffic] { traffic.copy(); }, 0, traffic.copied_bytes()});
  if (each.reads) sides.push_back({"read", [&traffic] { traffic.read(); }, 0, traffic.read_bytes()});
}

std::vector<Side> sides_of(const KernelCase& each, Machine& machine, double seconds) {
  std::vector<Side> sides{{"keynest", each.prepare(machine.team), each.flops, each.bytes}};
  if (each.ggml) sides.push_back({"ggml", each.ggml(), each.flops, each.bytes});
  add_limits(each, machine, sides);
  for (Side& side : sides) side.settle(seconds);
  return sides;
}

Status measure(const KernelCase& each, const KernelOptions& options, Machine& machine, Recorder& recorder) {
  KEYNEST_TRY(recorder.check());
  recorder.tell(each.kernel + ": " + each.shape);
  const auto sides = sides_of(each, machine, options.seconds);
  for (int round = 0; round < options.rounds; ++round) {
    for (const std::size_t i : order_of(sides.size(), round)) {
      const Side& side = sides[i];
      const double seconds = seconds_of(side.work, side.runs) / static_cast<double>(side.runs);
      KEYNEST_TRY(recorder.add({{"part", "kernels"},
                                {"kernel", each.kernel},
                                {"shape", each.shape},
                                {"threads", each.threads},
                                {"name", side.name},
                                {"round", round},
                                {"seconds", seconds},
                                {"flops", side.flops / seconds},
                                {"bytes", side.bytes / seconds}}));
    }
  }
  return {};
}

std::vector<KernelCase> all_cases(int threads) {
  std::vector<KernelCase> cases;
  add_attention_cases(cases);
  add_decode_cases(cases, threads);
  add_cache_cases(cases, threads);
  return cases;
}

bool wanted(const KernelCase& each, const KernelOptions& options) {
  const auto& only = options.only;
  const auto in_shape = [&](const std::string& part) { return each.shape.find(part) != std::string::npos; };
  return (only.empty() || std::find(only.begin(), only.end(), each.kernel) != only.end()) &&
         std::all_of(options.shapes.begin(), options.shapes.end(), in_shape);
}

std::vector<KernelCase> chosen_cases(const KernelOptions& options) {
  std::vector<KernelCase> chosen;
  for (KernelCase& each : all_cases(options.threads)) {
    const bool first = chosen.empty() || chosen.back().kernel != each.kernel;
    if (wanted(each, options) && (first || !options.quick)) chosen.push_back(std::move(each));
  }
  return chosen;
}

}  // namespace

const char* type_text(KvType type) { return name_of(type).data(); }

std::string source_text(Source source, int threads) {
  return std::string(source == Source::kMemory ? ", from memory" : ", cached") +
         (threads > 1 ? ", " + std::to_string(threads) + " threads" : "");
}

std::vector<std::string> kernel_names() {
  std::vector<std::string> names;
  for (const KernelCase& each : all_cases(1)) {
    if (names.empty() || names.back() != each.kernel) names.push_back(each.kernel);
  }
  return names;
}

Status bench_kernels(const KernelOptions& options, Recorder& recorder) {
  const auto cases = chosen_cases(options);
  if (cases.empty()) return invalid_argument("no kernel has such a shape; leave --shape out to see them all");
  Machines machines;
  for (const KernelCase& each : cases) {
    const auto [machine, added] = machines.try_emplace(each.threads, each.threads);
    if (added) KEYNEST_TRY(recorder.add(peak_run(each.threads, std::nullopt, options.seconds)));
    KEYNEST_TRY(measure(each, options, machine->second, recorder));
  }
  return {};
}

}  // namespace keynest::bench
