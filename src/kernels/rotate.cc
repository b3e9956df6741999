#include "kernels/rotate.h"

#include <cmath>
#include <vector>

#include "kernels/rows.h"

namespace keynest {
namespace {

/// The sines of one angle per pair.
struct Turn {
  std::vector<double> cosines, sines;  // [head_dim / 2]

  void set(const KeyRotation& rotation, std::int32_t by) {
    cosines.clear();
    sines.clear();
    for (const float frequency : rotation.frequencies) {
      const double angle = static_cast<double>(frequency) * by;
      cosines.push_back(std::cos(angle));
      sines.push_back(std::sin(angle));
    }
  }
};

void turn_key(std::vector<float>& key, const Turn& turn, bool adjacent_pairs) {
  const std::size_t pairs = key.size() / 2;
  const std::size_t step = adjacent_pairs ? 2 : 1, next = adjacent_pairs ? 1 : pairs;
  for (std::size_t i = 0; i < pairs; ++i) {
    float &a = key[i * step], &b = key[i * step + next];
    const double x = a, y = b;
    a = static_cast<float>(x * turn.cosines[i] - y * turn.sines[i]);
    b = static_cast<float>(x * turn.sines[i] + y * turn.cosines[i]);
  }
}

}  // namespace

void rotate_keys(const HeadRows& head, std::span<const RowTurn> turns, const KeyRotation& rotation) {
  thread_local std::vector<float> key;
  thread_local Turn turn;
  key.resize(static_cast<std::size_t>(head.layout->head_dim));
  std::int32_t by = 0;
  for (const RowTurn& each : turns) {
    if (each.by == 0) continue;
    if (each.by != by) turn.set(rotation, by = each.by);
    read_key(head, each.row, key.data());
    turn_key(key, turn, rotation.adjacent_pairs);
    write_key(head, each.row, key.data());
  }
}

}  // namespace keynest
