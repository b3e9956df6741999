// oneDNN's matmul: BF16 weights in its own layout and, from version 3 on, 8-bit and 4-bit weights with a
// scale for 32 (for 4 bits a zero point too), multiplied in BF16.
#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <oneapi/dnnl/dnnl.hpp>
#include <unordered_map>

#include "own.h"

namespace keynest::bench {
namespace {

using dnnl::memory;
using Type = memory::data_type;
using Tag = memory::format_tag;
using Arguments = std::unordered_map<int, memory>;

struct Cpu {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
};

Cpu& cpu() {
  static Cpu one;
  return one;
}

/// Nothing where oneDNN has no more than its reference code, thousands of times slower.
std::optional<dnnl::matmul::primitive_desc> matmul(const memory::desc& x, const memory::desc& w,
                                                   const memory::desc& y,
                                                   const dnnl::primitive_attr& how = {}) {
#if DNNL_VERSION_MAJOR >= 3
  const dnnl::matmul::primitive_desc made(cpu().engine, x, w, y, how, true);
#else
  const dnnl::matmul::primitive_desc made({x, w, y}, how, cpu().engine, true);
#endif
  if (!made || std::string(made.impl_info_str()).starts_with("ref")) return std::nullopt;
  return made;
}

/// Activations rounded to BF16, and the descriptions of x and y.
struct Ends {
  Ends(const Weights& w, int tokens)
      : count(static_cast<std::size_t>(tokens) * static_cast<std::size_t>(w.k)),
        rounded(std::make_shared<Aligned>(count * 2)),
        x({tokens, w.k}, Type::bf16, Tag::ab),
        y({tokens, w.n}, Type::f32, Tag::ab) {}
  std::size_t count;
  std::shared_ptr<Aligned> rounded;
  memory::desc x, y;
};

/// [k, n] as n rows of k numbers.
memory::desc rows_of_columns(const Weights& w, Type type) { return {{w.k, w.n}, type, Tag::ba}; }

/// `from` in the layout `to`, as a memory of its own.
memory rearranged(memory from, const memory::desc& to) {
  memory made(to, cpu().engine);
  if (from.get_desc() == to) {
    std::memcpy(made.get_data_handle(), from.get_data_handle(), to.get_size());
    return made;
  }
  dnnl::reorder(from, made).execute(cpu().stream, from, made);
  cpu().stream.wait();
  return made;
}

/// What a matrix is for oneDNN: its numbers and what belongs to them.
using Matrix = std::function<Arguments(const dnnl::matmul::primitive_desc&)>;

Product product_of(const dnnl::matmul::primitive_desc& description, const Ends& ends, const Matrix& matrix,
                   int copies) {
  auto matrices = std::make_shared<std::vector<Arguments>>();
  for (int i = 0; i < copies; ++i) matrices->push_back(matrix(description));
  std::size_t bytes = 0;
  for (const auto& [key, part] : matrices->front()) bytes += part.get_desc().get_size();
  dnnl::matmul primitive(description);
  const auto run = [=](int copy, const float* x, float* y) {
    to_bf16(x, ends.rounded->as<std::uint16_t>(), ends.count);
    Arguments arguments = (*matrices)[static_cast<std::size_t>(copy)];
    arguments[DNNL_ARG_SRC] = memory(ends.x, cpu().engine, ends.rounded->as<void>());
    arguments[DNNL_ARG_DST] = memory(ends.y, cpu().engine, y);
    primitive.execute(cpu().stream, arguments);
    cpu().stream.wait();
  };
  return {run, bytes};
}

std::optional<Product> packed_bf16(const Weights& w, int copies, int tokens) {
  const Ends ends(w, tokens);
  const auto description = matmul(ends.x, {{w.k, w.n}, Type::bf16, Tag::any}, ends.y);
  if (!description) return std::nullopt;
  const Matrix matrix = [&w](const dnnl::matmul::primitive_desc& how) {
    const memory stored(rows_of_columns(w, Type::bf16), cpu().engine,
                        const_cast<std::byte*>(w.stored.data()));
    return Arguments{{DNNL_ARG_WEIGHTS, rearranged(stored, how.weights_desc())}};
  };
  return product_of(*description, ends, matrix, copies);
}

#if DNNL_VERSION_MAJOR >= 3
constexpr int kGroup = 32;

/// What a GGUF file has side by side, group by group, an F16 scale and 32 bytes or nibbles, as oneDNN wants
/// it. Scales in F16 or activations in F32 it multiplies with its reference code only.
struct Planes {
  std::vector<std::uint8_t> numbers;  // [n, k] bytes, or nibbles two to a byte
  std::vector<float> scales;          // [k / 32, n]
};

/// Q8_0: bytes. Q4_0: columns i and i + 16 of a group in one byte; oneDNN has neighbours in one.
Planes planes_of(const Weights& w) {
  const bool four = w.type == GGML_TYPE_Q4_0;
  const std::size_t groups = static_cast<std::size_t>(w.k) / kGroup, rows = static_cast<std::size_t>(w.n);
  const std::size_t group_bytes = four ? kGroup / 2 : kGroup;
  Planes planes{std::vector<std::uint8_t>(rows * groups * group_bytes), std::vector<float>(groups * rows)};
  const auto* at = reinterpret_cast<const std::uint8_t*>(w.stored.data());
  for (std::size_t i = 0; i < rows * groups; ++i, at += 2 + group_bytes) {
    ggml_fp16_t scale;
    std::memcpy(&scale, at, sizeof scale);
    planes.scales[i % groups * rows + i / groups] = ggml_fp16_to_fp32(scale);
    std::uint8_t* to = planes.numbers.data() + i * group_bytes;
    const auto nibble = [at](std::size_t c) { return c < 16 ? at[2 + c] & 15 : at[2 + c - 16] >> 4; };
    for (std::size_t b = 0; b < group_bytes; ++b) {
      to[b] = four ? static_cast<std::uint8_t>(nibble(2 * b) | nibble(2 * b + 1) << 4) : at[2 + b];
    }
  }
  return planes;
}

dnnl::primitive_attr grouped(bool zero_points) {
  dnnl::primitive_attr how;
  how.set_fpmath_mode(dnnl::fpmath_mode::bf16, true);
  how.set_scales(DNNL_ARG_WEIGHTS, 3, {kGroup, 1}, Type::f32);
  if (zero_points) how.set_zero_points(DNNL_ARG_WEIGHTS, 0, {}, Type::s32);
  return how;
}

/// 8 or 4 bits with scales; `layout` is oneDNN's choice (any) or rows as they come (ba).
std::optional<Product> decompressed(const Weights& w, int copies, int tokens, Tag layout) {
  const bool four = w.type == GGML_TYPE_Q4_0;
  const Type type = four ? Type::u4 : Type::s8;
  const Ends ends(w, tokens);
  const auto description = matmul(ends.x, {{w.k, w.n}, type, layout}, ends.y, grouped(four));
  if (!description) return std::nullopt;
  Planes planes = planes_of(w);
  const Matrix matrix = [&](const dnnl::matmul::primitive_desc& how) {
    const memory rows(rows_of_columns(w, type), cpu().engine, planes.numbers.data());
    memory scales({{w.k / kGroup, w.n}, Type::f32, Tag::ab}, cpu().engine);
    std::memcpy(scales.get_data_handle(), planes.scales.data(), planes.scales.size() * sizeof(float));
    Arguments parts{{DNNL_ARG_WEIGHTS, rearranged(rows, how.weights_desc())},
                    {DNNL_ARG_ATTR_SCALES | DNNL_ARG_WEIGHTS, scales}};
    if (four) {
      memory eight({{1}, Type::s32, Tag::a}, cpu().engine);
      *static_cast<std::int32_t*>(eight.get_data_handle()) = 8;
      parts[DNNL_ARG_ATTR_ZERO_POINTS | DNNL_ARG_WEIGHTS] = eight;
    }
    return parts;
  };
  return product_of(*description, ends, matrix, copies);
}
#endif

std::vector<Candidate> candidates(const std::string& name) {
  std::vector<Candidate> all{{name + ", packed", GGML_TYPE_BF16, packed_bf16}};
#if DNNL_VERSION_MAJOR >= 3
  for (const ggml_type type : {GGML_TYPE_Q8_0, GGML_TYPE_Q4_0}) {
    for (const Tag layout : {Tag::any, Tag::ba}) {
      if (layout == Tag::any && type == GGML_TYPE_Q4_0) continue;  // it has no way to rearrange nibbles
      all.push_back({name + (layout == Tag::any ? ", decompressing, packed" : ", decompressing, rows"), type,
                     [layout](const Weights& w, int copies, int tokens) {
                       return decompressed(w, copies, tokens, layout);
                     }});
    }
  }
#endif
  return all;
}

}  // namespace
}  // namespace keynest::bench

int main(int argc, char** argv) {
  const dnnl_version_t* version = dnnl_version();
  const std::string name = "oneDNN " + std::to_string(version->major) + "." + std::to_string(version->minor);
  return keynest::bench::run_candidates(argc, argv, keynest::bench::candidates(name));
}
