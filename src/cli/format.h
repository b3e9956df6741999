// Numbers as people read them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace keynest::cli {

/// "512 B", "1.5 KiB", "48.0 MiB", "1.20 GiB".
std::string format_bytes(std::size_t bytes);

/// "0.42 s", "12.3 s", "3 min 20 s", "1 h 02 min".
std::string format_seconds(double seconds);

/// Tokens per second: "45.2 t/s", "1332 t/s"; "-" when no time has passed.
std::string format_rate(double tokens, double seconds);

/// "1 token", "2 tokens".
std::string format_tokens(std::int64_t tokens);

/// Tokens per second as a number; 0 when no time has passed.
double rate(double tokens, double seconds);

}  // namespace keynest::cli
