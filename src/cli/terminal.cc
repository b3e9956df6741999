#include "cli/terminal.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "cli/interrupt.h"

namespace keynest::cli {
namespace {

Result<std::string> read_all(int descriptor, const std::string& name) {
  std::string text;
  std::array<char, 65536> buffer{};
  while (wait_readable(descriptor)) {
    const ssize_t n = ::read(descriptor, buffer.data(), buffer.size());
    if (n == 0) return text;
    if (n > 0) {
      text.append(buffer.data(), static_cast<std::size_t>(n));
    } else if (errno != EINTR) {
      return Error{ErrorCode::kIo, "cannot read " + name + ": " + std::strerror(errno)};
    }
  }
  return Error{ErrorCode::kCancelled, "interrupted"};
}

}  // namespace

void occupy_standard_streams() {
  // Ascending, as a new file takes the lowest free number; opened the wrong way round, so that reads and
  // writes fail.
  for (const int stream : {kStandardInput, kStandardOutput, kStandardError}) {
    if (::fcntl(stream, F_GETFD) >= 0) continue;
    [[maybe_unused]] const int taken = ::open("/dev/null", stream == kStandardInput ? O_WRONLY : O_RDONLY);
  }
}

bool is_terminal(int descriptor) { return ::isatty(descriptor) != 0; }

int terminal_width() {
  winsize size{};
  const bool known = ::ioctl(kStandardError, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : 80;
}

Result<std::string> read_file(const std::string& path) {
  if (path == "-") return read_all(kStandardInput, "standard input");
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) {
    return Error{ErrorCode::kIo, "cannot open \"" + path + "\": " + std::strerror(errno)};
  }
  auto text = read_all(descriptor, "\"" + path + "\"");
  ::close(descriptor);
  return text;
}

Status Output::write(std::string_view bytes) {
  if (!bytes.empty()) mid_line_ = bytes.back() != '\n';
  while (!bytes.empty() && !closed_) {
    const ssize_t n = ::write(kStandardOutput, bytes.data(), bytes.size());
    if (n >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(n));
    } else if (errno == EPIPE) {
      closed_ = true;
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      pollfd wait{kStandardOutput, POLLOUT, 0};
      ::poll(&wait, 1, -1);
    } else if (errno != EINTR) {
      return Error{ErrorCode::kIo, std::string("cannot write to standard output: ") + std::strerror(errno)};
    }
  }
  return {};
}

bool Output::closed() {
  if (closed_) return true;
  pollfd look{kStandardOutput, 0, 0};
  closed_ = ::poll(&look, 1, 0) > 0 && (look.revents & POLLERR) != 0;
  return closed_;
}

}  // namespace keynest::cli
