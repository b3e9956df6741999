#include "kernels/rows.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "kernels/numbers.h"

namespace keynest {
namespace {

constexpr int kChunkDims = 32;  // dimensions handled at a time; also the block of kQ8_0

struct F32 {
  using Stored = float;
  static Stored store(float value) { return value; }
  static float load(Stored stored) { return stored; }
};
struct F16 {
  using Stored = std::uint16_t;
  static Stored store(float value) { return to_f16(value); }
  static float load(Stored stored) { return from_f16(stored); }
};
struct BF16 {
  using Stored = std::uint16_t;
  static Stored store(float value) { return to_bf16(value); }
  static float load(Stored stored) { return from_bf16(stored); }
};

/// New entries of one page: `count` rows from `row` on.
struct Segment {
  const PageLayout& layout;
  std::byte* keys;
  std::byte* values;
  int row, count;
  const float* new_keys;
  std::size_t key_stride;
  const float* new_values;
  std::size_t value_stride;
};

using Squares = std::array<double, kPageRows>;  // |key|^2 of the rows of a segment

/// Converts dimensions [first, last) of the segment's keys and writes them transposed.
template <class Type>
void write_key_chunk(const Segment& s, int first, int last, Squares& squares) {
  typename Type::Stored chunk[kPageRows][kChunkDims];
  const int dims = last - first;
  for (int i = 0; i < s.count; ++i) {
    const float* key = s.new_keys + static_cast<std::size_t>(i) * s.key_stride + first;
    for (int dim = 0; dim < dims; ++dim) chunk[i][dim] = Type::store(key[dim]);
    double square = 0;
    for (int dim = 0; dim < dims; ++dim) {
      const double value = Type::load(chunk[i][dim]);
      square += value * value;
    }
    squares[static_cast<std::size_t>(i)] += square;
  }
  auto* out = reinterpret_cast<typename Type::Stored*>(s.keys) + first * kPageRows + s.row;
  for (int dim = 0; dim < dims; ++dim, out += kPageRows) {
    for (int i = 0; i < s.count; ++i) out[i] = chunk[i][dim];
  }
}

template <class Type>
void write_segment(const Segment& s, Squares& squares) {
  const int head_dim = s.layout.head_dim;
  for (int first = 0; first < head_dim; first += kChunkDims) {
    write_key_chunk<Type>(s, first, std::min(first + kChunkDims, head_dim), squares);
  }
  auto* out = reinterpret_cast<typename Type::Stored*>(s.values) + static_cast<std::size_t>(s.row) * head_dim;
  for (int i = 0; i < s.count; ++i, out += head_dim) {
    const float* value = s.new_values + static_cast<std::size_t>(i) * s.value_stride;
    for (int dim = 0; dim < head_dim; ++dim) out[dim] = Type::store(value[dim]);
  }
}

/// Quantises 32 numbers; returns the scale as stored.
std::uint16_t quantise_block(const float* in, std::int8_t* quants) {
  float largest = 0;
  for (int i = 0; i < 32; ++i) largest = std::max(largest, std::fabs(in[i]));
  const std::uint16_t stored = to_f16(std::min(largest / 127.0f, 65504.0f));
  const float scale = from_f16(stored);
  for (int i = 0; i < 32; ++i) {
    const float quotient = scale > 0 ? std::nearbyint(in[i] / scale) : 0.0f;
    quants[i] = static_cast<std::int8_t>(std::clamp(quotient, -127.0f, 127.0f));
  }
  return stored;
}

/// Sections of a q8_0 page; see page.h.
struct QuantisedPage {
  std::int8_t* keys;            // [head_dim, 64]
  std::uint16_t* key_scales;    // [head_dim / 32, 64]
  std::int8_t* values;          // [64, head_dim]
  std::uint16_t* value_scales;  // [64, head_dim / 32]

  QuantisedPage(const PageLayout& layout, std::byte* keys_at, std::byte* values_at)
      : keys(reinterpret_cast<std::int8_t*>(keys_at)),
        key_scales(reinterpret_cast<std::uint16_t*>(keys_at + layout.head_dim * kPageRows)),
        values(reinterpret_cast<std::int8_t*>(values_at)),
        value_scales(reinterpret_cast<std::uint16_t*>(values_at + layout.head_dim * kPageRows)) {}
};

void write_quantised_key(const QuantisedPage& page, int row, const float* key, int head_dim, double& square) {
  for (int block = 0; block < head_dim / 32; ++block) {
    std::int8_t quants[32];
    const std::uint16_t stored = quantise_block(key + block * 32, quants);
    page.key_scales[block * kPageRows + row] = stored;
    const double scale = from_f16(stored);
    for (int i = 0; i < 32; ++i) {
      page.keys[(block * 32 + i) * kPageRows + row] = quants[i];
      square += scale * scale * quants[i] * quants[i];
    }
  }
}

void write_quantised_segment(const Segment& s, Squares& squares) {
  const QuantisedPage page(s.layout, s.keys, s.values);
  const int head_dim = s.layout.head_dim;
  for (int i = 0; i < s.count; ++i) {
    const auto entry = static_cast<std::size_t>(i);
    const int row = s.row + i;
    write_quantised_key(page, row, s.new_keys + entry * s.key_stride, head_dim, squares[entry]);
    const float* value = s.new_values + entry * s.value_stride;
    for (int block = 0; block < head_dim / 32; ++block) {
      page.value_scales[row * (head_dim / 32) + block] =
          quantise_block(value + block * 32, page.values + row * head_dim + block * 32);
    }
  }
}

void write_segment(const Segment& s, Squares& squares) {
  switch (s.layout.type) {
    case KvType::kF32:
      return write_segment<F32>(s, squares);
    case KvType::kF16:
      return write_segment<F16>(s, squares);
    case KvType::kBF16:
      return write_segment<BF16>(s, squares);
    case KvType::kQ8_0:
      return write_quantised_segment(s, squares);
  }
}

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

void write_rows(const HeadRows& head, Row first, int count, const float* keys, std::size_t key_stride,
                const float* values, std::size_t value_stride, const Position* positions) {
  int done = 0;
  while (done < count) {
    const int at = to_int(first) + done;
    const int page = at / kPageRows, row = at % kPageRows;
    const int part = std::min(count - done, kPageRows - row);
    const auto entry = static_cast<std::size_t>(done);
    Squares squares{};
    write_segment({*head.layout, head.keys(page), head.values(page), row, part, keys + entry * key_stride,
                   key_stride, values + entry * value_stride, value_stride},
                  squares);
    std::copy(positions + done, positions + done + part, head.positions(page) + row);
    for (int i = 0; i < part; ++i) {
      const double norm = std::sqrt(squares[static_cast<std::size_t>(i)]);
      head.inv_norms(page)[row + i] = static_cast<float>(1.0 / std::max(norm, 1e-12));
    }
    for (int s = 0; s < head.layout->state_floats; ++s) std::fill_n(head.state(page, s) + row, part, 0.0f);
    done += part;
  }
}

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
