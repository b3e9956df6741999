// Checks a file's vocabulary before libllama reads it, because libllama aborts on some of what can be wrong.
#pragma once

#include "model/metadata.h"

namespace keynest {

/// Checks every "tokenizer.*" key that libllama reads; errors are left in `metadata`.
void check_vocabulary(Metadata& metadata);

}  // namespace keynest
