#include "cache/page_pool.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <string>

namespace keynest {
namespace {

constexpr int kChunkPages = 64;

std::size_t round_up(std::size_t value, std::size_t unit) { return (value + unit - 1) / unit * unit; }

std::size_t system_page() {
  static const auto size = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return size;
}

}  // namespace

/// 64 pages of one mapping; `free` has a bit per page.
struct PagePool::Chunk {
  std::byte* memory = nullptr;
  std::size_t bytes = 0;
  std::uint64_t free = ~std::uint64_t{0};
  std::uint64_t touched = 0;  // given out since their memory last went back to the system
  std::array<Page, kChunkPages> pages;

  ~Chunk() { munmap(memory, bytes); }
  bool holds(const Page* page) const { return page >= pages.data() && page < pages.data() + kChunkPages; }
  void give_back(int first, int last, std::size_t page_bytes);
};

/// Returns the whole system pages inside store pages [first, last) to the system.
void PagePool::Chunk::give_back(int first, int last, std::size_t page_bytes) {
  const std::size_t begin = round_up(static_cast<std::size_t>(first) * page_bytes, system_page());
  const std::size_t end = static_cast<std::size_t>(last) * page_bytes / system_page() * system_page();
  if (begin < end) madvise(memory + begin, end - begin, MADV_DONTNEED);
  for (int i = first; i < last; ++i) touched &= ~(std::uint64_t{1} << i);
}

PagePool::PagePool(const PageLayout& layout, std::size_t byte_limit)
    : layout_(layout), byte_limit_(byte_limit) {}

PagePool::~PagePool() = default;

Status PagePool::add_chunk() {
  const std::size_t bytes = round_up(kChunkPages * layout_.bytes, system_page());
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    return Error{ErrorCode::kOutOfMemory,
                 "the system refused " + std::to_string(bytes) + " bytes for cache pages"};
  }
  auto chunk = std::make_unique<Chunk>();
  chunk->memory = static_cast<std::byte*>(memory);
  chunk->bytes = bytes;
  for (int i = 0; i < kChunkPages; ++i) {
    chunk->pages[static_cast<std::size_t>(i)].data =
        chunk->memory + static_cast<std::size_t>(i) * layout_.bytes;
  }
  chunks_.push_back(std::move(chunk));
  free_pages_ += kChunkPages;
  return {};
}

Status PagePool::allocate(std::size_t count, std::vector<Page*>& pages) {
  if (count == 0) return {};
  const std::lock_guard lock(mutex_);
  if ((in_use_ + count) * layout_.bytes > byte_limit_) {
    return Error{ErrorCode::kOutOfMemory,
                 "the cache is limited to " + std::to_string(byte_limit_) + " bytes and holds " +
                     std::to_string(bytes()) + "; " + std::to_string(count * layout_.bytes) +
                     " more do not fit: use a smaller budget or block, or raise the cache limit"};
  }
  while (free_pages_ < count) KEYNEST_TRY(add_chunk());
  for (std::size_t i = 0; i < count; ++i) pages.push_back(take());
  in_use_ += count;
  peak_ = std::max(peak_.load(), in_use_.load());
  return {};
}

/// The lowest free page, so that use stays dense and whole chunks become free.
Page* PagePool::take() {
  for (auto& chunk : chunks_) {
    if (chunk->free == 0) continue;
    const int index = __builtin_ctzll(chunk->free);
    chunk->free &= chunk->free - 1;
    chunk->touched |= std::uint64_t{1} << index;
    --free_pages_;
    Page* page = &chunk->pages[static_cast<std::size_t>(index)];
    page->references.store(1, std::memory_order_relaxed);
    return page;
  }
  return nullptr;  // not reached: allocate() made room first
}

PagePool::Chunk& PagePool::chunk_of(const Page* page) {
  return **std::find_if(chunks_.begin(), chunks_.end(),
                        [&](const auto& chunk) { return chunk->holds(page); });
}

void PagePool::release(Page* page) {
  if (page->references.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  const std::lock_guard lock(mutex_);
  Chunk& chunk = chunk_of(page);
  chunk.free |= std::uint64_t{1} << (page - chunk.pages.data());
  ++free_pages_;
  --in_use_;
}

void PagePool::trim() {
  const std::lock_guard lock(mutex_);
  std::erase_if(chunks_, [&](const auto& chunk) {
    if (chunk->free != ~std::uint64_t{0}) return false;
    free_pages_ -= kChunkPages;
    return true;
  });
  for (auto& chunk : chunks_) {
    const std::uint64_t idle = chunk->free & chunk->touched;
    for (int first = 0; first < kChunkPages;) {
      int last = first;
      while (last < kChunkPages && (idle >> last & 1) != 0) ++last;
      if (last > first) chunk->give_back(first, last, layout_.bytes);
      first = last + 1;
    }
  }
}

}  // namespace keynest
