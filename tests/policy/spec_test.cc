// Parsing, printing and messages of policy specs.
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "keynest/policy.h"
#include "policy/options.h"
#include "policy/registry.h"
#include "policy/suggest.h"

namespace keynest {
namespace {

std::string error_of(std::string_view text) {
  const auto spec = PolicySpec::parse(text);
  return spec.ok() ? "parsed: " + spec->print() : spec.error().message;
}

struct PrintCase {
  const char *given, *printed;
};

TEST(Spec, PrintsTheShortestSpecThatParsesToTheSame) {
  const PrintCase cases[] = {
      {"keydiff", "keydiff"},
      {"keydiff:anchor=mean,metric=cosine", "keydiff"},
      {"keydiff:metric=dot,anchor=median", "keydiff:anchor=median,metric=dot"},
      {"keydiff:keep_last=20%", "keydiff:keep_last=20%"},
      {"keydiff:keep_last=012", "keydiff:keep_last=12"},
      {"keydiff:keep_first=12.30%", "keydiff:keep_first=12.3%"},
      {"keydiff:keep_first=0%", "keydiff"},
      {"keydiff:keep_first=100%", "keydiff:keep_first=100%"},
      {"keydiff:keep_first=0.001%", "keydiff:keep_first=0.001%"},
      {"keydiff:heads=adaptive,safeguard=20%", "keydiff:heads=adaptive"},
      {"keydiff:heads=adaptive,safeguard=0.50", "keydiff:heads=adaptive,safeguard=0.5"},
      {"knorm:layers=pyramid,beta=7.50", "knorm:layers=pyramid,beta=7.5"},
      {"sink:first=04,schedule=prefill,decode=append", "sink:schedule=prefill,decode=append"},
      {"random:seed=7,heads=uniform", "random:seed=7"},
      {"full", "full"},
      {"nestedkv", "nestedkv"},
      {"nestedkv:heads=adaptive", "nestedkv"},
      {"nestedkv:heads=uniform", "nestedkv:heads=uniform"},
      {"nestedkv:scales=current+stable", "nestedkv:scales=stable+current"},
      {"nestedkv:scales=current+episodic+stable,blend=adaptive", "nestedkv"},
      {"nestedkv:episode=200,surprise=off,blend=prior", "nestedkv:blend=prior,surprise=off,episode=200"},
      {"nestedkv-paper", "nestedkv:schedule=prefill,decode=append"},
      {"nestedkv-paper:decode=evict,surprise=off", "nestedkv:surprise=off,schedule=prefill"},
      {"tova:group=layer", "tova:group=layer"},
      {"tova:heads=adaptive,group=head", "tova:group=head,heads=adaptive"},
      {"snapkv:window=64,kernel=5,pool=mean", "snapkv"},
      {"snapkv:pool=max,window=32", "snapkv:window=32,pool=max"},
      {"h2o:recent=50%", "h2o:recent=50%"},
      {"h2o:recent=0", "h2o"},
  };
  for (const PrintCase& c : cases) {
    const auto spec = PolicySpec::parse(c.given);
    ASSERT_TRUE(spec.ok()) << c.given << ": " << spec.error().message;
    EXPECT_EQ(spec->print(), c.printed) << c.given;
    const auto again = PolicySpec::parse(spec->print());
    ASSERT_TRUE(again.ok()) << spec->print();
    EXPECT_EQ(*again, *spec) << c.given;
  }
}

TEST(Spec, ErrorsSayWhatIsAllowed) {
  struct ErrorCase {
    const char* given;
    std::vector<const char*> said;
  };
  const ErrorCase cases[] = {
      {"", {"unknown policy \"\"", "keydiff"}},
      {"keydif", {"unknown policy \"keydif\"", "did you mean \"keydiff\"", "sink", "random"}},
      {"kyediff", {"did you mean \"keydiff\""}},
      {"lru", {"unknown policy \"lru\"", "allowed: full"}},
      {"keydiff:anchr=mean", {"no option \"anchr\"", "did you mean \"anchor\"", "keep_last"}},
      {"keydiff:anchor=mode", {"anchor=\"mode\"", "mean|mean_raw|median|median_raw|pairwise"}},
      {"keydiff:anchor", {"\"anchor\" has no value"}},
      {"keydiff:", {"\"\" has no value"}},
      {"keydiff:anchor=mean,", {"\"\" has no value"}},
      {"keydiff:anchor=mean,anchor=mean", {"given twice"}},
      {"keydiff:anchor=pairwise,metric=dot", {"anchor=pairwise", "allowed: cosine"}},
      {"keydiff:keep_last=0.2", {"keep_last=\"0.2\"", "share of the budget like 20%"}},
      {"keydiff:keep_last=101%", {"keep_last"}},
      {"keydiff:keep_last=-1", {"keep_last"}},
      {"keydiff:keep_last=1e3", {"keep_last"}},
      {"keydiff:keep_last=99999999999", {"keep_last"}},
      {"keydiff:keep_last=1e1%", {"keep_last"}},
      {"keydiff:heads=adaptiv", {"did you mean \"adaptive\"", "uniform|adaptive"}},
      {"keydiff:safeguard=0.3", {"heads=adaptive"}},
      {"keydiff:heads=adaptive,safeguard=1.1", {"a share from 0 to 1"}},
      {"keydiff:beta=3", {"layers=pyramid"}},
      {"keydiff:layers=pyramid,beta=0.5", {"a number from 1"}},
      {"keydiff:layers=pyramid,beta=nan", {"beta=\"nan\""}},
      {"nestedkv:scales=stable+stable", {"one or more of stable, episodic, current, joined by +"}},
      {"nestedkv:scales=stabel", {"did you mean \"stable\""}},
      {"nestedkv:scales=", {"scales=\"\""}},
      {"nestedkv:episode=0", {"a whole number from 1 up"}},
      {"nestedkv-papr", {"did you mean \"nestedkv-paper\""}},
      {"snapkv:window=0", {"a whole number from 1 to 65536"}},
      {"snapkv:kernel=4", {"an odd whole number"}},
      {"tova:group=layer,heads=adaptive", {"group=layer", "group=head"}},
      {"sink:first=x", {"a whole number from 0 up"}},
      {"sink:seed=1", {"no option \"seed\""}},
      {"full\n", {"\"full\\x0a\""}},
  };
  for (const ErrorCase& c : cases) {
    const std::string message = error_of(c.given);
    for (const char* part : c.said) {
      EXPECT_NE(message.find(part), std::string::npos)
          << c.given << " gave: " << message << "\n  without: " << part;
    }
  }
}

TEST(Spec, AmountsCountEntriesAsTheReferenceDoes) {
  EXPECT_EQ(PolicySpec::parse("keydiff:keep_last=20%")->keep_last.entries(63), 12);
  EXPECT_EQ(PolicySpec::parse("keydiff:keep_last=50%")->keep_last.entries(5), 2);
  EXPECT_EQ(PolicySpec::parse("keydiff:keep_last=7")->keep_last.entries(5), 7);
  EXPECT_EQ(PolicySpec::parse("keydiff:keep_last=29%")->keep_last.value,
            0.29);  // 29 / 100 would be rounded twice
}

std::string random_value(const OptionRow& row, std::mt19937& rng) {
  const auto pick = [&](auto n) { return std::uniform_int_distribution<std::size_t>(0, n - 1)(rng); };
  switch (row.kind) {
    case OptionKind::kChoice:
      return std::string(row.allowed[pick(row.allowed.size())]);
    case OptionKind::kSubset: {
      std::vector<std::string_view> words;
      for (std::string_view word : row.allowed) {
        if (rng() % 2) words.insert(words.begin(), word);
      }
      return words.empty() ? std::string(row.allowed[0]) : join(words, "+");
    }
    case OptionKind::kInteger:
      return std::to_string(static_cast<int>(row.least) * 2 +
                            (row.odd ? 2 * static_cast<int>(pick(50u)) + 1 - 2 * static_cast<int>(row.least)
                                     : static_cast<int>(pick(99u))));
    case OptionKind::kNumber:
      return std::to_string(row.least + static_cast<double>(rng()) / 1e6);
    case OptionKind::kShare:
      return std::to_string(static_cast<double>(rng()) / 4294967296.0);
    case OptionKind::kAmount:
      return rng() % 2 ? std::to_string(rng() % 5000)
                       : std::to_string(static_cast<double>(rng()) / 4294967296.0 * 100) + "%";
  }
  return {};
}

std::string random_spec(std::mt19937& rng) {
  const MethodRow& method = methods()[rng() % methods().size()];
  std::vector<std::string> parts;
  for (const OptionRow& row : method.options) {
    if (rng() % 2) parts.push_back(std::string(row.name) + "=" + random_value(row, rng));
  }
  for (const CommonOption& option : common_options()) {
    if (rng() % 3 == 0) parts.push_back(std::string(option.row.name) + "=" + random_value(option.row, rng));
  }
  std::shuffle(parts.begin(), parts.end(), rng);
  std::string text(method.name);
  for (std::size_t i = 0; i < parts.size(); ++i) text += (i == 0 ? ":" : ",") + parts[i];
  return text;
}

TEST(Spec, RandomSpecsSurviveParsePrintParse) {
  std::mt19937 rng(1);
  int parsed = 0;
  for (int i = 0; i < 4000; ++i) {
    const std::string text = random_spec(rng);
    const auto spec = PolicySpec::parse(text);
    if (!spec.ok()) continue;  // options that exclude each other
    ++parsed;
    const auto again = PolicySpec::parse(spec->print());
    ASSERT_TRUE(again.ok()) << text << " printed as " << spec->print() << ": " << again.error().message;
    ASSERT_EQ(*again, *spec) << text << " printed as " << spec->print();
    ASSERT_EQ(again->print(), spec->print());
  }
  EXPECT_GT(parsed, 1000);
}

TEST(Spec, DamagedSpecsEitherParseToAFixedPointOrSayWhy) {
  std::mt19937 rng(2);
  for (int i = 0; i < 20000; ++i) {
    std::string text = random_spec(rng);
    for (std::uint32_t n = rng() % 4; n > 0 && !text.empty(); --n) {
      const std::size_t at = rng() % text.size();
      if (rng() % 3 == 0) {
        text.erase(at, 1 + rng() % 3);
      } else {
        text.insert(at, 1, rng() % 2 ? static_cast<char>(rng()) : "=,:%.+0e"[rng() % 8]);
      }
    }
    const auto spec = PolicySpec::parse(text);
    if (!spec.ok()) {
      EXPECT_FALSE(spec.error().message.empty());
      EXPECT_EQ(spec.error().code, ErrorCode::kInvalidArgument);
      continue;
    }
    const auto again = PolicySpec::parse(spec->print());
    ASSERT_TRUE(again.ok()) << text << " printed as " << spec->print();
    ASSERT_EQ(*again, *spec) << text;
  }
}

TEST(Spec, HelpNamesEveryMethodAndOption) {
  const std::string help = policy_help();
  for (const MethodRow& method : methods()) {
    EXPECT_NE(help.find(method.name), std::string::npos);
    for (const OptionRow& row : method.options) EXPECT_NE(help.find(row.name), std::string::npos) << row.name;
  }
  for (const CommonOption& option : common_options())
    EXPECT_NE(help.find(option.row.name), std::string::npos);
}

TEST(Spec, EveryTableRowIsConsistent) {
  for (const MethodRow& method : methods()) {
    for (const OptionRow& row : method.options) {
      EXPECT_FALSE(row.help.empty()) << row.name;
      if (row.fallback.empty()) continue;
      const auto canonical = canonical_value(row, row.fallback);
      ASSERT_TRUE(canonical.ok()) << row.name;
      EXPECT_EQ(*canonical, row.fallback) << row.name;
    }
  }
}

}  // namespace
}  // namespace keynest
