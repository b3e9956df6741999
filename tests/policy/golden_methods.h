// The methods that are compared with golden vectors: the name of each in the golden set and the spec that is
// it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/replay.h"
#include "keynest/policy.h"
#include "policy/golden_set.h"

namespace keynest::golden {

enum class Kind { kKeys, kAttention, kNested };

struct OneShot {
  std::string golden, spec;
  Kind kind = Kind::kKeys;
  std::string scores_of = {};  ///< golden name of the scores when the method has none of its own
  bool adaptive = false;
};

struct StreamMethod {
  std::string golden, spec;
  Kind kind = Kind::kKeys;
  bool adaptive = false;
  bool pairwise = false;
};

std::vector<OneShot> one_shot_methods(const Case& c);
std::vector<StreamMethod> stream_methods(const Stream& s);

/// Keys and queries of a case; the tensors look into them.
struct Inputs {
  explicit Inputs(const Case& c);
  Inputs(const Inputs&) = delete;
  Inputs& operator=(const Inputs&) = delete;

  std::vector<float> keys, queries;
  LayerTensors tensors;
};

/// The steps of a stream, with what the cache holds after each.
ReplayOptions stream_options(const Stream& s);

/// "reference__stream_<run>__<method>__", which the names of its arrays begin with.
std::string stream_prefix(const Stream& s, const StreamMethod& m);

/// Fails the running test when the text is no spec.
PolicySpec parse(const std::string& text);

std::vector<std::int32_t> ints(const std::vector<Position>& positions);
/// Indices of the numbers of a mask that are not 0.
std::vector<std::int32_t> from_mask(const Array& mask);
/// Positions of a row that ends in -1s.
std::vector<std::int32_t> from_row(const Array& row);

}  // namespace keynest::golden
