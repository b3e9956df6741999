#include "cache/page_pool.h"

#include <gtest/gtest.h>

#include <cstring>
#include <thread>

#include "support/resident.h"

namespace keynest {
namespace {

using test::resident_bytes;

PageLayout layout() { return PageLayout::make(KvType::kF16, 64, 0); }

TEST(PagePool, AllocatesAllOrNoneWithinItsLimit) {
  PagePool pool(layout(), 10 * layout().bytes);
  std::vector<Page*> pages;
  ASSERT_TRUE(pool.allocate(7, pages));
  const Status refused = pool.allocate(4, pages);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kOutOfMemory);
  EXPECT_EQ(pages.size(), 7u);
  EXPECT_EQ(pool.pages_in_use(), 7u);
  ASSERT_TRUE(pool.allocate(3, pages));
  EXPECT_EQ(pool.bytes(), 10 * layout().bytes);
  for (Page* page : pages) pool.release(page);
  EXPECT_EQ(pool.pages_in_use(), 0u);
  EXPECT_EQ(pool.peak_bytes(), 10 * layout().bytes);
}

TEST(PagePool, PagesAreDistinctAlignedAndReused) {
  PagePool pool(layout(), 1 << 30);
  std::vector<Page*> pages;
  ASSERT_TRUE(pool.allocate(200, pages));
  for (std::size_t i = 0; i < pages.size(); ++i) {
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(pages[i]->data) % kPageAlignment, 0u);
    std::memset(pages[i]->data, static_cast<int>(i), layout().bytes);
  }
  for (std::size_t i = 0; i < pages.size(); ++i) {
    EXPECT_EQ(pages[i]->data[0], static_cast<std::byte>(i));
    EXPECT_EQ(pages[i]->data[layout().bytes - 1], static_cast<std::byte>(i));
  }
  Page* lowest = pages[3];
  pool.release(pages[3]);
  pool.release(pages[150]);
  std::vector<Page*> again;
  ASSERT_TRUE(pool.allocate(1, again));
  EXPECT_EQ(again[0], lowest) << "the lowest free page comes first, so that use stays dense";
}

TEST(PagePool, LastReferenceReturnsThePage) {
  PagePool pool(layout(), 1 << 30);
  std::vector<Page*> pages;
  ASSERT_TRUE(pool.allocate(1, pages));
  pool.add_reference(pages[0]);
  EXPECT_TRUE(pages[0]->shared());
  pool.release(pages[0]);
  EXPECT_FALSE(pages[0]->shared());
  EXPECT_EQ(pool.pages_in_use(), 1u);
  pool.release(pages[0]);
  EXPECT_EQ(pool.pages_in_use(), 0u);
}

TEST(PagePool, TrimGivesMemoryBackToTheSystem) {
  if (!test::kResidentIsTelling) GTEST_SKIP() << "resident memory holds the sanitizer's own";
  PagePool pool(layout(), std::size_t{1} << 30);
  std::vector<Page*> pages;
  ASSERT_TRUE(pool.allocate(3000, pages));  // about 52 MB
  for (Page* page : pages) std::memset(page->data, 1, layout().bytes);
  const std::size_t full = resident_bytes();
  // Every fourth page stays, so no chunk becomes empty.
  for (std::size_t i = 0; i < pages.size(); ++i) {
    if (i % 4 != 0) pool.release(pages[i]);
  }
  pool.trim();
  EXPECT_LT(resident_bytes() + 25'000'000, full);
  for (std::size_t i = 0; i < pages.size(); i += 4) EXPECT_EQ(pages[i]->data[100], std::byte{1});
  std::vector<Page*> again;
  ASSERT_TRUE(pool.allocate(2000, again));
  for (Page* page : again) std::memset(page->data, 2, layout().bytes);
  for (std::size_t i = 0; i < pages.size(); i += 4) EXPECT_EQ(pages[i]->data[100], std::byte{1});
}

TEST(PagePool, ThreadsShareItSafely) {
  PagePool pool(layout(), std::size_t{1} << 30);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int round = 0; round < 200; ++round) {
        std::vector<Page*> pages;
        if (!pool.allocate(static_cast<std::size_t>(1 + (round * 7 + t) % 20), pages)) return;
        for (Page* page : pages) page->data[0] = static_cast<std::byte>(t);
        for (Page* page : pages) {
          EXPECT_EQ(page->data[0], static_cast<std::byte>(t));
          pool.release(page);
        }
        if (round % 50 == 0) pool.trim();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(pool.pages_in_use(), 0u);
}

}  // namespace
}  // namespace keynest
