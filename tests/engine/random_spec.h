// Random policy specs out of the registry's tables, so that a new method or option is in them from its first
// day.
#pragma once

#include <random>
#include <string>

namespace keynest::test {

/// A spec that parses; methods and options with small values, so that they fit small budgets.
std::string random_spec(std::mt19937& random);

}  // namespace keynest::test
