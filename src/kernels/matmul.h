// Products of a block of activations with stored (quantised) weights. 48 rows at a time are converted, 1024
// columns at a time, into a panel that stays in a core's cache, and multiplied with all tokens of the block;
// the weights are read once and no second copy of them is kept. Sums are F32.
#pragma once

#include <cstddef>
#include <cstdint>

namespace keynest {

/// How weights are stored. Known formats have a fast way into a panel; kOther goes through `to_float`.
enum class WeightFormat {
  kOther,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ8_0,
  kQ4_K,
  kQ5_K,
  kQ6_K,
  kIQ4_NL,
  kF16,
  kBF16,
};

/// A matrix [rows, columns] as it lies in memory; y = W x has `rows` numbers. columns is a multiple of 32.
struct WeightMatrix {
  const std::byte* data = nullptr;
  std::size_t row_bytes = 0;
  int rows = 0;
  int columns = 0;
  WeightFormat format = WeightFormat::kOther;
  void (*to_float)(const void* row, float* out, std::int64_t columns) = nullptr;

  /// Of so many columns of a row, whole blocks: a row's bytes are in proportion to its columns.
  std::size_t bytes_of(int count) const {
    return row_bytes * static_cast<std::size_t>(count) / static_cast<std::size_t>(columns);
  }
};

/// Rows of the matrix that one panel takes: the unit of work to share among threads.
inline constexpr int kPanelRows = 48;
/// Columns that a panel holds at a time; a multiple of every format's block.
inline constexpr int kPanelDepth = 1024;

// out[token, first_row + i] for rows [first_row, first_row + rows) of the matrix, rows <= kPanelRows; out:
// float [tokens, out_stride]. Scratch is one thread's own, 64-byte aligned.

/// In BF16, activations [tokens, columns] too, where the CPU has AVX-512 BF16; not to be called elsewhere.
bool bf16_matmul_supported();
std::size_t bf16_matmul_scratch_bytes();
void bf16_matmul_panel(const WeightMatrix& weights, int first_row, int rows, const std::uint16_t* activations,
                       int tokens, float* out, std::size_t out_stride, void* scratch);
/// Fewer tokens than this are multiplied faster without a panel. Measured on a Zen 5 core (bench_products).
int bf16_matmul_least_tokens(WeightFormat format);

/// In F32 on any CPU, activations [tokens, columns]. The matrix needs its `to_float`.
inline constexpr int kFloatMatmulLeastTokens = 32;
/// Whether that was measured to be faster than ggml's kernels: on x86 with AVX2 and with AVX-512, for some
/// formats.
bool float_matmul_preferred(WeightFormat format);
std::size_t float_matmul_scratch_bytes();
void float_matmul_panel(const WeightMatrix& weights, int first_row, int rows, const float* activations,
                        int tokens, float* out, std::size_t out_stride, void* scratch);

// For few tokens, a single one above all: activations rounded to 8 bits by blocks of 32, as ggml rounds them,
// and rows of any number, where the CPU has AVX-512 VNNI. Scratch holds the rounded activations; threads may
// share it.

/// Whether the CPU and the format allow it: blocks of 32 or 256 columns with integers of at most 8 bits.
bool int8_matmul_supported(WeightFormat format, int columns);
std::size_t int8_matmul_scratch_bytes(int columns, int tokens);
/// activations [tokens, columns], for weights of this format.
void int8_matmul_round(WeightFormat format, const float* activations, int columns, int tokens, void* scratch);
void int8_matmul_rows(const WeightMatrix& weights, int first_row, int rows, int tokens, float* out,
                      std::size_t out_stride, const void* scratch);

// For blocks, in the same arithmetic: activations rounded once for all products with them, weights in panels.
// Where int8_matmul_supported; `rounded` is shared by threads and 32-byte aligned.

std::size_t int8_panel_rounded_bytes(int columns, int tokens);
/// activations [tokens, columns]; every `part` of `parts` has to be done, by any threads.
void int8_panel_round(const float* activations, int columns, int tokens, int part, int parts, void* rounded);
std::size_t int8_panel_scratch_bytes();
/// Fewer tokens than this are multiplied faster without a panel. Measured on a Zen 5 core (bench_products).
int int8_panel_least_tokens(WeightFormat format);
void int8_matmul_panel(const WeightMatrix& weights, int first_row, int rows, const void* rounded, int tokens,
                       float* out, std::size_t out_stride, void* scratch);

/// Columns [column, column + columns) of rows through `to_float`: out[rows, out_stride]. Whole blocks only.
void convert_rows(const WeightMatrix& weights, int first_row, int rows, int column, int columns, float* out,
                  std::size_t out_stride);

}  // namespace keynest
