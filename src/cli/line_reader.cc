#include "cli/line_reader.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "cli/interrupt.h"

namespace keynest::cli {

Result<bool> LineReader::fill() {
  std::array<char, 4096> chunk{};
  while (wait_readable(descriptor_)) {
    const ssize_t n = ::read(descriptor_, chunk.data(), chunk.size());
    if (n >= 0) {
      buffer_.append(chunk.data(), static_cast<std::size_t>(n));
      return n > 0;
    }
    if (errno != EINTR) {
      return Error{ErrorCode::kIo, std::string("cannot read standard input: ") + std::strerror(errno)};
    }
  }
  return Error{ErrorCode::kCancelled, "interrupted"};
}

Result<std::optional<std::string>> LineReader::next() {
  std::size_t end = 0;
  while ((end = buffer_.find('\n')) == std::string::npos && !ended_) {
    auto more = fill();
    if (!more) return more.error();
    ended_ = !*more;
  }
  if (end == std::string::npos && buffer_.empty()) return std::optional<std::string>();
  std::string line = buffer_.substr(0, end);
  buffer_.erase(0, end == std::string::npos ? end : end + 1);
  return std::optional(std::move(line));
}

}  // namespace keynest::cli
