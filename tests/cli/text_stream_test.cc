// What may be shown of a text that is still growing.
#include "cli/text_stream.h"

#include <gtest/gtest.h>

#include <random>

namespace keynest::cli {
namespace {

std::string stream(const std::string& text, const std::vector<std::string>& stops, std::size_t piece) {
  TextStream stream(stops);
  std::string out;
  for (std::size_t i = 0; i < text.size(); i += piece) out += stream.push(text.substr(i, piece));
  return out + stream.finish();
}

TEST(Utf8Tail, CountsWhatACharacterStillLacks) {
  EXPECT_EQ(incomplete_utf8_tail(""), 0u);
  EXPECT_EQ(incomplete_utf8_tail("abc"), 0u);
  EXPECT_EQ(incomplete_utf8_tail("a\xC3"), 1u);
  EXPECT_EQ(incomplete_utf8_tail("a\xC3\xA9"), 0u);
  EXPECT_EQ(incomplete_utf8_tail("\xE2\x82"), 2u);
  EXPECT_EQ(incomplete_utf8_tail("\xE2\x82\xAC"), 0u);
  EXPECT_EQ(incomplete_utf8_tail("\xF0\x9F\x98"), 3u);
  EXPECT_EQ(incomplete_utf8_tail("\xF0\x9F\x98\x80"), 0u);
}

TEST(Utf8Tail, LetsGoOfBytesThatBeginNoCharacter) {
  EXPECT_EQ(incomplete_utf8_tail("\xFF"), 0u);
  EXPECT_EQ(incomplete_utf8_tail("\xC0"), 0u);      // overlong
  EXPECT_EQ(incomplete_utf8_tail("\xE0\x80"), 0u);  // overlong
  EXPECT_EQ(incomplete_utf8_tail("\xED\xA0"), 0u);  // surrogate
  EXPECT_EQ(incomplete_utf8_tail("\xF4\x90"), 0u);  // past U+10FFFF
  EXPECT_EQ(incomplete_utf8_tail("\x80\x80\x80\x80"), 0u);
}

TEST(TextStream, PassesPlainTextAtOnce) {
  TextStream stream({});
  EXPECT_EQ(stream.push("hello"), "hello");
  EXPECT_EQ(stream.finish(), "");
}

TEST(TextStream, WaitsForTheRestOfACharacter) {
  TextStream stream({});
  EXPECT_EQ(stream.push("caf\xC3"), "caf");
  EXPECT_EQ(stream.push("\xA9!"), "\xC3\xA9!");
}

TEST(TextStream, GivesAnUnfinishedCharacterAtTheEnd) {
  TextStream stream({});
  EXPECT_EQ(stream.push("a\xF0\x9F"), "a");
  EXPECT_EQ(stream.finish(), "\xF0\x9F");
}

TEST(TextStream, HoldsWhatMayBecomeAStop) {
  TextStream stream({"END"});
  EXPECT_EQ(stream.push("the E"), "the ");
  EXPECT_EQ(stream.push("N"), "");
  EXPECT_EQ(stream.push("T"), "ENT");
  EXPECT_FALSE(stream.stopped());
  EXPECT_EQ(stream.push("EEND of it"), "E");
  EXPECT_TRUE(stream.stopped());
  EXPECT_EQ(stream.push("more"), "");
  EXPECT_EQ(stream.finish(), "");
}

TEST(TextStream, GivesAHalfStopAtTheEnd) {
  TextStream stream({"END"});
  EXPECT_EQ(stream.push("the EN"), "the ");
  EXPECT_EQ(stream.finish(), "EN");
}

TEST(TextStream, TakesTheStopThatIsCompleteFirst) {
  for (const std::size_t piece : {1u, 2u, 3u, 9u}) {
    EXPECT_EQ(stream("xabcd", {"abcd", "bc"}, piece), "xa") << piece;
    EXPECT_EQ(stream("xabc", {"bc", "abc"}, piece), "x") << piece;
  }
}

TEST(TextStream, BytesDoNotDependOnThePieces) {
  std::mt19937 random(7);
  const std::string alphabet = "ab\n\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80\xFF";
  for (int round = 0; round < 300; ++round) {
    std::string text;
    for (int i = 0; i < 40; ++i) text += alphabet[random() % alphabet.size()];
    const std::string whole = stream(text, {}, text.size());
    EXPECT_EQ(whole, text);
    const std::vector<std::string> stops{"aba\n", "b\xE2", "\nb"};
    EXPECT_EQ(stream(text, stops, 1), stream(text, stops, text.size()));
    EXPECT_EQ(stream(text, stops, 3), stream(text, stops, text.size()));
  }
}

TEST(TextStream, NeverShowsHalfACharacterOfValidText) {
  const std::string text = "a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80z";
  TextStream stream({"\xAC"});  // a stop inside a character
  for (const char byte : text.substr(0, 4)) {
    const std::string out = stream.push(std::string(1, byte));
    EXPECT_EQ(incomplete_utf8_tail(out), 0u);
  }
}

TEST(Unescape, ReadsEscapes) {
  EXPECT_EQ(*unescape("plain"), "plain");
  EXPECT_EQ(*unescape(R"(a\n\t\\\"\x41\xfF)"), "a\n\t\\\"A\xFF");
  EXPECT_EQ(*unescape(R"(\0)"), std::string(1, '\0'));
}

TEST(Unescape, RefusesOthersAndSaysWhatIsAllowed) {
  for (const char* text : {"\\d", "end\\", "\\x4", "\\xzz"}) {
    const auto result = unescape(text);
    ASSERT_FALSE(result) << text;
    EXPECT_EQ(result.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(result.error().message.find("\\xHH"), std::string::npos);
  }
}

}  // namespace
}  // namespace keynest::cli
