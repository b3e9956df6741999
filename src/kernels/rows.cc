#include "kernels/rows.h"

#include <algorithm>
#include <cstring>
#include <utility>

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

/// Column `to` of a matrix [count, 64] becomes column `from` of another.
struct CopyColumn {
  template <class T>
  static void run(T* from, T* to, int count) {
    for (int i = 0; i < count; ++i) to[i * kPageRows] = from[i * kPageRows];
  }
};
struct SwapColumns {
  template <class T>
  static void run(T* a, T* b, int count) {
    for (int i = 0; i < count; ++i) std::swap(a[i * kPageRows], b[i * kPageRows]);
  }
};

/// Runs Work on the columns of a and b of a matrix of T that starts `offset` bytes after the keys.
template <class T, class Work>
void on_columns(const Entry& a, const Entry& b, std::size_t offset, int count) {
  Work::run(reinterpret_cast<T*>(a.keys + offset) + a.row, reinterpret_cast<T*>(b.keys + offset) + b.row,
            count);
}

template <class Work>
void on_keys(const PageLayout& layout, const Entry& a, const Entry& b) {
  const int d = layout.head_dim;
  switch (layout.type) {
    case KvType::kF32:
      return on_columns<float, Work>(a, b, 0, d);
    case KvType::kF16:
    case KvType::kBF16:
      return on_columns<std::uint16_t, Work>(a, b, 0, d);
    case KvType::kQ8_0: {
      on_columns<std::int8_t, Work>(a, b, 0, d);
      return on_columns<std::uint16_t, Work>(a, b, static_cast<std::size_t>(d) * kPageRows, d / 32);
    }
  }
}

/// Calls work(bytes of a, bytes of b, how many) for the parts of their values.
template <class Work>
void on_values(const PageLayout& layout, const Entry& a, const Entry& b, const Work& work) {
  const auto part = [&](std::size_t offset, std::size_t bytes) {
    work(a.values + offset + static_cast<std::size_t>(a.row) * bytes,
         b.values + offset + static_cast<std::size_t>(b.row) * bytes, bytes);
  };
  const auto d = static_cast<std::size_t>(layout.head_dim);
  if (layout.type != KvType::kQ8_0) return part(0, row_bytes(layout.type, layout.head_dim));
  part(0, d);
  part(kPageRows * d, 2 * (d / 32));
}

/// Calls work(number of a, number of b) for what stands beside keys and values.
template <class Work>
void on_numbers(const HeadRows& head, Row a, Row b, const Work& work) {
  const int page_a = to_int(a) / kPageRows, page_b = to_int(b) / kPageRows;
  const int row_a = to_int(a) % kPageRows, row_b = to_int(b) % kPageRows;
  work(head.positions(page_a)[row_a], head.positions(page_b)[row_b]);
  work(head.inv_norms(page_a)[row_a], head.inv_norms(page_b)[row_b]);
  for (int s = 0; s < head.layout->state_floats; ++s) {
    work(head.state(page_a, s)[row_a], head.state(page_b, s)[row_b]);
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
  on_keys<CopyColumn>(*head.layout, source, target);
  on_values(*head.layout, source, target,
            [](const std::byte* in, std::byte* out, std::size_t bytes) { std::memmove(out, in, bytes); });
  on_numbers(head, from, to, [](const auto& in, auto& out) { out = in; });
}

void swap_rows(const HeadRows& head, Row a, Row b) {
  const Entry first(head, a), second(head, b);
  on_keys<SwapColumns>(*head.layout, first, second);
  on_values(*head.layout, first, second, [](std::byte* x, std::byte* y, std::size_t bytes) {
    if (x != y) std::swap_ranges(x, x + bytes, y);
  });
  on_numbers(head, a, b, [](auto& x, auto& y) { std::swap(x, y); });
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
