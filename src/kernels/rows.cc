#include "kernels/rows.h"

#include <cstring>

#include "kernels/stored.h"

namespace keynest {
namespace {

/// One entry: the page's sections and the row in them.
struct Entry {
  std::byte* keys;
  std::byte* values;
  int row;

  Entry(const HeadRows& head, Row at)
      : keys(head.keys(to_int(at) / kPageRows)),
        values(head.values(to_int(at) / kPageRows)),
        row(to_int(at) % kPageRows) {}
};

/// Copies column `from` of a matrix [count, 64] over column `to` of another.
template <class T>
void copy_column(const std::byte* in, int from, std::byte* out, int to, int count) {
  const T* source = reinterpret_cast<const T*>(in) + from;
  T* target = reinterpret_cast<T*>(out) + to;
  for (int i = 0; i < count; ++i) target[i * kPageRows] = source[i * kPageRows];
}

void copy_key(const PageLayout& layout, const Entry& from, const Entry& to) {
  const int d = layout.head_dim;
  switch (layout.type) {
    case KvType::kF32:
      return copy_column<float>(from.keys, from.row, to.keys, to.row, d);
    case KvType::kF16:
    case KvType::kBF16:
      return copy_column<std::uint16_t>(from.keys, from.row, to.keys, to.row, d);
    case KvType::kQ8_0: {
      copy_column<std::int8_t>(from.keys, from.row, to.keys, to.row, d);
      const int scales = d * kPageRows;
      return copy_column<std::uint16_t>(from.keys + scales, from.row, to.keys + scales, to.row, d / 32);
    }
  }
}

void copy_value(const PageLayout& layout, const Entry& from, const Entry& to) {
  const auto d = static_cast<std::size_t>(layout.head_dim);
  const auto source = static_cast<std::size_t>(from.row), target = static_cast<std::size_t>(to.row);
  const std::size_t bytes = layout.type == KvType::kQ8_0 ? d : row_bytes(layout.type, layout.head_dim);
  std::memmove(to.values + target * bytes, from.values + source * bytes, bytes);
  if (layout.type == KvType::kQ8_0) {
    const std::size_t scales = kPageRows * d, scale_bytes = 2 * (d / 32);
    std::memmove(to.values + scales + target * scale_bytes, from.values + scales + source * scale_bytes,
                 scale_bytes);
  }
}

template <class Type>
void read_strided(const std::byte* matrix, int first, int stride, int count, float* out) {
  const auto* in = reinterpret_cast<const typename Type::Stored*>(matrix) + first;
  for (int i = 0; i < count; ++i) out[i] = Type::load(in[i * stride]);
}

void read_strided(KvType type, const std::byte* matrix, int first, int stride, int count, float* out) {
  if (type == KvType::kF32) read_strided<F32>(matrix, first, stride, count, out);
  if (type == KvType::kF16) read_strided<F16>(matrix, first, stride, count, out);
  if (type == KvType::kBF16) read_strided<BF16>(matrix, first, stride, count, out);
}

}  // namespace

void move_row(const HeadRows& head, Row from, Row to) {
  const Entry source(head, from), target(head, to);
  copy_key(*head.layout, source, target);
  copy_value(*head.layout, source, target);
  const int from_page = to_int(from) / kPageRows, to_page = to_int(to) / kPageRows;
  head.positions(to_page)[target.row] = head.positions(from_page)[source.row];
  head.inv_norms(to_page)[target.row] = head.inv_norms(from_page)[source.row];
  for (int s = 0; s < head.layout->state_floats; ++s) {
    head.state(to_page, s)[target.row] = head.state(from_page, s)[source.row];
  }
}

void read_key(const HeadRows& head, Row row, float* out) {
  const PageLayout& layout = *head.layout;
  const Entry entry(head, row);
  if (layout.type != KvType::kQ8_0) {
    return read_strided(layout.type, entry.keys, entry.row, kPageRows, layout.head_dim, out);
  }
  const QuantisedPage page(layout, entry.keys, entry.values);
  for (int dim = 0; dim < layout.head_dim; ++dim) {
    const float scale = from_f16(page.key_scales[dim / 32 * kPageRows + entry.row]);
    out[dim] = scale * static_cast<float>(page.keys[dim * kPageRows + entry.row]);
  }
}

void read_value(const HeadRows& head, Row row, float* out) {
  const PageLayout& layout = *head.layout;
  const int d = layout.head_dim;
  const Entry entry(head, row);
  if (layout.type != KvType::kQ8_0) return read_strided(layout.type, entry.values, entry.row * d, 1, d, out);
  const QuantisedPage page(layout, entry.keys, entry.values);
  for (int dim = 0; dim < d; ++dim) {
    const float scale = from_f16(page.value_scales[entry.row * (d / 32) + dim / 32]);
    out[dim] = scale * static_cast<float>(page.values[entry.row * d + dim]);
  }
}

}  // namespace keynest
