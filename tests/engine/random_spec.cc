#include "engine/random_spec.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "policy/registry.h"

namespace keynest::test {
namespace {

int below(std::mt19937& random, std::size_t count) { return static_cast<int>(random() % count); }

std::string random_subset(const OptionRow& row, std::mt19937& random) {
  std::string text;
  const std::size_t always = random() % row.allowed.size();
  for (std::size_t i = 0; i < row.allowed.size(); ++i) {
    if (i != always && random() % 2 == 0) continue;
    if (!text.empty()) text += '+';
    text += row.allowed[i];
  }
  return text;
}

std::string random_value(const OptionRow& row, std::mt19937& random) {
  const int least = static_cast<int>(row.least);
  switch (row.kind) {
    case OptionKind::kChoice:
      return std::string(row.allowed[random() % row.allowed.size()]);
    case OptionKind::kSubset:
      return random_subset(row, random);
    case OptionKind::kInteger:
      return std::to_string((least + below(random, 10)) | (row.odd ? 1 : 0));
    case OptionKind::kNumber:
      return std::to_string(least + below(random, 40));
    case OptionKind::kShare:
      return std::to_string(below(random, 101)) + "%";
    case OptionKind::kAmount:
      return random() % 2 == 0 ? std::to_string(below(random, 8)) : std::to_string(below(random, 50)) + "%";
  }
  return {};
}

std::string any_spec(std::mt19937& random) {
  const auto all = methods();
  const MethodRow& method = all[random() % all.size()];
  std::string text(method.name);
  char separator = ':';
  const auto add = [&](const OptionRow& row) {
    text += separator;
    text += row.name;
    text += '=';
    text += random_value(row, random);
    separator = ',';
  };
  for (const OptionRow& row : method.options) {
    if (random() % 2 == 0) add(row);
  }
  for (const CommonOption& option : common_options()) {
    if (random() % 4 == 0) add(option.row);
  }
  return text;
}

}  // namespace

std::string random_spec(std::mt19937& random) {
  for (;;) {
    const std::string text = any_spec(random);
    const auto spec = PolicySpec::parse(text);
    if (!spec) {  // options that exclude each other
      EXPECT_EQ(spec.error().code, ErrorCode::kInvalidArgument) << text;
      continue;
    }
    const auto again = PolicySpec::parse(spec->print());
    EXPECT_TRUE(again.ok() && *again == *spec) << text << " printed as " << spec->print();
    return text;
  }
}

}  // namespace keynest::test
