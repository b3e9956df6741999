// Prints what instruction counts depend on besides the sources, then runs every section.
#include <hwy/highway.h>

#include <cstdio>

#include "guard.h"
#include "kernels/attention.h"

namespace {

#if defined(__clang__)
constexpr const char* kCompiler = "clang";
constexpr int kCompilerVersion = __clang_major__;
#else
constexpr const char* kCompiler = "gcc";
constexpr int kCompilerVersion = __GNUC__;
#endif

}  // namespace

int main() {
  std::printf("%s %d, Highway %d.%d.%d, %s\n", kCompiler, kCompilerVersion, HWY_MAJOR, HWY_MINOR, HWY_PATCH,
              keynest::simd_target());
  std::fflush(stdout);
  keynest::guard::count_kernels();
  return keynest::guard::count_steps() ? 0 : 1;
}
