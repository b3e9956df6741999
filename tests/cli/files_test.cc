// Reading inputs and writing files whole.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "cli/atomic_file.h"
#include "cli/line_reader.h"
#include "cli/terminal.h"

namespace keynest::cli {
namespace {

namespace fs = std::filesystem;

class Files : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "keynest-files-XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  static void put(const std::string& file, const std::string& text) { std::ofstream(file) << text; }
  static std::string get(const std::string& file) {
    std::ostringstream text;
    text << std::ifstream(file).rdbuf();
    return text.str();
  }
  std::size_t count() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }

  fs::path folder_;
};

TEST_F(Files, CheckLeavesNothingBehind) {
  EXPECT_TRUE(check_writable(path("new.json")));
  EXPECT_EQ(count(), 0u);
  put(path("old.json"), "old");
  EXPECT_TRUE(check_writable(path("old.json")));
  EXPECT_EQ(get(path("old.json")), "old");
  EXPECT_EQ(count(), 1u);
}

TEST_F(Files, CheckNamesTheFileAndTheReason) {
  const Status missing = check_writable(path("no/such/folder.json"));
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ErrorCode::kIo);
  EXPECT_NE(missing.error().message.find("folder.json"), std::string::npos);
  EXPECT_NE(missing.error().message.find("No such file"), std::string::npos);
  EXPECT_FALSE(check_writable(folder_.string()));
}

TEST_F(Files, WritesNewAndOldFilesWhole) {
  ASSERT_TRUE(write_whole_file(path("a"), "one"));
  EXPECT_EQ(get(path("a")), "one");
  ASSERT_TRUE(write_whole_file(path("a"), "two"));
  EXPECT_EQ(get(path("a")), "two");
  EXPECT_EQ(count(), 1u);
}

TEST_F(Files, KeepsPermissionsAndLinks) {
  put(path("real"), "old");
  fs::permissions(path("real"), fs::perms::owner_read | fs::perms::owner_write);
  fs::create_symlink("real", path("link"));
  ASSERT_TRUE(write_whole_file(path("link"), "new"));
  EXPECT_EQ(get(path("real")), "new");
  EXPECT_TRUE(fs::is_symlink(path("link")));
  EXPECT_EQ(fs::status(path("real")).permissions(), fs::perms::owner_read | fs::perms::owner_write);
}

TEST_F(Files, NewFilesFollowTheMask) {
  const mode_t old = ::umask(027);
  ASSERT_TRUE(write_whole_file(path("a"), "x"));
  ::umask(old);
  EXPECT_EQ(static_cast<unsigned>(fs::status(path("a")).permissions()), 0640u);
}

TEST_F(Files, WritesIntoAPipeWithoutReplacingIt) {
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  ASSERT_TRUE(check_writable(path("pipe")));
  const int reader = ::open(path("pipe").c_str(), O_RDONLY | O_NONBLOCK);
  ASSERT_TRUE(write_whole_file(path("pipe"), "text"));
  char text[8] = {};
  EXPECT_EQ(::read(reader, text, sizeof text), 4);
  ::close(reader);
  EXPECT_TRUE(fs::is_fifo(path("pipe")));
}

TEST_F(Files, ReadsBytesExactly) {
  const std::string bytes("a\0\xFF\r\n", 5);
  put(path("a"), bytes);
  EXPECT_EQ(*read_file(path("a")), bytes);
}

TEST_F(Files, ReadErrorsNameTheFile) {
  for (const std::string& bad : {path("missing"), folder_.string()}) {
    const auto text = read_file(bad);
    ASSERT_FALSE(text);
    EXPECT_NE(text.error().message.find(bad), std::string::npos);
  }
}

TEST_F(Files, LinesWithAndWithoutALastNewline) {
  put(path("a"), "one\n\ntwo");
  const int descriptor = ::open(path("a").c_str(), O_RDONLY);
  LineReader reader(descriptor);
  EXPECT_EQ(reader.next()->value(), "one");
  EXPECT_EQ(reader.next()->value(), "");
  EXPECT_EQ(reader.next()->value(), "two");
  EXPECT_FALSE(reader.next()->has_value());
  ::close(descriptor);
}

TEST_F(Files, ABackslashContinuesTheMessage) {
  put(path("a"), "one\\\ntwo\nthree\\\n");
  const int descriptor = ::open(path("a").c_str(), O_RDONLY);
  LineReader reader(descriptor);
  std::string prompts;
  const auto prompt = [&prompts](bool more) { prompts += more ? '|' : '>'; };
  EXPECT_EQ(read_message(reader, prompt)->value(), "one\ntwo");
  EXPECT_EQ(read_message(reader, prompt)->value(), "three\n");
  EXPECT_FALSE(read_message(reader, prompt)->has_value());
  EXPECT_EQ(prompts, ">|>|>");
  ::close(descriptor);
}

}  // namespace
}  // namespace keynest::cli
