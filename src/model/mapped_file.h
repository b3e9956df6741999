// The bytes of a file, either mapped or read into memory; either way one page-aligned block.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "keynest/result.h"

namespace keynest {

class MappedFile {
 public:
  /// Errors: kInvalidFile (missing, unreadable, not a regular file, empty), kOutOfMemory.
  static Result<std::unique_ptr<MappedFile>> open(const std::string& path, bool use_mmap);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return {static_cast<const std::byte*>(base_), size_}; }

  /// Asks the system to read a range soon.
  void prefetch(std::size_t begin, std::size_t end) const;
  /// Makes bytes [begin, end) resident now, so that memory does not grow with what a text happens to touch.
  void populate(std::size_t begin, std::size_t end) const;

  /// Gives back the memory of the whole pages inside [begin, end). What they held must not be read again: in
  /// a file that was read into memory it is gone.
  void release(std::size_t begin, std::size_t end) const;

 private:
  MappedFile(void* base, std::size_t size) : base_(base), size_(size) {}

  void* base_;
  std::size_t size_;
};

}  // namespace keynest
