// keynest bench: speed and memory, measured so that the figures can be compared.
#include <CLI/CLI.hpp>
#include <memory>
#include <utility>

#include "bench/kernels.h"
#include "bench/sessions.h"
#include "cli/bench_commands.h"
#include "cli/bench_flags.h"
#include "cli/interrupt.h"
#include "cli/number_flag.h"
#include "cli/report.h"

namespace keynest::cli {
namespace {

// kernels

struct KernelFlags {
  bench::KernelOptions options;
  MeasureFlags measure;
};

int run_kernels(KernelFlags flags) {
  arm_interrupt();
  if (const Status ok = check(flags.measure); !ok) return report(ok.error());
  flags.options.threads = thread_count(flags.options.threads);
  flags.options.rounds = flags.measure.quick ? 1 : flags.measure.rounds;
  flags.options.quick = flags.measure.quick;
  if (flags.measure.quick) flags.options.seconds = 0.01;
  return run_bench(flags.measure, bench::Json::object(),
                   [&](bench::Recorder& recorder) { return bench::bench_kernels(flags.options, recorder); });
}

void add_kernels(CLI::App& bench, Context& context) {
  auto flags = std::make_shared<KernelFlags>();
  CLI::App* command = bench.add_subcommand("kernels", "Attention, scores, selection and row moves");
  command
      ->add_option("--only", flags->options.only,
                   "These kernels alone: " + CLI::detail::join(bench::kernel_names(), ", "))
      ->type_name("NAME,...")
      ->delimiter(',')
      ->check(CLI::IsMember(bench::kernel_names()).description(""))
      ->group("Measuring");
  command
      ->add_option(
          "--shape", flags->options.shapes,
          "Shapes with this in their text alone, such as \"n = 2048\"; given several times, with all of it")
      ->type_name("TEXT")
      ->allow_extra_args(false)
      ->group("Measuring");
  flags->options.threads = 0;
  command
      ->add_option("-t,--threads", flags->options.threads,
                   "Threads of the shapes that say so; 0 = all cores, 1 = without those")
      ->type_name("N")
      ->capture_default_str()
      ->check(number_from(0, 512, "1 to 512 threads, or 0 for all cores"))
      ->group("Machine");
  declare(*command, flags->measure, 5);
  command->footer(
      R"(Rates beside what as many threads can do at most in the same round: float FMAs, and copying (bytes read and written)
and reading bytes. Attention counts 4 x head size operations for every query and visible key; decode counts the bytes
of keys and values, scores and eviction those of keys. "From memory": 64 MB and more are read in turn, and compared
with copying and reading 64 MiB; "cached": the same is read again and again, and compared with copying and reading in
the last cache. ggml's column is ggml_flash_attn_ext on the same data.

Examples:
  All of it, some five minutes on an idle machine:
    keynest bench kernels --json kernels.json
  After a change of attention:
    keynest bench kernels --only prefill,decode --rounds 9
  One kernel at one length, without several threads:
    keynest bench kernels --only decode --shape "n = 8192" --threads 1)");
  command->callback([flags, &context] { context.work = [flags] { return run_kernels(*flags); }; });
}

// prefill, decode, policies

using SessionWork = Status (*)(const bench::SessionBench&, bench::Recorder&);

struct SessionFlags : ModelBenchFlags {
  std::vector<std::int64_t> blocks;  // empty: the one of --block
  int tokens = 0;                    // measured at every depth
};

/// --quick: a prompt or two that are a little longer than a small budget.
void make_quick(SessionFlags& flags, std::int64_t least) {
  flags.lengths = {least, 256};
  flags.tokens = flags.tokens > 0 ? 8 : 0;
  flags.measure.rounds = 1;
  flags.cache.budget = "128";
  flags.cache.block = 32;
  if (!flags.blocks.empty()) flags.blocks = {32};
}

int run_sessions(SessionFlags flags, SessionWork work, const char* lengths, std::int64_t least) {
  arm_interrupt();
  if (flags.measure.quick) make_quick(flags, least == 0 ? 0 : 192);
  bench::SessionBench bench;
  const auto prepare = [&]() -> Status {
    KEYNEST_TRY(check(flags.measure));
    KEYNEST_TRY(check_lengths(flags.lengths, lengths, least, flags.tokens + 1));
    auto sessions = bench_sessions(
        flags, flags.blocks.empty() ? std::vector<std::int64_t>{flags.cache.block} : flags.blocks);
    if (!sessions) return sessions.error();
    auto text = bench_text(flags);
    if (!text) return text.error();
    auto model = load_model(flags.model);
    if (!model) return model.error();
    bench = {std::move(*model), std::move(*text),     std::move(*sessions),
             flags.lengths,     flags.measure.rounds, flags.tokens};
    return {};
  };
  if (const Status ready = prepare(); !ready) return report(ready.error());
  if (flags.measure.quick) bench.peak_seconds = 0.02;
  return run_bench(flags.measure, head_of(flags),
                   [&](bench::Recorder& recorder) { return work(bench, recorder); });
}

void add_depths(CLI::App& bench, Context& context, const char* name, const char* about, int tokens,
                SessionWork work, const char* footer) {
  auto flags = std::make_shared<SessionFlags>();
  flags->policies = {"full", "keydiff"};
  flags->lengths = {0, 4096, 16384};
  flags->tokens = tokens;
  CLI::App* command = bench.add_subcommand(name, about);
  declare(*command, *flags, "--depths", "Tokens of context before what is measured");
  if (work == bench::bench_decode) declare_decode_block(*command, flags->cache);
  command->add_option("--tokens", flags->tokens, "Tokens measured at every depth")
      ->type_name("N")
      ->capture_default_str()
      ->check(number_from(1, 1 << 16, "1 to 65536 tokens"))
      ->group("Measuring");
  declare(*command, flags->measure, 3);
  command->footer(footer);
  command->callback([flags, work, &context] {
    context.work = [flags, work] { return run_sessions(*flags, work, "--depths", 0); };
  });
}

constexpr const char* kPrefillFooter =
    R"(A session of every policy grows to each depth in turn; there the next tokens of the prompt are timed. Nothing is
warmed up.

Examples:
  The full cache beside a bounded one:
    keynest bench prefill -m qwen2.5-coder-0.5b.gguf --json prefill.json
  Growing depth, three policies:
    keynest bench prefill -m model.gguf --policy keydiff --policy nestedkv --policy sink --depths 0,8192,32768)";

constexpr const char* kDecodeFooter =
    R"(A session of every policy grows to each depth in turn; there tokens are processed one by one, as when generating.
The first one is not timed. Sampling is not part of it. "Eviction" is its share of the time at the last depth.

Examples:
  The full cache beside a bounded one:
    keynest bench decode -m qwen2.5-coder-0.5b.gguf --json decode.json
  With quantised keys and values:
    keynest bench decode -m model.gguf --kv-type q8_0 --depths 4096,32768
  What evicting after every token costs:
    keynest bench decode -m model.gguf --policy keydiff --decode-block 1 --depths 4096)";

void add_policies(CLI::App& bench, Context& context) {
  auto flags = std::make_shared<SessionFlags>();
  flags->policies = {"sink", "keydiff", "nestedkv", "tova", "snapkv", "h2o", "full"};
  flags->lengths = {4096, 8192, 16384, 32768};
  flags->blocks = {64, 128, 256};
  CLI::App* command = bench.add_subcommand("policies", "Time to first token of every policy, beside sink's");
  declare(*command, *flags, "--lengths", "Tokens of the prompts");
  command->remove_option(command->get_option("--block"));
  add_numbers(*command, "--blocks", flags->blocks, "Prompt tokens between two evictions");
  declare(*command, flags->measure, 3);
  command->footer(
      R"(Policies take turns, and the next round begins with another one; ratios are to sink in the same round, which
evicts without looking at anything. Attention-based policies pay for small blocks, key-based ones do not.

Examples:
  The whole figure, hours on two cores:
    keynest bench policies -m qwen2.5-coder-0.5b.gguf --json policies.json
  What KeyDiff costs beside sink:
    keynest bench policies -m model.gguf --policy sink --policy keydiff --blocks 64 --lengths 4096 --rounds 9)");
  command->callback([flags, &context] {
    context.work = [flags] { return run_sessions(*flags, bench::bench_policies, "--lengths", 1); };
  });
}

constexpr const char* kFooter =
    R"(Every figure is measured in several rounds, in which whatever is compared takes turns, and shown as minimum / median /
maximum; ratios are of the same round. What the machine can do at most, float FMAs and copying memory, is measured
along. Tables are Markdown on standard output, progress goes to standard error, --json FILE keeps every single run.
Let nothing else run meanwhile.

Examples:
  Does it all work? (--quick measures nothing)
    keynest bench kernels --quick
  How fast are prompts and answers with a full cache and with a bounded one?
    keynest bench prefill -m model.gguf
    keynest bench decode -m model.gguf
  And beside other engines?
    keynest bench compare -m model.gguf --json compare.json

`keynest bench COMMAND --help` tells about each.)";

}  // namespace

void add_bench(CLI::App& app, Context& context) {
  CLI::App* bench = app.add_subcommand("bench", "Measure speed and memory, beside other engines too");
  bench->require_subcommand(1);
  add_kernels(*bench, context);
  add_depths(*bench, context, "prefill", "Prompt tokens per second at growing depth", 512,
             bench::bench_prefill, kPrefillFooter);
  add_depths(*bench, context, "decode", "Generated tokens per second at growing depth", 32,
             bench::bench_decode, kDecodeFooter);
  add_policies(*bench, context);
  add_bench_memory(*bench, context);
  add_bench_compare(*bench, context);
  add_bench_show(*bench, context);
  for (CLI::App* command : bench->get_subcommands({})) command->group("Commands");
  bench->footer(kFooter);  // last, as commands would inherit it
}

}  // namespace keynest::cli
