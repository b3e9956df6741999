// libxsmm's kernels, made at run time for small products, on keynest's panels.
#include <libxsmm.h>

#include <algorithm>
#include <string>

#include "kernels/matmul.h"
#include "own.h"

namespace keynest::bench {
namespace {

/// y [tokens, rows] (+)= x [tokens, depth] * transpose(panel): in libxsmm's words, by columns, rows x tokens.
libxsmm_bsmmfunction kernel(int rows, int tokens, int depth, int k, int n, bool add) {
  const libxsmm_blasint lda = kPanelRows, ldb = k, ldc = n;
  const float alpha = 1.0f, beta = add ? 1.0f : 0.0f;
  const int flags = LIBXSMM_GEMM_FLAG_VNNI_A;
  return libxsmm_bsmmdispatch(rows, tokens, depth, &lda, &ldb, &ldc, &alpha, &beta, &flags, nullptr);
}

std::optional<Product> panels(const Weights& w, int copies, int tokens) {
  const int k = w.k, n = w.n;
  if (!bf16_matmul_supported()) return std::nullopt;
  if (kernel(kPanelRows, tokens, std::min(kPanelDepth, k), k, n, false) == nullptr) return std::nullopt;
  const PanelTimes times = [=](const std::uint16_t* panel, int rows, int column, int depth,
                               const std::uint16_t* x,
                               float* y) { kernel(rows, tokens, depth, k, n, column > 0)(panel, x, y); };
  return panel_product(w, copies, tokens, times);
}

}  // namespace
}  // namespace keynest::bench

int main(int argc, char** argv) {
  using namespace keynest::bench;
  libxsmm_init();
  const std::string name = std::string("panels + libxsmm (") + libxsmm_get_target_arch() + ")";
  std::vector<Candidate> all;
  for (const ggml_type type : {GGML_TYPE_Q4_K, GGML_TYPE_Q5_0, GGML_TYPE_Q8_0})
    all.push_back({name, type, panels});
  return run_candidates(argc, argv, all);
}
