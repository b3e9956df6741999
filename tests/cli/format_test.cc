// Numbers, the progress line and the summary as people read them.
#include "cli/format.h"

#include <gtest/gtest.h>

#include "cli/progress.h"
#include "cli/summary.h"

namespace keynest::cli {
namespace {

TEST(Format, Bytes) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1536), "1.5 KiB");
  EXPECT_EQ(format_bytes(48u << 20), "48.0 MiB");
  EXPECT_EQ(format_bytes(std::size_t{5} << 28), "1.25 GiB");
}

TEST(Format, Seconds) {
  EXPECT_EQ(format_seconds(0.424), "0.42 s");
  EXPECT_EQ(format_seconds(9.999), "10.0 s");
  EXPECT_EQ(format_seconds(12.34), "12.3 s");
  EXPECT_EQ(format_seconds(59.96), "1 min 00 s");
  EXPECT_EQ(format_seconds(200), "3 min 20 s");
  EXPECT_EQ(format_seconds(3720), "1 h 02 min");
  EXPECT_EQ(format_seconds(-1), "-");
}

TEST(Format, Rates) {
  EXPECT_EQ(format_rate(45, 1), "45.0 t/s");
  EXPECT_EQ(format_rate(2664, 2), "1332 t/s");
  EXPECT_EQ(format_rate(5, 0), "-");
  EXPECT_EQ(rate(5, 0), 0);
  EXPECT_EQ(rate(5, 2), 2.5);
}

TEST(Format, Tokens) {
  EXPECT_EQ(format_tokens(1), "1 token");
  EXPECT_EQ(format_tokens(0), "0 tokens");
}

TEST(ProgressLine, TellsShareSpeedTimeAndCache) {
  EXPECT_EQ(progress_line({7373, 16384, 5.5, 51u << 20}, 200),
            "prompt  45% [==================>                     ] 7373/16384  1341 t/s  6.72 s left  "
            "cache 51.0 MiB");
}

TEST(ProgressLine, FitsTheTerminal) {
  for (int width = 0; width < 150; ++width) {
    EXPECT_LE(progress_line({7373, 16384, 5.5, 51u << 20}, width).size(), static_cast<std::size_t>(width));
  }
  EXPECT_EQ(progress_line({1, 2, 1, 0}, 60).find('['), std::string::npos);
}

TEST(ProgressLine, BeginningAndEnd) {
  EXPECT_EQ(progress_line({0, 10, 0, 0}, 79).find("left"), std::string::npos);
  EXPECT_NE(progress_line({10, 10, 1, 0}, 120).find("100% [========"), std::string::npos);
  EXPECT_EQ(progress_line({10, 10, 1, 0}, 120).find('>'), std::string::npos);
  EXPECT_NE(progress_line({0, 0, 0, 0}, 79).find("0%"), std::string::npos);
}

Stats some_stats() {
  Stats stats;
  stats.policy = "keydiff";
  stats.budget = 2048;
  stats.block = 128;
  stats.prompt_tokens = 16384;
  stats.generated_tokens = 9;
  stats.ttft_seconds = 12.3;
  stats.prefill_seconds = 12.0;
  stats.decode_seconds = 0.5;
  stats.cache.bytes = 48u << 20;
  stats.cache.peak_bytes = 51u << 20;
  stats.cache.full_bytes = 384u << 20;
  stats.cache.seen = 16393;
  return stats;
}

TEST(Summary, FourLines) {
  EXPECT_EQ(summary_text(some_stats(), 10),
            "prompt     16384 tokens, first token after 12.3 s, 1365 t/s\n"
            "generated  10 tokens, 18.0 t/s\n"
            "cache      48.0 MiB now, 51.0 MiB peak; all 16393 tokens would take 384.0 MiB\n"
            "policy     keydiff, budget 2048, block 128\n");
}

TEST(Summary, UnboundedBudgetIsCalledFull) {
  Stats stats = some_stats();
  stats.budget = 0;
  EXPECT_NE(summary_text(stats, 10).find("budget full"), std::string::npos);
}

}  // namespace
}  // namespace keynest::cli
