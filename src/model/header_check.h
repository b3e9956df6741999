// Walks the header of a GGUF file before any library parses it.
#pragma once

#include <cstddef>
#include <span>

#include "keynest/result.h"

namespace keynest {

/// Checks that every count and length of the header fits into the bytes there are, so that reading it can
/// neither run past the end nor allocate more than a small multiple of the file's size. Errors: kInvalidFile,
/// kUnsupported; the message says where the walk stopped, without the file's name.
Status check_gguf_header(std::span<const std::byte> file);

}  // namespace keynest
