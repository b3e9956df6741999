// keynest bench memory, compare: keynest and other engines, every run in a process of its own.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

#include "bench/compare.h"
#include "cli/bench_commands.h"
#include "cli/bench_flags.h"
#include "cli/interrupt.h"
#include "cli/number_flag.h"
#include "cli/report.h"

namespace keynest::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPeers[] = {"llama.cpp", "kvpress", "openvino", "openvino-evict"};
constexpr const char* kReference = "llama.cpp";

struct CompareFlags : ModelBenchFlags {
  std::vector<std::string> peers;
  std::string peer_folder;
  int answer = 64;
  double limit = 3600;
};

/// This program's own file; /proc's link keeps to it even when it is built anew meanwhile.
std::string own_program() { return "/proc/self/exe"; }

/// scripts/peers of the repository: where this program was built, or here.
std::string find_peers() {
  std::error_code ignored;
  const fs::path program = fs::read_symlink(own_program(), ignored);
  for (fs::path folder :
       {program.parent_path(), program.parent_path().parent_path(), fs::current_path(ignored)}) {
    if (fs::is_directory(folder / "scripts" / "peers", ignored))
      return (folder / "scripts" / "peers").string();
  }
  return "scripts/peers";
}

/// The flags of the cache as `keynest run` takes them.
std::vector<std::string> cache_flags(const CompareFlags& flags, const SessionOptions& session) {
  std::vector<std::string> words{
      "--budget",  session.budget.print(), "--block", std::to_string(session.block),
      "--kv-type", flags.cache.kv_type,    "--gemm",  flags.model.gemm};
  if (!flags.cache.cache_limit.empty()) words.insert(words.end(), {"--cache-limit", flags.cache.cache_limit});
  return words;
}

/// Entries that a peer with eviction keeps, 0 for a full cache. Shares and bytes mean nothing to peers.
Result<std::int64_t> entries(const Budget& budget, bool peers) {
  if (budget.unit == Budget::Unit::kEntries) return static_cast<std::int64_t>(budget.value);
  if (budget.unit == Budget::Unit::kUnbounded || !peers) return 0;
  return invalid_argument(
      "--budget " + budget.print() +
      " is not a number of entries, the only budget all engines understand; give one such "
      "as 2048, or leave the others out with --peers none");
}

Result<bench::CompareOptions> prepare(CompareFlags& flags) {
  KEYNEST_TRY(check(flags.measure));
  KEYNEST_TRY(check_lengths(flags.lengths, "--lengths", 2, 1));
  const auto sessions = bench_sessions(flags, {flags.cache.block});
  if (!sessions) return sessions.error();
  auto text = bench_text(flags);
  if (!text) return text.error();
  bench::CompareOptions options;
  options.load_model = [model = flags.model] { return load_model(model); };
  options.model_path = flags.model.path;
  options.text = std::move(*text);
  options.lengths = flags.lengths;
  options.rounds = flags.measure.rounds;
  options.answer = flags.answer;
  options.threads = thread_count(flags.cache.threads);
  options.limit_seconds = flags.limit;
  if (flags.measure.quick) options.peak_seconds = 0.02;
  for (const std::string& peer : flags.peers) {
    if (peer != "none") options.peers.push_back(peer);
  }
  for (const SessionOptions& session : *sessions) {
    options.keynest.push_back({own_program(), session.policy.print(), cache_flags(flags, session)});
    const auto kept = entries(session.budget, !options.peers.empty());
    if (!kept) return kept.error();
    options.budget = std::max(options.budget, *kept);
  }
  options.peer_folder = flags.peer_folder.empty() ? find_peers() : flags.peer_folder;
  return options;
}

using CompareWork = Status (*)(const bench::CompareOptions&, bench::Recorder&);

int run_processes(CompareFlags flags, CompareWork work) {
  arm_interrupt();
  if (flags.measure.quick) {
    flags.lengths = {192, 256};
    flags.measure.rounds = 1;
    flags.cache.budget = "128";
    flags.cache.block = 32;
    flags.answer = std::min(flags.answer, 4);
  }
  const auto options = prepare(flags);
  if (!options) return report(options.error());
  bench::Json head = head_of(flags);
  head["reference"] = kReference;
  return run_bench(flags.measure, head, [&](bench::Recorder& recorder) { return work(*options, recorder); });
}

void declare_common(CLI::App& command, CompareFlags& flags, int rounds) {
  declare(command, flags, "--lengths", "Tokens of the prompts");
  command.add_option("--limit", flags.limit, "Seconds a run may take before it is killed")
      ->type_name("SECONDS")
      ->capture_default_str()
      ->check(number_from(0.1, 1e6, "0.1 to 1000000 seconds"))
      ->group("Measuring");
  declare(command, flags.measure, rounds);
}

void declare_peers(CLI::App& command, CompareFlags& flags) {
  constexpr const char* kGroup = "Peers";
  flags.peers.assign(std::begin(kPeers), std::end(kPeers));
  command
      .add_option("--peers", flags.peers,
                  "Programs of the folder of peers to compare with; none for keynest's policies alone")
      ->type_name("NAME,...")
      ->delimiter(',')
      ->default_str(CLI::detail::join(flags.peers, ","))
      ->group(kGroup);
  command
      .add_option("--peer-folder", flags.peer_folder,
                  "Where they are (default: scripts/peers of the repository)")
      ->type_name("FOLDER")
      ->check(CLI::ExistingDirectory.description(""))
      ->group(kGroup);
  add_answer(command, flags.answer);
}

}  // namespace

void add_bench_memory(CLI::App& bench, Context& context) {
  auto flags = std::make_shared<CompareFlags>();
  flags->policies = {"keydiff"};
  flags->lengths = {16, 4096, 65536};
  flags->cache.budget = "1024";
  flags->answer = 1;
  CLI::App* command =
      bench.add_subcommand("memory", "Peaks of cache and resident memory of short and long prompts");
  declare_common(*command, *flags, 3);
  command->get_option("--budget")->default_str(flags->cache.budget);
  command->footer(
      R"(Every run is a process of its own, `keynest run --stats`, that answers one token; its whole time is shown as well.
With a budget the peaks of 4k and 64k tokens are the same.

Examples:
  The standard lengths:
    keynest bench memory -m qwen2.5-coder-0.5b.gguf
  Beside the full cache:
    keynest bench memory -m model.gguf --policy keydiff --policy full --lengths 4096,16384 --budget 2048)");
  command->callback(
      [flags, &context] { context.work = [flags] { return run_processes(*flags, bench::bench_memory); }; });
}

void add_bench_compare(CLI::App& bench, Context& context) {
  auto flags = std::make_shared<CompareFlags>();
  flags->policies = {"keydiff", "nestedkv"};
  flags->lengths = {4096, 8192, 16384, 32768};
  CLI::App* command =
      bench.add_subcommand("compare", "keynest beside llama.cpp, kvpress and OpenVINO on the same weights");
  declare_common(*command, *flags, 3);
  declare_peers(*command, *flags);
  command->footer(
      R"(Engines take turns on the same weights, prompt and threads, each run in a process of its own: time to first token,
decode speed, peak resident memory, bytes of the cache. scripts/get-peers installs the peers; one that is not
installed has one row that says so, one that fails at a length is not tried at longer ones.

Examples:
  Everything that is installed; many hours on two cores, most of them llama.cpp at 32k tokens:
    keynest bench compare -m qwen2.5-coder-0.5b.gguf --json compare.json
  keynest and llama.cpp at one length:
    keynest bench compare -m model.gguf --peers llama.cpp --policy keydiff --lengths 16384 --rounds 1
  A picture of what was measured:
    keynest bench show compare.json --plot compare.svg)");
  command->callback(
      [flags, &context] { context.work = [flags] { return run_processes(*flags, bench::bench_compare); }; });
}

}  // namespace keynest::cli
