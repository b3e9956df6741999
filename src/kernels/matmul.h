// Products of a block of activations with stored (quantised) weights on CPUs with BF16 dot products: panels
// of weights are dequantised once per block into a cache-sized buffer and multiplied in BF16, accumulated in
// F32.
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
};

/// Rows of the matrix that one panel takes: the unit of work to share among threads.
inline constexpr int kPanelRows = 48;

/// True where the CPU has AVX-512 BF16; nothing else here may be called otherwise.
bool bf16_matmul_supported();

/// Scratch bytes one thread needs, 64-byte aligned.
std::size_t bf16_matmul_scratch_bytes(const WeightMatrix& weights);

/// Fewer tokens than this are multiplied faster without a panel.
int bf16_matmul_least_tokens(WeightFormat format);

/// out[token, first_row + i] for rows [first_row, first_row + rows) of the matrix, rows <= kPanelRows.
///   activations: BF16 [tokens, columns]; out: float [tokens, out_stride].
void bf16_matmul_panel(const WeightMatrix& weights, int first_row, int rows, const std::uint16_t* activations,
                       int tokens, float* out, std::size_t out_stride, void* scratch);

}  // namespace keynest
