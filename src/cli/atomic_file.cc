#include "cli/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>

namespace keynest::cli {
namespace {

namespace fs = std::filesystem;

Error cannot_write(const std::string& path, int reason) {
  return {ErrorCode::kIo, "cannot write \"" + path + "\": " + std::strerror(reason)};
}

Status write_all(int descriptor, const std::string& path, std::string_view content) {
  while (!content.empty()) {
    const ssize_t n = ::write(descriptor, content.data(), content.size());
    if (n >= 0) {
      content.remove_prefix(static_cast<std::size_t>(n));
    } else if (errno != EINTR) {
      return cannot_write(path, errno);
    }
  }
  return {};
}

/// The file itself where `path` is a link, so that renaming replaces the file and not the link.
std::string resolved(const std::string& path) {
  std::error_code ignored;
  const fs::path target = fs::canonical(path, ignored);
  return ignored ? path : target.string();
}

bool is_special(const std::string& path) {
  struct stat found {};
  return ::stat(path.c_str(), &found) == 0 && !S_ISREG(found.st_mode);
}

/// Permissions of the old file, or those a new one would get.
mode_t wanted_mode(const std::string& path) {
  struct stat found {};
  if (::stat(path.c_str(), &found) == 0) return found.st_mode & 07777;
  const mode_t mask = ::umask(0);
  ::umask(mask);
  return 0666 & ~mask;
}

/// A new file in the folder of `path`; its name is put into `name`. Below zero: errno says why.
int open_beside(const std::string& path, std::string& name) {
  name = path + ".XXXXXX";
  return ::mkstemp(name.data());
}

Status write_special(const std::string& path, std::string_view content) {
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (descriptor < 0) return cannot_write(path, errno);
  Status written = write_all(descriptor, path, content);
  ::close(descriptor);
  return written;
}

Status fill_and_rename(int descriptor, const std::string& name, const std::string& path,
                       std::string_view content) {
  Status written = write_all(descriptor, path, content);
  const bool synced = ::fchmod(descriptor, wanted_mode(path)) == 0 && ::fsync(descriptor) == 0;
  const bool closed = ::close(descriptor) == 0;
  if (!written) return written;
  if (!synced || !closed || std::rename(name.c_str(), path.c_str()) != 0) return cannot_write(path, errno);
  return {};
}

}  // namespace

Status check_writable(const std::string& path) {
  if (path == "-") return {};
  const std::string target = resolved(path);
  std::error_code ignored;
  if (fs::is_directory(target, ignored)) return cannot_write(path, EISDIR);
  const bool exists = ::access(target.c_str(), F_OK) == 0;
  if (exists && ::access(target.c_str(), W_OK) != 0) return cannot_write(path, errno);
  if (is_special(target)) return {};
  std::string name;
  const int descriptor = open_beside(target, name);
  if (descriptor < 0) return cannot_write(path, errno);
  ::close(descriptor);
  ::unlink(name.c_str());
  return {};
}

Status write_whole_file(const std::string& path, std::string_view content) {
  if (path == "-") return write_all(STDERR_FILENO, "standard error", content);
  const std::string target = resolved(path);
  if (is_special(target)) return write_special(target, content);
  std::string name;
  const int descriptor = open_beside(target, name);
  if (descriptor < 0) return cannot_write(path, errno);
  Status done = fill_and_rename(descriptor, name, target, content);
  if (!done) ::unlink(name.c_str());
  return done;
}

}  // namespace keynest::cli
