// Numbers of spec strings: read strictly, printed so that reading gives the same value again.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "keynest/policy.h"

namespace keynest {

/// A whole number without sign, of at most 18 digits.
std::optional<std::int64_t> read_integer(std::string_view text);

/// A finite number without sign.
std::optional<double> read_number(std::string_view text);

/// "0.2" or "20%"; 0 to 1.
std::optional<double> read_share(std::string_view text);

/// "64" (entries) or "20%" (of N).
std::optional<Amount> read_amount(std::string_view text);

std::string print_number(double value);
std::string print_amount(const Amount& amount);

}  // namespace keynest
