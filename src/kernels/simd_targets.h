// Which of Highway's targets are compiled. Included in place of, or before, any Highway header, so that every
// file agrees.
//
// The kernels keep vectors in arrays of a size known at compile time, which the scalable targets do not
// allow. SSSE3 without SSE4 is not worth its compile time.
#pragma once

#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)

#include "hwy/targets.h"
