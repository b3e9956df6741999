#include "bench/compare_tables.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "bench/markdown.h"

namespace keynest::bench {
namespace {

constexpr double kMebi = 1024.0 * 1024.0;

std::string mebibytes(const Runs& runs, const char* field) {
  return spread(times(runs.values(field), 1 / kMebi));
}

std::string tokens_text(const Runs& runs, double asked) {
  const auto read = runs.numbers("prompt_tokens");
  return std::to_string(std::llround(read.empty() ? asked : read.back()));
}

/// First line of a peer's version and note, for below the table.
std::string engine_note(const Runs& runs) {
  const std::string version = text_of(runs.first(), "version"), note = text_of(runs.first(), "note");
  if (version.empty() && note.empty()) return {};
  return "- " + text_of(runs.first(), "name") + ": " + version +
         (version.empty() || note.empty() ? "" : "; ") + note + "\n";
}

std::vector<std::string> engine_row(const Runs& ours, const Runs& reference, double length,
                                    bool is_reference) {
  const std::string tokens = tokens_text(ours, length), name = text_of(ours.first(), "name");
  const auto ratio = [&](const Runs& above, const Runs& below, const char* field) {
    return is_reference ? std::string("1") : spread(round_ratios(above, below, field));
  };
  return {tokens,
          name,
          spread(ours.values("ttft_seconds")),
          ratio(reference, ours, "ttft_seconds"),
          spread(ours.values("decode_tokens_per_second")),
          ratio(ours, reference, "decode_tokens_per_second"),
          mebibytes(ours, "peak_resident_bytes"),
          mebibytes(ours, "cache_bytes")};
}

/// Why there are no figures, or none of later rounds.
std::vector<std::vector<std::string>> failure_rows(const Runs& ours, double length) {
  std::vector<std::vector<std::string>> rows;
  const std::string tokens = tokens_text(ours, length), name = text_of(ours.first(), "name");
  for (const std::string& why : ours.texts("missing")) {
    if (!why.empty()) rows.push_back({tokens, name, "not installed: " + why});
  }
  for (const std::string& problem : ours.texts("problem")) {
    if (problem.empty()) continue;
    const double round = number_of(ours.where("problem", problem).first(), "round");
    const std::string when = round > 0 ? "round " + std::to_string(std::llround(round) + 1) + ": " : "";
    rows.push_back({tokens, name, when + problem});
  }
  return rows;
}

std::string change_text(const std::vector<double>& first, const std::vector<double>& last) {
  char text[32];
  std::snprintf(text, sizeof text, "%+.2f %%", 100 * (median(last) / std::max(median(first), 1.0) - 1));
  return text;
}

}  // namespace

std::string compare_table(const Runs& runs, const std::string& reference) {
  Table table{
      "Engines on the same weights, prompt and threads; ratios are to " + reference + " in the same round:",
      {"prompt tokens", "engine", "time to first token, s", "times lower", "answer, tokens/s", "times faster",
       "peak resident, MiB", "cache, MiB"},
      {}};
  for (const double length : runs.numbers("length")) {
    const Runs here = runs.where("length", length);
    for (const std::string& name : here.texts("name")) {
      const Runs ours = here.where("name", name);
      if (!ours.values("ttft_seconds").empty())
        table.rows.push_back(engine_row(ours, here.where("name", reference), length, name == reference));
      for (auto& row : failure_rows(ours, length)) {
        row.resize(table.header.size());
        table.rows.push_back(std::move(row));
      }
    }
  }
  std::string notes;
  for (const std::string& name : runs.texts("name")) notes += engine_note(runs.where("name", name));
  const std::string text = table.print();
  return text + (text.empty() || notes.empty() ? "" : "\n") + notes;
}

std::string memory_table(const Runs& runs) {
  Table table{"Memory, and the whole process from its start to its end:",
              {"engine", "prompt tokens", "cache peak, MiB", "resident peak, MiB",
               "a full cache would take, MiB", "time to first token, s", "process, s"},
              {}};
  for (const std::string& name : runs.texts("name")) {
    const Runs some = runs.where("name", name);
    const auto lengths = some.numbers("length");
    for (const double length : lengths) {
      const Runs here = some.where("length", length);
      table.rows.push_back({name, tokens_text(here, length), mebibytes(here, "cache_bytes"),
                            mebibytes(here, "peak_resident_bytes"), mebibytes(here, "full_cache_bytes"),
                            spread(here.values("ttft_seconds")), spread(here.values("process_seconds"))});
    }
    if (lengths.size() < 2) continue;
    const Runs first = some.where("length", lengths.front()), last = some.where("length", lengths.back());
    const auto change = [&](const char* field) {
      return change_text(first.values(field), last.values(field));
    };
    table.rows.push_back({name, "change", change("cache_bytes"), change("peak_resident_bytes"), "", "", ""});
  }
  return table.print();
}

}  // namespace keynest::bench
