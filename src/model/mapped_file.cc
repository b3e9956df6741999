#include "model/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace keynest {
namespace {

Error bad_file(const std::string& path, const std::string& what) {
  return {ErrorCode::kInvalidFile, "model file '" + path + "': " + what};
}

/// Closes a file descriptor at the end of a scope.
struct Descriptor {
  int fd;
  ~Descriptor() {
    if (fd >= 0) close(fd);
  }
};

/// Asks for large pages, which take fewer look-ups of addresses; a hint, and a file's pages that are in
/// memory already stay as they are.
void prefer_large_pages(void* base, std::size_t size) {
#ifdef MADV_HUGEPAGE
  madvise(base, size, MADV_HUGEPAGE);
#else
  static_cast<void>(base), static_cast<void>(size);
#endif
}

/// Reads exactly `size` bytes; false with errno set otherwise (0: the file got shorter).
bool read_all(int fd, std::byte* out, std::size_t size) {
  while (size > 0) {
    const ssize_t got = ::read(fd, out, std::min<std::size_t>(size, 1u << 30));
    if (got < 0 && errno == EINTR) continue;
    if (got == 0) errno = 0;
    if (got <= 0) return false;
    out += got;
    size -= static_cast<std::size_t>(got);
  }
  return true;
}

Result<std::size_t> regular_file_size(int fd, const std::string& path) {
  struct stat info {};
  if (fstat(fd, &info) != 0) return bad_file(path, std::strerror(errno));
  if (S_ISDIR(info.st_mode)) return bad_file(path, "is a directory; give a .gguf file");
  if (!S_ISREG(info.st_mode)) return bad_file(path, "is not a regular file; give a .gguf file");
  if (info.st_size <= 0) return bad_file(path, "is empty");
  return static_cast<std::size_t>(info.st_size);
}

}  // namespace

Result<std::unique_ptr<MappedFile>> MappedFile::open(const std::string& path, bool use_mmap) {
  // Without O_NONBLOCK, opening a pipe that nobody writes to would wait for ever.
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.fd < 0) return bad_file(path, std::string("cannot be opened: ") + std::strerror(errno));
  const Result<std::size_t> size = regular_file_size(file.fd, path);
  if (!size) return size.error();
  void* base = use_mmap ? mmap(nullptr, *size, PROT_READ, MAP_SHARED, file.fd, 0)
                        : mmap(nullptr, *size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) {
    const ErrorCode code = errno == ENOMEM ? ErrorCode::kOutOfMemory : ErrorCode::kInvalidFile;
    return Error{code, "model file '" + path + "': " + std::to_string(*size) +
                           " bytes cannot be mapped: " + std::strerror(errno)};
  }
  prefer_large_pages(base, *size);
  std::unique_ptr<MappedFile> result(new MappedFile(base, *size));
  if (!use_mmap && !read_all(file.fd, static_cast<std::byte*>(base), *size)) {
    return bad_file(path, errno == 0 ? "changed while it was read"
                                     : std::string("cannot be read: ") + std::strerror(errno));
  }
  return result;
}

MappedFile::~MappedFile() { munmap(base_, size_); }

void MappedFile::prefetch(std::size_t begin, std::size_t end) const {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  begin = begin / page * page;
  if (begin < end) madvise(static_cast<std::byte*>(base_) + begin, end - begin, MADV_WILLNEED);
}

void MappedFile::populate(std::size_t begin, std::size_t end) const {
#ifdef MADV_POPULATE_READ
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  begin = begin / page * page;
  // Where the kernel does not know it, pages come one by one, as they are read.
  if (begin < end) madvise(static_cast<std::byte*>(base_) + begin, end - begin, MADV_POPULATE_READ);
#else
  prefetch(begin, end);
#endif
}

void MappedFile::release(std::size_t begin, std::size_t end) const {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  begin = (begin + page - 1) / page * page;
  end = end >= size_ ? size_ : end / page * page;
  if (begin < end) madvise(static_cast<std::byte*>(base_) + begin, end - begin, MADV_DONTNEED);
}

}  // namespace keynest
