// NestedKV's way from three anomalies per entry to one score: every intermediate vector is named, so that
// each can be tested. "NestedKV" (arXiv 2605.26678), section 3; golden/reference.py (nestedkv_combine) is
// followed to the letter.
#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "policy/scratch.h"

namespace keynest {

enum NestedScale { kStable, kEpisodic, kCurrent, kNestedScales };

struct NestedOptions {
  std::array<bool, kNestedScales> scales{true, true, true};
  bool adaptive = true;  ///< blend weights follow each head's spread; false: the prior alone
  bool surprise = true;  ///< the gate towards the strongest scale; false: the blend alone
};

/// One head, n entries. The caller fills `anomaly`; a constant added to all of one scale changes nothing.
struct NestedVectors {
  std::array<std::span<double>, kNestedScales> anomaly;  ///< [n] each
  std::array<std::span<double>, kNestedScales> unit;     ///< min-max of the anomalies
  std::array<double, kNestedScales> spread{}, weights{};
  std::span<double> blend, surprise_std, surprise_unit, surprise_centred, gate, strongest, final;  ///< [n]
};

/// Cuts all vectors off `scratch`.
NestedVectors take_nested_vectors(Scratch& scratch, std::size_t n);
std::size_t nested_vectors_bytes(std::size_t n);

/// Fills everything from the anomalies.
void nested_combine(const NestedOptions& options, NestedVectors& v);

}  // namespace keynest
