// keynest score: a policy on given tensors of one layer, no model needed.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/atomic_file.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/npy.h"
#include "cli/report.h"
#include "engine/replay.h"

namespace keynest::cli {
namespace {

struct ScoreFlags {
  std::string policy = "keydiff";
  std::string keys, queries, values;
  std::int64_t budget = 0, block = 0;
  bool has_budget = false, has_block = false;
  std::vector<std::int64_t> lengths;
  std::string scores, kept;
  bool quiet = false;
};

constexpr std::int64_t kMostTokens = std::numeric_limits<std::int32_t>::max();

struct Tensors {
  FloatArray keys, queries, values;
  LayerTensors view;
};

Error bad_shape(const std::string& path, const FloatArray& array, const std::string& wanted) {
  return {ErrorCode::kInvalidFile, path + ": has shape " + shape_text(array.shape) + "; expected " + wanted};
}

/// One [heads, positions, head size] tensor; with `like`, of its positions and head size.
Result<FloatArray> read_tensor(const std::string& path, const FloatArray* like, bool same_heads) {
  auto array = read_npy_file(path);
  if (!array) return array;
  const auto& shape = array->shape;
  const bool fits = shape.size() == 3 &&
                    std::all_of(shape.begin(), shape.end(), [](auto n) { return n > 0 && n <= kMostTokens; });
  if (!fits) return bad_shape(path, *array, "[heads, positions, head size], each 1 or more");
  if (like == nullptr) return array;
  const bool same =
      shape[1] == like->shape[1] && shape[2] == like->shape[2] && (!same_heads || shape[0] == like->shape[0]);
  if (same) return array;
  const std::string heads = same_heads ? std::to_string(like->shape[0]) : "query heads";
  return bad_shape(path, *array,
                   "[" + heads + ", " + std::to_string(like->shape[1]) + ", " +
                       std::to_string(like->shape[2]) + "] to go with the keys");
}

Result<std::unique_ptr<Tensors>> read_tensors(const ScoreFlags& flags) {
  auto tensors = std::make_unique<Tensors>();
  auto keys = read_tensor(flags.keys, nullptr, false);
  if (!keys) return keys.error();
  tensors->keys = std::move(*keys);
  const auto& shape = tensors->keys.shape;
  tensors->view = {tensors->keys.data,
                   {},
                   {},
                   static_cast<std::int32_t>(shape[0]),
                   0,
                   static_cast<std::int32_t>(shape[1]),
                   static_cast<std::int32_t>(shape[2])};
  if (!flags.queries.empty()) {
    auto queries = read_tensor(flags.queries, &tensors->keys, false);
    if (!queries) return queries.error();
    tensors->queries = std::move(*queries);
    tensors->view.queries = tensors->queries.data;
    tensors->view.query_heads = static_cast<std::int32_t>(tensors->queries.shape[0]);
  }
  if (!flags.values.empty()) {
    auto values = read_tensor(flags.values, &tensors->keys, true);
    if (!values) return values.error();
    tensors->values = std::move(*values);
    tensors->view.values = tensors->values.data;
  }
  return tensors;
}

/// Tokens of every step; empty: one shot.
Result<std::vector<std::int32_t>> step_lengths(const ScoreFlags& flags, std::int64_t tokens) {
  std::vector<std::int32_t> lengths;
  if (flags.has_block) {
    if (flags.block < 1)
      return invalid_argument("--block " + std::to_string(flags.block) + " is not allowed; give 1 or more");
    for (std::int64_t done = 0; done < tokens; done += lengths.back()) {
      lengths.push_back(static_cast<std::int32_t>(std::min(flags.block, tokens - done)));
    }
    return lengths;
  }
  std::int64_t sum = 0;
  for (std::int64_t length : flags.lengths) {
    if (length < 1 || length > tokens) {
      return invalid_argument("--lengths holds " + std::to_string(length) + "; every step takes 1 to " +
                              std::to_string(tokens) + " tokens");
    }
    sum += length;
    lengths.push_back(static_cast<std::int32_t>(length));
  }
  if (lengths.empty() || sum == tokens) return lengths;
  return invalid_argument("--lengths sums to " + std::to_string(sum) + ", but the keys hold " +
                          std::to_string(tokens) + " positions; both must be the same");
}

Result<ReplayOptions> replay_options(const ScoreFlags& flags, const PolicySpec& policy,
                                     const LayerTensors& tensors) {
  ReplayOptions options;
  if (!flags.has_budget && policy.method != "full") {
    return invalid_argument(
        "--budget is missing; give the entries every KV head keeps, such as --budget 128");
  }
  if (flags.has_budget && (flags.budget < 1 || flags.budget > kMostTokens)) {
    return invalid_argument("--budget " + std::to_string(flags.budget) +
                            " is not allowed; give 1 or more entries");
  }
  options.budget = static_cast<std::int32_t>(flags.budget);
  auto lengths = step_lengths(flags, tensors.tokens);
  if (!lengths) return lengths.error();
  options.lengths = std::move(*lengths);
  return options;
}

/// [heads, widest], ascending, -1 = unused.
std::string kept_bytes(const HeadPositions& kept) {
  std::size_t widest = 0;
  for (const auto& head : kept) widest = std::max(widest, head.size());
  std::vector<std::int32_t> rows(kept.size() * widest, -1);
  for (std::size_t h = 0; h < kept.size(); ++h) {
    std::transform(kept[h].begin(), kept[h].end(), rows.begin() + static_cast<std::ptrdiff_t>(h * widest),
                   [](Position p) { return to_int(p); });
  }
  const std::int64_t shape[] = {static_cast<std::int64_t>(kept.size()), static_cast<std::int64_t>(widest)};
  return npy_bytes(shape, std::span<const std::int32_t>(rows));
}

std::string scores_bytes(const std::vector<std::vector<float>>& scores) {
  std::vector<float> rows;
  for (const auto& head : scores) rows.insert(rows.end(), head.begin(), head.end());
  const std::int64_t shape[] = {static_cast<std::int64_t>(scores.size()),
                                static_cast<std::int64_t>(scores[0].size())};
  return npy_bytes(shape, std::span<const float>(rows));
}

std::string summary(const PolicySpec& policy, const HeadPositions& kept, std::int32_t tokens) {
  std::string text = "policy " + policy.print() + "\n";
  for (std::size_t h = 0; h < kept.size(); ++h) {
    text += "head " + std::to_string(h) + " keeps " + std::to_string(kept[h].size()) + " of " +
            std::to_string(tokens) + " positions\n";
  }
  return text;
}

Status score(const ScoreFlags& flags) {
  const auto policy = PolicySpec::parse(flags.policy);
  if (!policy) return policy.error();
  for (const std::string& path : {flags.scores, flags.kept}) {
    if (!path.empty()) KEYNEST_TRY(check_writable(path));
  }
  const auto tensors = read_tensors(flags);
  if (!tensors) return tensors.error();
  const LayerTensors& view = (*tensors)->view;
  const auto options = replay_options(flags, *policy, view);
  if (!options) return options.error();
  const auto result = replay(*policy, view, *options);
  if (!result) return result.error();
  if (!flags.scores.empty()) {
    const auto scores = one_shot_scores(*policy, view, *options);
    if (!scores) return scores.error();
    KEYNEST_TRY(write_whole_file(flags.scores, scores_bytes(*scores)));
  }
  if (!flags.kept.empty()) KEYNEST_TRY(write_whole_file(flags.kept, kept_bytes(result->kept)));
  if (!flags.quiet) std::fputs(summary(*policy, result->kept, view.tokens).c_str(), stdout);
  return {};
}

constexpr const char* kExamples =
    R"(Tensors are NumPy files (.npy) of one layer, float32, C order, after rotary embedding:
keys and values [KV heads, positions, head size], queries [query heads, positions, head size]; query head h reads KV
head h / (query heads / KV heads). Without --block and --lengths all positions come at once.

Examples:
  Which 128 entries KeyDiff keeps of every head:
    keynest score --policy keydiff --keys keys.npy --budget 128 --kept kept.npy
  NestedKV's scores:
    keynest score --policy nestedkv --keys keys.npy --budget 128 --scores scores.npy
  SnapKV as a prompt in blocks of 128 tokens is processed:
    keynest score --policy snapkv --keys keys.npy --queries queries.npy --budget 256 --block 128 --kept kept.npy
  Uneven blocks, then two generated tokens:
    keynest score --policy tova --keys keys.npy --queries queries.npy --budget 16 --lengths 20,15,1,1 --kept kept.npy

)";

CLI::Option* add_file(CLI::App& command, const char* name, std::string& value, const char* help,
                      const char* group) {
  return command.add_option(name, value, help)->type_name("FILE")->group(group);
}

void declare(CLI::App& command, ScoreFlags& flags) {
  command.add_option("--policy", flags.policy, "What is kept; see the list below")
      ->type_name("SPEC")
      ->capture_default_str()
      ->group("Policy");
  command.add_option("--budget", flags.budget, "Entries every KV head keeps, on average over the heads")
      ->type_name("N")
      ->group("Policy");
  auto* block = command.add_option("--block", flags.block, "Tokens between two evictions")
                    ->type_name("B")
                    ->group("Policy");
  command.add_option("--lengths", flags.lengths, "Tokens of every step, summing to all positions")
      ->type_name("L1,L2,...")
      ->delimiter(',')
      ->excludes(block)
      ->group("Policy");
  add_file(command, "--keys", flags.keys, "Keys, [KV heads, positions, head size]", "Input")->required();
  add_file(command, "--queries", flags.queries, "Queries; policies that look at attention need them",
           "Input");
  add_file(command, "--values", flags.values, "Values; no policy looks at them", "Input");
  add_file(command, "--scores", flags.scores,
           "Write the one-shot scores, float32 [KV heads, positions]; higher = keep", "Output");
  add_file(command, "--kept", flags.kept,
           "Write what is kept, int32 [KV heads, most kept], ascending, -1 = unused", "Output");
  command.add_flag("-q,--quiet", flags.quiet, "No summary on standard output")->group("Output");
}

}  // namespace

void add_score(CLI::App& app, Context& context) {
  auto flags = std::make_shared<ScoreFlags>();
  CLI::App* command = app.add_subcommand("score", "Show what a policy keeps of given keys, without a model");
  declare(*command, *flags);
  command->footer([] { return kExamples + policy_footer(); });
  command->callback([command, flags, &context] {
    flags->has_budget = command->count("--budget") > 0;
    flags->has_block = command->count("--block") > 0;
    context.work = [flags] {
      const Status status = score(*flags);
      return status ? kExitOk : report(status.error());
    };
  });
}

}  // namespace keynest::cli
