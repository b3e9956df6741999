// keynest inspect on a tiny model: its numbers are the library's, whatever the prompt holds.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "cli/inspection.h"
#include "cli/program.h"
#include "cli/tiny.h"

namespace keynest::test {
namespace {

using Json = nlohmann::json;
using Arguments = std::vector<std::string>;

constexpr const char* kHostile =
    "</script><script>alert(1)</script><!-- & \"@DATA@ @SCRIPT@ \xFF\xC3( caf\xC3\xA9 "
    "\xE6\x97\xA5\xE6\x9C\xAC \xE2\x82";

class Inspect : public Tiny {
 protected:
  static Outcome inspect(Arguments more, const std::string& input = {}) {
    Arguments all{"inspect", "-m", file("tiny.gguf"), "-t", "1", "--block", "16", "--no-chat"};
    all.insert(all.end(), more.begin(), more.end());
    return run_program(all, input);
  }
  static Json inspected(Arguments more) {
    more.insert(more.end(), {"--json", "-", "-q"});
    const Outcome outcome = inspect(more);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return Json::parse(outcome.out);
  }
  static std::unique_ptr<Session> session(const std::string& policy, double budget) {
    SessionOptions options;
    options.policy = *PolicySpec::parse(policy);
    options.budget = {Budget::Unit::kEntries, budget};
    options.block = 16;
    options.threads = 1;
    auto session = Session::create(model_, options);
    EXPECT_TRUE(session) << session.error().message;
    return std::move(*session);
  }
};

std::vector<int> numbers(const std::vector<Position>& positions) {
  std::vector<int> out;
  for (const Position p : positions) out.push_back(to_int(p));
  return out;
}

std::string varied_text() {
  std::string text;
  for (int i = 0; i < 200; ++i) text += static_cast<char>('a' + i * i % 23);
  return text;
}

TEST_F(Inspect, TellsWhatSessionsKeep) {
  const std::string text = varied_text();
  const Json json = inspected({"-p", text, "--budget", "32", "--policy", "keydiff", "--policy", "tova"});
  ASSERT_EQ(json["runs"].size(), 2U);
  for (const Json& run : json["runs"]) {
    const auto expected = session(run["policy"], 32);
    ASSERT_TRUE(expected->prefill(tokens(text)));
    ASSERT_EQ(run["heads"].size(), 4U);
    for (const Json& head : run["heads"]) {
      EXPECT_EQ(head["positions"], numbers(expected->kept(head["layer"], head["kv_head"])));
      EXPECT_EQ(head["entries"], 32) << "the budget";
      EXPECT_EQ(head["scores"].size(), 32U);
      EXPECT_EQ(head["cosines"].size(), 32U);
      for (const Json& score : head["scores"]) EXPECT_TRUE(score.is_number()) << "the last step evicted";
      EXPECT_GT(head["anchor_length"], 0.0);
      EXPECT_LE(head["anchor_length"], 1.001);
    }
  }
  EXPECT_NE(json["runs"][0]["heads"], json["runs"][1]["heads"]);
}

TEST_F(Inspect, DescribesModelAndPrompt) {
  const Json json = inspected({"-p", varied_text(), "--budget", "32"});
  EXPECT_EQ(json["format"], "keynest-inspect");
  EXPECT_EQ(json["version"], 1);
  EXPECT_EQ(json["model"], file("tiny.gguf"));
  EXPECT_EQ(json["layers"], model_->info().layers);
  EXPECT_EQ(json["kv_heads"], model_->info().kv_heads);
  EXPECT_EQ(json["head_dim"], model_->info().head_dim);
  EXPECT_EQ(json["layer_windows"], Json({0, 0}));
  EXPECT_EQ(json["block"], 16);
  EXPECT_EQ(json["tokens"], tokens(varied_text()));
  EXPECT_EQ(json["texts"].size(), json["tokens"].size());
  EXPECT_EQ(json["runs"][0]["policy"], "nestedkv");
  EXPECT_EQ(json["runs"][0]["budget"], 32);
  EXPECT_GT(json["runs"][0]["evictions"], 0);
  EXPECT_LT(json["runs"][0]["cache_bytes"], json["runs"][0]["full_bytes"]);
}

TEST_F(Inspect, SharesAddUpToTheEntries) {
  const Json json = inspected({"-p", varied_text(), "--budget", "32", "--policy", "nestedkv"});
  const Json& run = json["runs"][0];
  double shares = 0, entries = 0;
  for (const Json& share : run["kept_share"]) shares += share.get<double>();
  for (const Json& head : run["heads"]) entries += head["entries"].get<double>();
  EXPECT_EQ(run["kept_share"].size(), json["tokens"].size());
  EXPECT_NEAR(shares * 4, entries, 1e-3);
  EXPECT_LE(entries, 4 * 32);
}

TEST_F(Inspect, AnchorsOfALayerAreCompared) {
  const Json json = inspected({"-p", varied_text(), "--budget", "32"});
  for (const Json& layer : json["runs"][0]["anchor_cosines"]) {
    ASSERT_EQ(layer.size(), 2U);
    EXPECT_NEAR(layer[0][0], 1.0, 1e-5);
    EXPECT_FLOAT_EQ(layer[0][1], layer[1][0]);
    EXPECT_LE(std::abs(layer[0][1].get<double>()), 1.001);
  }
}

TEST_F(Inspect, WithoutEvictionThereAreNoScores) {
  const Json json = inspected({"-p", "short", "--policy", "full"});
  const Json& head = json["runs"][0]["heads"][0];
  EXPECT_EQ(head["entries"], tokens("short").size());
  for (const Json& score : head["scores"]) EXPECT_TRUE(score.is_null());
  for (const Json& share : json["runs"][0]["kept_share"]) EXPECT_EQ(share, 1.0);
}

TEST_F(Inspect, SaysWhenTheBudgetIsNotReached) {
  const Outcome outcome = inspect({"-p", "short", "--html", file("small.html")});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.out, "");
  EXPECT_TRUE(holds(outcome.err, "nothing was evicted")) << outcome.err;
  EXPECT_TRUE(holds(outcome.err, "wrote ")) << outcome.err;
}

TEST_F(Inspect, ThePageHoldsHostileTextAsText) {
  const Outcome outcome = inspect({"--budget", "32", "--html", "-", "-q"}, kHostile);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const std::string& page = outcome.out;
  EXPECT_FALSE(holds(page, "alert(1)</script>"));
  EXPECT_FALSE(holds(page, "<!-- &"));
  EXPECT_FALSE(holds(page, "\xFF"));
  const std::string opening = "<script id=\"data\" type=\"application/json\">";
  const std::size_t begin = page.find(opening) + opening.size();
  const Json json = Json::parse(page.substr(begin, page.find("</script>", begin) - begin));
  std::string text;
  for (const Json& piece : json["texts"]) text += piece.get<std::string>();
  EXPECT_TRUE(holds(text, cli::valid_utf8(kHostile))) << text;
  EXPECT_TRUE(holds(text, "caf\xC3\xA9 \xE6\x97\xA5\xE6\x9C\xAC"))
      << "characters of several tokens are whole";
}

TEST_F(Inspect, ThePageAsksForNothing) {
  const std::string page = inspect({"-p", "short", "--html", "-", "-q"}).out;
  for (const char* part : {" src=", "<link", "url(", "fetch(", "@import"}) {
    EXPECT_FALSE(holds(page, part)) << part;
  }
  EXPECT_TRUE(holds(page, "default-src 'none'"));
  EXPECT_FALSE(holds(page, "@STYLE@"));
}

TEST_F(Inspect, RefusesBeforeAnyWork) {
  struct Case {
    Arguments arguments;
    int code;
    std::string said;
  };
  const std::vector<Case> cases{
      {{"--policy", "keydiff", "--policy", "keydiff"}, 2, "twice"},
      {{"--policy", "keydif"}, 2, "keydif"},
      {{"--json", "-", "--html", "-"}, 2, "standard output"},
      {{"--html", file("no/such/folder.html")}, 1, "folder.html"},
      {{"--system", "x"}, 2, "--no-chat"},
      {{"--decode-block", "4"}, 2, "--decode-block"},
      {{"--budget", "2", "--policy", "keydiff:keep_first=8"}, 2, "8"},
  };
  for (const Case& given : cases) {
    Arguments arguments{"-p", "x"};
    arguments.insert(arguments.end(), given.arguments.begin(), given.arguments.end());
    const Outcome outcome = inspect(arguments);
    EXPECT_EQ(outcome.code, given.code) << given.said << outcome.err;
    EXPECT_TRUE(holds(outcome.err, given.said)) << outcome.err;
    EXPECT_EQ(outcome.out, "");
  }
}

}  // namespace
}  // namespace keynest::test
