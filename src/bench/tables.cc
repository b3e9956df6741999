#include "bench/tables.h"

#include <algorithm>
#include <cstdio>

#include "bench/compare_tables.h"
#include "bench/markdown.h"
#include "bench/runs.h"

namespace keynest::bench {
namespace {

constexpr double kGiga = 1e9, kMebi = 1024.0 * 1024.0;

std::string whole(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.0f", value);
  return text;
}

std::string code(const std::string& text) { return "`" + text + "`"; }

std::string machine_text(const Json& results) {
  const auto found = results.find("machine");
  const Json machine = found != results.end() && found->is_object() ? *found : Json::object();
  std::string text = text_of(results, "model");
  const double threads = number_of(results, "threads");
  if (!text.empty()) text += ", " + whole(threads) + (threads == 1 ? " thread of " : " threads of ");
  text += text_of(machine, "cpu") + " (" + whole(number_of(machine, "cores")) + " cores, " +
          whole(number_of(machine, "memory_bytes") / kMebi / 1024) + " GiB), " + text_of(machine, "date") +
          ".\n" + text_of(machine, "keynest") + ".\n";
  const double load = number_of(machine, "load");
  if (load > 0.5)
    text += "The machine was busy (load " + whole(load) + " at the start): believe ratios at most.\n";
  return text;
}

std::string peaks_text(const Runs& peaks) {
  std::string text;
  for (const double threads : peaks.numbers("threads")) {
    const Runs some = peaks.where("threads", threads);
    text += "Peak of " + whole(threads) + (threads == 1 ? " thread: " : " threads: ") +
            spread(times(some.values("flops"), 1 / kGiga)) + " GFLOPS of float FMA, " +
            spread(times(some.values("copy_bytes"), 1 / kGiga)) + " GB/s copying memory (read + written)";
    for (const auto& [field, what] :
         {std::pair{"read_bytes", "reading it"}, std::pair{"cached_copy_bytes", "copying in the last cache"},
          std::pair{"cached_read_bytes", "reading there"}}) {
      const auto rates = some.values(field);
      if (!rates.empty()) text += ", " + spread(times(rates, 1 / kGiga)) + " " + what;
    }
    text += ".\n";
  }
  return text + (text.empty()
                     ? ""
                     : "Several rounds: minimum / **median** / maximum; ratios are of the same round.\n");
}

/// Percent of what the machine did in the same round.
std::string share(const Runs& ours, const Runs& limit, const char* field) {
  return spread(times(round_ratios(ours, limit, field), 100));
}

std::string rate(const std::vector<double>& rates) {
  return median(rates) > 0 ? spread(times(rates, 1 / kGiga)) : std::string();
}

std::string kernel_table(const std::string& kernel, const Runs& runs) {
  Table table{"Kernel `" + kernel + "`, one thread where nothing else is said:",
              {"shape", "µs", "GFLOPS", "% of FMA peak", "GB/s", "% of copying", "% of reading", "ggml, µs",
               "times faster"},
              {}};
  for (const std::string& shape : runs.texts("shape")) {
    const Runs some = runs.where("shape", shape);
    const auto by = [&](const char* name) { return some.where("name", name); };
    const Runs ours = by("keynest"), theirs = by("ggml");
    table.rows.push_back({shape, spread(times(ours.values("seconds"), 1e6)), rate(ours.values("flops")),
                          share(ours, by("fma"), "flops"), rate(ours.values("bytes")),
                          share(ours, by("copy"), "bytes"), share(ours, by("read"), "bytes"),
                          spread(times(theirs.values("seconds"), 1e6)),
                          spread(round_ratios(theirs, ours, "seconds"))});
  }
  return table.print();
}

std::string kernel_tables(const Runs& runs) {
  std::string text;
  for (const std::string& kernel : runs.texts("kernel")) {
    const std::string table = kernel_table(kernel, runs.where("kernel", kernel));
    text += (text.empty() ? "" : "\n") + table;
  }
  return text;
}

std::string budget_text(const Runs& runs) {
  double most = 0;
  for (const double budget : runs.numbers("budget")) most = std::max(most, budget);
  return most > 0 ? ", N = " + whole(most) : std::string();
}

std::string evict_share(const Runs& runs, const char* seconds) {
  return spread(times(ratios(runs.values("evict_seconds"), runs.values(seconds)), 100));
}

std::string depth_table(const char* what, const Runs& runs) {
  if (runs.empty()) return {};
  const auto depths = runs.numbers("length");
  Table table{std::string(what) + ", tokens/s of " + whole(number_of(runs.first(), "tokens")) +
                  " tokens after so many" + budget_text(runs) +
                  ", B = " + whole(number_of(runs.first(), "block")) + ":",
              {"policy"},
              {}};
  for (const double depth : depths) table.header.push_back("after " + whole(depth));
  if (depths.size() > 1) table.header.push_back("last ÷ first");
  table.header.push_back("eviction, %");
  for (const std::string& policy : runs.texts("name")) {
    const Runs some = runs.where("name", policy);
    std::vector<std::string> row{code(policy)};
    for (const double depth : depths)
      row.push_back(spread(some.where("length", depth).values("tokens_per_second")));
    if (depths.size() > 1) {
      row.push_back(spread(round_ratios(some.where("length", depths.back()),
                                        some.where("length", depths.front()), "tokens_per_second")));
    }
    row.push_back(evict_share(some.where("length", depths.back()), "seconds"));
    table.rows.push_back(row);
  }
  return table.print();
}

std::string policy_table(const Runs& runs) {
  const auto lengths = runs.numbers("length");
  if (lengths.empty()) return {};
  Table table{"Seconds to the first token, and what that is of `sink`" + budget_text(runs) +
                  ", B = " + whole(number_of(runs.first(), "block")) + ":",
              {"policy"},
              {}};
  for (const double length : lengths) {
    table.header.insert(table.header.end(), {whole(length) + " tokens", "÷ `sink`"});
  }
  table.header.push_back("eviction, %");
  for (const std::string& policy : runs.texts("name")) {
    const Runs some = runs.where("name", policy);
    std::vector<std::string> row{code(policy)};
    for (const double length : lengths) {
      const Runs here = some.where("length", length);
      const Runs sink = runs.where("length", length).where("name", "sink");
      row.push_back(spread(here.values("ttft_seconds")));
      row.push_back(policy == "sink" ? "1" : spread(round_ratios(here, sink, "ttft_seconds")));
    }
    const Runs longest = some.where("length", lengths.back());
    row.push_back(evict_share(longest, "ttft_seconds"));
    table.rows.push_back(row);
  }
  return table.print();
}

std::string policy_tables(const Runs& runs) {
  std::string text;
  for (const double block : runs.numbers("block")) {
    if (!text.empty()) text += '\n';
    text += policy_table(runs.where("block", block));
  }
  return text;
}

}  // namespace

std::string print_tables(const Json& results) {
  const Runs runs(results), peaks = runs.where("part", "peak");
  std::string text = machine_text(results) + peaks_text(peaks);
  const std::string reference = text_of(results, "reference");
  const auto part = [&](const char* name) { return runs.where("part", name); };
  for (const std::string& table :
       {kernel_tables(part("kernels")), depth_table("Prompt", part("prefill")),
        depth_table("Answer", part("decode")), policy_tables(part("policies")), memory_table(part("memory")),
        compare_table(part("compare"), reference.empty() ? "llama.cpp" : reference)}) {
    if (!table.empty()) text += "\n" + table;
  }
  return text;
}

}  // namespace keynest::bench
