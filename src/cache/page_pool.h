// The pool all pages come from: a byte limit, reference counts (fork = share, write = copy), and memory that
// really goes back to the system.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "kernels/page.h"
#include "keynest/result.h"

namespace keynest {

/// One page of a pool. Written only by a holder of the sole reference.
struct Page {
  std::byte* data = nullptr;
  std::atomic<std::int32_t> references{0};

  bool shared() const { return references.load(std::memory_order_acquire) > 1; }
};

/// Thread-safe.
class PagePool {
 public:
  /// byte_limit: the most bytes all pages together may take.
  PagePool(const PageLayout& layout, std::size_t byte_limit);
  ~PagePool();
  PagePool(const PagePool&) = delete;
  PagePool& operator=(const PagePool&) = delete;

  /// Appends `count` fresh pages (one reference each, content undefined) to `pages`: all or none.
  /// Errors: kOutOfMemory, naming the limit and what was asked.
  Status allocate(std::size_t count, std::vector<Page*>& pages);

  void add_reference(Page* page) { page->references.fetch_add(1, std::memory_order_relaxed); }

  /// Drops one reference; the last one returns the page to the pool.
  void release(Page* page);

  /// Gives the memory of free pages back to the operating system.
  void trim();

  const PageLayout& layout() const { return layout_; }
  std::size_t byte_limit() const { return byte_limit_; }
  std::size_t pages_in_use() const { return in_use_.load(std::memory_order_relaxed); }
  std::size_t peak_pages() const { return peak_.load(std::memory_order_relaxed); }
  std::size_t bytes() const { return pages_in_use() * layout_.bytes; }
  std::size_t peak_bytes() const { return peak_pages() * layout_.bytes; }

 private:
  struct Chunk;

  Status add_chunk();
  Page* take();
  Chunk& chunk_of(const Page* page);

  const PageLayout layout_;
  const std::size_t byte_limit_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Chunk>> chunks_;
  std::size_t free_pages_ = 0;
  std::atomic<std::size_t> in_use_{0}, peak_{0};
};

}  // namespace keynest
