// The options every method takes.
#include <vector>

#include "policy/numbers.h"
#include "policy/registry.h"

namespace keynest {
namespace {

constexpr double kMostBeta = 1000;

CommonOption heads_option() {
  return {
      {"heads",
       OptionKind::kChoice,
       "uniform",
       "uniform: every KV head keeps N; adaptive: the heads of a layer compete for heads x N entries (AdaKV)",
       {"uniform", "adaptive"}},
      [](PolicySpec& s, std::string_view v) {
        s.heads = v == "adaptive" ? HeadAllocation::kAdaptive : HeadAllocation::kUniform;
      },
      [](const PolicySpec& s) -> std::string {
        return s.heads == HeadAllocation::kAdaptive ? "adaptive" : "uniform";
      }};
}

CommonOption safeguard_option() {
  return {{"safeguard",
           OptionKind::kShare,
           "0.2",
           "with heads=adaptive: share of N each head keeps for itself",
           {}},
          [](PolicySpec& s, std::string_view v) { s.safeguard = read_share(v).value_or(0); },
          [](const PolicySpec& s) { return print_number(s.safeguard); }};
}

CommonOption layers_option() {
  return {{"layers",
           OptionKind::kChoice,
           "uniform",
           "uniform: every layer keeps N; pyramid: the budget falls linearly with depth (PyramidKV)",
           {"uniform", "pyramid"}},
          [](PolicySpec& s, std::string_view v) {
            s.layers = v == "pyramid" ? LayerAllocation::kPyramid : LayerAllocation::kUniform;
          },
          [](const PolicySpec& s) -> std::string {
            return s.layers == LayerAllocation::kPyramid ? "pyramid" : "uniform";
          }};
}

CommonOption beta_option() {
  return {{"beta",
           OptionKind::kNumber,
           "20",
           "with layers=pyramid: the last layer keeps N / beta",
           {},
           1,
           kMostBeta},
          [](PolicySpec& s, std::string_view v) { s.beta = read_number(v).value_or(0); },
          [](const PolicySpec& s) { return print_number(s.beta); }};
}

CommonOption schedule_option() {
  return {{"schedule",
           OptionKind::kChoice,
           "block",
           "block: evict after every block of the prompt; prefill: once, after the whole prompt",
           {"block", "prefill"}},
          [](PolicySpec& s, std::string_view v) {
            s.schedule = v == "prefill" ? Schedule::kPrefill : Schedule::kBlock;
          },
          [](const PolicySpec& s) -> std::string {
            return s.schedule == Schedule::kPrefill ? "prefill" : "block";
          }};
}

CommonOption decode_option() {
  return {{"decode",
           OptionKind::kChoice,
           "evict",
           "evict: generated tokens stay inside the bound; append: they are kept unscored",
           {"evict", "append"}},
          [](PolicySpec& s, std::string_view v) {
            s.decode = v == "append" ? DecodeMode::kAppend : DecodeMode::kEvict;
          },
          [](const PolicySpec& s) -> std::string {
            return s.decode == DecodeMode::kAppend ? "append" : "evict";
          }};
}

CommonOption positions_option() {
  return {
      {"positions",
       OptionKind::kChoice,
       "true",
       "true: keys keep the rotation of their position; cache: they are rotated by their rank in the cache",
       {"true", "cache"}},
      [](PolicySpec& s, std::string_view v) {
        s.positions = v == "cache" ? Positions::kCache : Positions::kTrue;
      },
      [](const PolicySpec& s) -> std::string { return s.positions == Positions::kCache ? "cache" : "true"; }};
}

CommonOption keep_first_option() {
  return {{"keep_first", OptionKind::kAmount, "0", "the first positions, always kept", {}},
          [](PolicySpec& s, std::string_view v) { s.keep_first = read_amount(v).value_or(Amount{}); },
          [](const PolicySpec& s) { return print_amount(s.keep_first); }};
}

CommonOption keep_last_option() {
  return {{"keep_last", OptionKind::kAmount, "0", "the most recent positions, always kept", {}},
          [](PolicySpec& s, std::string_view v) { s.keep_last = read_amount(v).value_or(Amount{}); },
          [](const PolicySpec& s) { return print_amount(s.keep_last); }};
}

}  // namespace

std::span<const CommonOption> common_options() {
  static const std::vector<CommonOption> kOptions = {
      heads_option(),  safeguard_option(), layers_option(),     beta_option(),     schedule_option(),
      decode_option(), positions_option(), keep_first_option(), keep_last_option()};
  return kOptions;
}

}  // namespace keynest
