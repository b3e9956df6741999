#include "cli/npy_header.h"

#include <charconv>
#include <optional>

namespace keynest::cli {
namespace {

constexpr std::size_t kMostDimensions = 32;  // NumPy's own limit

// Reads one Python literal after the other; every step tells whether it was there.
class Reader {
 public:
  explicit Reader(std::string_view text) : left_(text) {}

  bool take(char c) {
    skip_blanks();
    if (left_.empty() || left_.front() != c) return false;
    left_.remove_prefix(1);
    return true;
  }

  bool take_word(std::string_view word) {
    skip_blanks();
    if (!left_.starts_with(word)) return false;
    left_.remove_prefix(word.size());
    return true;
  }

  std::optional<std::string> take_string() {
    skip_blanks();
    if (left_.empty() || (left_.front() != '\'' && left_.front() != '"')) return std::nullopt;
    const std::size_t end = left_.find(left_.front(), 1);
    if (end == std::string_view::npos) return std::nullopt;
    std::string text(left_.substr(1, end - 1));
    left_.remove_prefix(end + 1);
    return text;
  }

  std::optional<std::int64_t> take_count() {
    skip_blanks();
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(left_.data(), left_.data() + left_.size(), value);
    if (error != std::errc() || value < 0) return std::nullopt;
    left_.remove_prefix(static_cast<std::size_t>(end - left_.data()));
    (void)(!left_.empty() && left_.front() == 'L' && take('L'));  // written by Python 2
    return value;
  }

  bool at_end() {
    skip_blanks();
    return left_.empty();
  }

 private:
  void skip_blanks() {
    while (!left_.empty() && (left_.front() == ' ' || left_.front() == '\n' || left_.front() == '\t')) {
      left_.remove_prefix(1);
    }
  }

  std::string_view left_;
};

bool take_shape(Reader& in, std::vector<std::int64_t>& shape) {
  if (!in.take('(')) return false;
  while (!in.take(')')) {
    const auto count = in.take_count();
    if (!count || shape.size() == kMostDimensions) return false;
    shape.push_back(*count);
    if (!in.take(',')) return in.take(')');
  }
  return true;
}

struct Found {
  bool type = false, order = false, shape = false;
};

// One `'key': value`; false when it is not one of the three, or a second one.
bool take_item(Reader& in, NpyHeader& header, Found& found) {
  const auto key = in.take_string();
  if (!key || !in.take(':')) return false;
  if (*key == "descr" && !found.type) {
    const auto type = in.take_string();
    header.type = type.value_or("");
    return found.type = type.has_value();
  }
  if (*key == "fortran_order" && !found.order) {
    header.fortran_order = in.take_word("True");
    return found.order = header.fortran_order || in.take_word("False");
  }
  return *key == "shape" && !found.shape && (found.shape = take_shape(in, header.shape));
}

}  // namespace

Result<NpyHeader> parse_npy_header(std::string_view text) {
  const Error damaged{
      ErrorCode::kInvalidFile,
      "has a damaged header; expected {'descr': '<f4', 'fortran_order': False, 'shape': (..)}"};
  Reader in(text);
  NpyHeader header;
  Found found;
  if (!in.take('{')) return damaged;
  while (!in.take('}')) {
    if (!take_item(in, header, found)) return damaged;
    if (!in.take(',')) {
      if (!in.take('}')) return damaged;
      break;
    }
  }
  if (!in.at_end() || !found.type || !found.order || !found.shape) return damaged;
  return header;
}

}  // namespace keynest::cli
