// keynest score as a user calls it: files in, files out, exit codes and messages.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "cli/npy.h"
#include "cli/program.h"

namespace keynest::test {
namespace {

namespace fs = std::filesystem;

class Score : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("keynest-score-" + std::to_string(::getpid()));
    fs::create_directories(folder_);
    std::vector<float> keys(2 * 12 * 8), queries(4 * 12 * 8);
    for (std::size_t i = 0; i < keys.size(); ++i) keys[i] = std::sin(static_cast<float>(i) * 1.7f) + 0.5f;
    for (std::size_t i = 0; i < queries.size(); ++i) queries[i] = std::cos(static_cast<float>(i) * 0.9f);
    write("keys.npy", cli::npy_bytes(std::vector<std::int64_t>{2, 12, 8}, std::span<const float>(keys)));
    write("queries.npy",
          cli::npy_bytes(std::vector<std::int64_t>{4, 12, 8}, std::span<const float>(queries)));
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  void write(const std::string& name, const std::string& bytes) const {
    std::ofstream(path(name), std::ios::binary) << bytes;
  }
  std::string bytes(const std::string& name) const {
    std::ifstream in(path(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  }
  Outcome score(std::vector<std::string> more) const {
    std::vector<std::string> all{"score", "--keys", path("keys.npy")};
    all.insert(all.end(), more.begin(), more.end());
    return run_program(all);
  }
  void expect_error(const std::vector<std::string>& arguments, int code, const std::string& said) const {
    const Outcome outcome = score(arguments);
    EXPECT_EQ(outcome.code, code) << said;
    EXPECT_EQ(outcome.out, "") << said;
    EXPECT_NE(outcome.err.find(said), std::string::npos) << outcome.err << "without: " << said;
    EXPECT_EQ(outcome.err.rfind("keynest: ", 0), 0u) << outcome.err;
  }

  fs::path folder_;
};

TEST_F(Score, WritesScoresAndWhatIsKept) {
  const Outcome outcome =
      score({"--policy", "keydiff", "--budget", "5", "--scores", path("s.npy"), "--kept", path("k.npy")});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("head 1 keeps 5 of 12 positions"), std::string::npos) << outcome.out;
  const auto scores = cli::read_npy_file(path("s.npy"));
  ASSERT_TRUE(scores.ok()) << scores.error().message;
  EXPECT_EQ(scores->shape, (std::vector<std::int64_t>{2, 12}));
  const std::string kept = bytes("k.npy");
  EXPECT_NE(kept.find("'<i4'"), std::string::npos);
  EXPECT_NE(kept.find("(2, 5, )"), std::string::npos);
}

TEST_F(Score, KeptIsPaddedWhereHeadsDiffer) {
  const std::vector<std::string> arguments{
      "--policy", "keydiff:heads=adaptive", "--budget", "5", "--block", "4", "--kept", path("k.npy"), "-q"};
  const Outcome outcome = score(arguments);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, "");
  const std::string kept = bytes("k.npy");
  const std::size_t start =
      10 + static_cast<unsigned char>(kept[8]) + 256u * static_cast<unsigned char>(kept[9]);
  std::vector<std::int32_t> numbers((kept.size() - start) / 4);
  std::memcpy(numbers.data(), kept.data() + start, numbers.size() * 4);
  EXPECT_EQ(std::count_if(numbers.begin(), numbers.end(), [](int p) { return p >= 0; }), 10);
  EXPECT_EQ(numbers.size() % 2, 0u);
}

TEST_F(Score, BlocksAndLengthsMeanTheSame) {
  for (const char* policy : {"tova", "h2o", "nestedkv", "snapkv:window=3"}) {
    const std::vector<std::string> common{"--policy", policy, "--queries", path("queries.npy"),
                                          "--budget", "6",    "-q"};
    auto blocks = common, lengths = common;
    blocks.insert(blocks.end(), {"--block", "5", "--kept", path("a.npy")});
    lengths.insert(lengths.end(), {"--lengths", "5,5,2", "--kept", path("b.npy")});
    ASSERT_EQ(score(blocks).code, 0) << policy;
    ASSERT_EQ(score(lengths).code, 0) << policy;
    EXPECT_EQ(bytes("a.npy"), bytes("b.npy")) << policy;
  }
}

TEST_F(Score, MistakesAreUsageErrors) {
  expect_error({"--policy", "keydif", "--budget", "5"}, 2, "did you mean \"keydiff\"");
  expect_error({}, 2, "--budget is missing");
  expect_error({"--budget", "0"}, 2, "--budget 0 is not allowed");
  expect_error({"--budget", "5", "--block", "0"}, 2, "--block 0 is not allowed");
  expect_error({"--budget", "5", "--lengths", "5,8"}, 2, "sums to 13, but the keys hold 12 positions");
  expect_error({"--budget", "5", "--lengths", "5,-1"}, 2, "--lengths holds -1");
  expect_error({"--policy", "tova", "--budget", "5"}, 2, "no queries are given");
  expect_error({"--policy", "snapkv", "--queries", path("queries.npy"), "--budget", "5"}, 2,
               "cannot hold 12 pinned");
  expect_error({"--policy", "keydiff:keep_first=4,keep_last=2", "--budget", "5"}, 2,
               "first 4, most recent 2");
}

TEST_F(Score, BadFilesAreFailures) {
  expect_error({"--budget", "5", "--queries", path("none.npy")}, 1, "cannot be opened");
  write("flat.npy",
        cli::npy_bytes(std::vector<std::int64_t>{12, 8}, std::span<const float>(std::vector<float>(96))));
  expect_error({"--budget", "5", "--queries", path("flat.npy")}, 1,
               "has shape [12, 8]; expected [heads, positions, head size]");
  write("short.npy",
        cli::npy_bytes(std::vector<std::int64_t>{2, 6, 8}, std::span<const float>(std::vector<float>(96))));
  expect_error({"--budget", "5", "--values", path("short.npy")}, 1,
               "expected [2, 12, 8] to go with the keys");
  write("odd.npy",
        cli::npy_bytes(std::vector<std::int64_t>{3, 12, 8}, std::span<const float>(std::vector<float>(288))));
  expect_error({"--budget", "5", "--queries", path("odd.npy")}, 2,
               "3 query heads are no multiple of 2 KV heads");
  expect_error({"--budget", "5", "--kept", "/no/such/folder/k.npy"}, 1, "/no/such/folder/k.npy");
  std::vector<float> keys(2 * 12 * 8, 1.0f);
  keys[(12 + 4) * 8] = std::nanf("");
  write("keys.npy", cli::npy_bytes(std::vector<std::int64_t>{2, 12, 8}, std::span<const float>(keys)));
  expect_error({"--budget", "5"}, 1, "NaN at head 1, position 4");
  EXPECT_FALSE(fs::exists(path("k.npy")));
}

}  // namespace
}  // namespace keynest::test
