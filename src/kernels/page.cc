#include "kernels/page.h"

namespace keynest {
namespace {

std::size_t aligned(std::size_t bytes) {
  return (bytes + kPageAlignment - 1) / kPageAlignment * kPageAlignment;
}

}  // namespace

std::size_t row_bytes(KvType type, int head_dim) {
  const auto d = static_cast<std::size_t>(head_dim);
  switch (type) {
    case KvType::kF32:
      return 4 * d;
    case KvType::kF16:
    case KvType::kBF16:
      return 2 * d;
    case KvType::kQ8_0:
      return d + 2 * (d / 32);
  }
  return 0;
}

PageLayout PageLayout::make(KvType type, int head_dim, int state_floats) {
  PageLayout layout;
  layout.type = type;
  layout.head_dim = head_dim;
  layout.state_floats = state_floats;
  const std::size_t matrix = aligned(kPageRows * row_bytes(type, head_dim));
  layout.keys = 0;
  layout.values = layout.keys + matrix;
  layout.positions = layout.values + matrix;
  layout.inv_norms = layout.positions + kPageRows * sizeof(Position);
  layout.state = layout.inv_norms + kPageRows * sizeof(float);
  layout.bytes = layout.state + static_cast<std::size_t>(state_floats) * kPageRows * sizeof(float);
  return layout;
}

}  // namespace keynest
