// Products of quantised weights with a block of activations, the same for every library: problems, checking,
// timing. y [tokens, n] = x [tokens, k] * transpose(w [n, k]); x and y are F32, w as a GGUF file stores it.
#pragma once

#include <ggml.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace keynest::bench {

/// A random matrix [n, k] in a GGUF format, and the numbers that it stands for.
struct Weights {
  ggml_type type;
  int n, k;
  std::vector<std::byte> stored;  // n rows of row_bytes
  std::vector<float> values;      // [n, k]
  std::size_t row_bytes;
};

/// A product made ready for `tokens` rows of x. run(copy, x, y) uses one of several equal matrices in turn,
/// so that weights come from memory as they do in a model, not out of a cache.
struct Product {
  std::function<void(int copy, const float* x, float* y)> run;
  std::size_t beside_bytes;  // what a matrix needs beside its bytes in the mapped file
  /// What the library took the weights for, [n, k], where it cannot hold the file's numbers; otherwise empty.
  std::vector<float> values = {};
};

/// One way to multiply. `make` answers nothing where the library or the CPU cannot.
struct Candidate {
  std::string name;
  ggml_type type;
  std::function<std::optional<Product>(const Weights& weights, int copies, int tokens)> make;
};

/// 64-byte aligned memory.
class Aligned {
 public:
  explicit Aligned(std::size_t bytes);
  ~Aligned();
  Aligned(const Aligned&) = delete;
  Aligned& operator=(const Aligned&) = delete;
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  void* data_;
};

/// count floats, rounded to BF16.
void to_bf16(const float* from, std::uint16_t* to, std::size_t count);

/// Checks and times the candidates (those whose name contains the argument, if one is given) on all shapes
/// and prints a line each: name, type, k, n, tokens, GFLOPS, error, bytes beside. Returns main's result.
int run_candidates(int argc, char** argv, const std::vector<Candidate>& candidates);

}  // namespace keynest::bench
