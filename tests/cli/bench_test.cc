// keynest bench: its command line, its results on disk, peers that behave and peers that do not. Nothing here
// looks at how long anything took.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <set>

#include "cli/program.h"
#include "cli/tiny.h"

namespace keynest::test {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using Arguments = std::vector<std::string>;

Outcome bench(Arguments more) {
  more.insert(more.begin(), "bench");
  return run_program(std::move(more));
}

TEST(BenchUsage, HelpTeaches) {
  const Outcome outcome = bench({"--help"});
  EXPECT_EQ(outcome.code, 0);
  for (const char* part : {"kernels", "prefill", "decode", "policies", "memory", "compare", "show", "--quick",
                           "--json", "Examples:", "median"}) {
    EXPECT_TRUE(holds(outcome.out, part)) << part;
  }
}

TEST(BenchUsage, EveryCommandHasHelpWithExamples) {
  for (const std::string command :
       {"kernels", "prefill", "decode", "policies", "memory", "compare", "show"}) {
    const Outcome outcome = bench({command, "--help"});
    EXPECT_EQ(outcome.code, 0) << command;
    EXPECT_TRUE(holds(outcome.out, "keynest bench " + command)) << outcome.out;
    EXPECT_TRUE(holds(outcome.out, "Examples:")) << command;
    EXPECT_FALSE(holds(outcome.out, "\n\n\n")) << outcome.out;
  }
}

struct Mistake {
  const char* name;
  Arguments arguments;
  Arguments said;
};
void PrintTo(const Mistake& mistake, std::ostream* out) { *out << mistake.name; }

class BenchMistakes : public testing::TestWithParam<Mistake> {};

TEST_P(BenchMistakes, AreUsageErrorsThatSayWhatToDo) {
  const Outcome outcome = bench(GetParam().arguments);
  EXPECT_EQ(outcome.code, 2) << outcome.err;
  EXPECT_EQ(outcome.out, "");
  for (const std::string& part : GetParam().said) EXPECT_TRUE(holds(outcome.err, part)) << outcome.err;
}

INSTANTIATE_TEST_SUITE_P(
    Bench, BenchMistakes,
    testing::Values(
        Mistake{"NoCommand", {}, {"kernels", "compare", "keynest bench --help"}},
        Mistake{"UnknownCommand", {"speed"}, {"speed", "prefill"}},
        Mistake{"NoModel", {"prefill"}, {"--model", "keynest bench prefill --help"}},
        Mistake{"UnknownFlag", {"decode", "-m", "x", "--deep", "1"}, {"--deep"}},
        Mistake{"UnknownKernel", {"kernels", "--only", "matmul"}, {"matmul", "prefill", "selection"}},
        Mistake{"NoRounds", {"kernels", "--rounds", "0"}, {"--rounds", "1 to 1000"}},
        Mistake{"DepthIsNoNumber", {"prefill", "-m", "x", "--depths", "0,deep"}, {"--depths", "deep"}},
        Mistake{
            "DepthsTooClose", {"prefill", "-m", "x", "--depths", "0,100"}, {"--depths", "0 and 100", "513"}},
        Mistake{"EmptyPrompt", {"policies", "-m", "x", "--lengths", "0"}, {"--lengths 0", "1 to"}},
        Mistake{"UnknownPolicy", {"policies", "-m", "x", "--policy", "lru"}, {"lru", "keydiff"}},
        Mistake{"PolicyTwice",
                {"decode", "-m", "x", "--policy", "sink", "--policy", "sink"},
                {"sink is given twice"}},
        Mistake{"NoTimeAtAll", {"compare", "-m", "x", "--limit", "0"}, {"--limit", "seconds"}},
        Mistake{"NoPeerFolder", {"compare", "-m", "x", "--peer-folder", "/no/such"}, {"/no/such"}},
        Mistake{"NothingToShow", {"show"}, {"FILE"}}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(BenchUsage, WhatCannotBeReadIsNamed) {
  const Outcome model = bench({"prefill", "-m", "/no/such.gguf"});
  EXPECT_EQ(model.code, 1);
  EXPECT_TRUE(holds(model.err, "/no/such.gguf")) << model.err;
  const Outcome json = bench({"kernels", "--json", "/no/such/file.json"});
  EXPECT_EQ(json.code, 1);
  EXPECT_TRUE(holds(json.err, "/no/such/file.json")) << json.err;
  const Outcome results = bench({"show", "/no/such.json"});
  EXPECT_EQ(results.code, 1);
  EXPECT_TRUE(holds(results.err, "/no/such.json")) << results.err;
}

class Bench : public Tiny {
 protected:
  static Arguments on_model(const std::string& command, Arguments more) {
    Arguments all{"bench", command, "-m", file("tiny.gguf"), "-t", "1", "--text", file("text.txt")};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  void SetUp() override {
    std::string text;
    for (int i = 0; i < 200; ++i) text += "the quick brown fox number " + std::to_string(i) + " ";
    write("text.txt", text);
  }
  static Json results(const std::string& name) { return Json::parse(read(name)); }
  /// Runs of a part.
  static std::vector<Json> runs(const Json& results, const std::string& part) {
    std::vector<Json> some;
    for (const Json& run : results["runs"]) {
      if (run["part"] == part) some.push_back(run);
    }
    return some;
  }
};

TEST_F(Bench, KernelsQuick) {
  const Outcome outcome =
      bench({"kernels", "--quick", "--only", "decode,selection", "--json", file("k.json")});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_TRUE(holds(outcome.out, "Kernel `decode`")) << outcome.out;
  EXPECT_TRUE(holds(outcome.out, "Kernel `selection`")) << outcome.out;
  EXPECT_FALSE(holds(outcome.out, "Kernel `prefill`")) << outcome.out;
  EXPECT_TRUE(holds(outcome.err, "decode")) << outcome.err;
  const Json all = results("k.json");
  std::vector<std::string> names;
  for (const Json& run : runs(all, "kernels")) names.push_back(run["name"]);
  EXPECT_EQ(names, (Arguments{"keynest", "ggml", "fma", "copy", "read", "keynest", "copy"}))
      << "decode and selection, beside what the machine can do";
  ASSERT_FALSE(runs(all, "peak").empty());
  for (const Json& peak : runs(all, "peak")) {
    EXPECT_GT(peak["flops"], 0);
    EXPECT_GT(peak["copy_bytes"], 0);
  }
  for (const char* field : {"cpu", "cores", "memory_bytes", "load", "date", "keynest", "simd_target"}) {
    EXPECT_TRUE(all["machine"].contains(field)) << field;
  }
}

TEST_F(Bench, KernelsOfOneShape) {
  const auto with = [](const Arguments& more) {
    Arguments all{"kernels", "--quick", "-q", "--json", file("k.json"), "--only", "decode,scores"};
    all.insert(all.end(), more.begin(), more.end());
    return bench(all);
  };
  const auto shapes = [] {
    std::set<std::string> found;
    for (const Json& run : runs(results("k.json"), "kernels")) found.insert(run["shape"]);
    return found;
  };
  ASSERT_EQ(with({"--shape", "d = 128", "--shape", "n = 2", "--shape", "cached"}).code, 0);
  EXPECT_EQ(shapes(), (std::set<std::string>{"d = 128, 1 query heads, n = 2048, f16, cached",
                                             "keydiff, 8 KV heads, d = 128, n = 2176, f16, cached"}));
  const Outcome two = with({"--shape", "2 threads", "--shape", "n = 2", "--threads", "2"});
  ASSERT_EQ(two.code, 0) << two.err;
  EXPECT_EQ(shapes(),
            (std::set<std::string>{"d = 64, 1 query heads, n = 2048, f16, from memory, 2 threads",
                                   "keydiff, 8 KV heads, d = 128, n = 2176, f16, cached, 2 threads"}));
  const Outcome none = with({"--shape", "2 threads", "--threads", "1"});
  EXPECT_EQ(none.code, 2);
  EXPECT_TRUE(holds(none.err, "--shape")) << none.err;
}

TEST_F(Bench, ATableThatCannotBeWrittenIsAnError) {
  Program program(
      Program::Options{{"bench", "kernels", "--quick", "-q", "--only", "selection"}, false, "/dev/full"});
  EXPECT_EQ(program.finish(), 1);
  EXPECT_TRUE(holds(program.err(), "standard output")) << program.err();
}

TEST_F(Bench, PrefillAndDecodeOfEveryPolicyAtEveryDepth) {
  for (const std::string command : {"prefill", "decode"}) {
    const Outcome outcome = run_program(
        on_model(command, {"--depths", "0,40", "--tokens", "16", "--rounds", "2", "--block", "16", "--budget",
                           "24", "--policy", "full", "--policy", "keydiff", "--json", file("d.json"), "-q"}));
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(outcome.err, "");
    const auto all = runs(results("d.json"), command);
    ASSERT_EQ(all.size(), 8u);
    EXPECT_EQ(all[0]["name"], "full");
    EXPECT_EQ(all[0]["budget"], 0);
    EXPECT_EQ(all[2]["name"], "keydiff");
    EXPECT_EQ(all[2]["budget"], 24);
    EXPECT_EQ(all[4]["name"], "keydiff") << "the second round begins with the other one";
    for (const Json& run : all) EXPECT_GT(run["tokens_per_second"], 0);
    EXPECT_TRUE(holds(outcome.out, "| policy | after 0 | after 40 |")) << outcome.out;
  }
}

TEST_F(Bench, DecodeThatEvictsAfterEveryToken) {
  const auto entries = [](const char* decode_block) {
    const Outcome outcome = run_program(on_model(
        "decode", {"--depths", "30", "--tokens", "9", "--rounds", "1", "--block", "16", "--budget", "24",
                   "--policy", "keydiff", "--decode-block", decode_block, "--json", file("d.json")}));
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return runs(results("d.json"), "decode")[0];
  };
  EXPECT_EQ(entries("0")["evictions"], 0);
  EXPECT_EQ(entries("1")["evictions"], 9 * model_->info().layers);
  EXPECT_GT(entries("1")["evict_seconds"], 0);
}

TEST_F(Bench, PoliciesOfEveryBlockAndLength) {
  const Outcome outcome = run_program(
      on_model("policies", {"--lengths", "64,32", "--blocks", "16,32", "--rounds", "1", "--budget", "24",
                            "--policy", "sink", "--policy", "keydiff", "--json", file("p.json")}));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const auto all = runs(results("p.json"), "policies");
  ASSERT_EQ(all.size(), 8u);
  EXPECT_EQ(all[0]["length"], 32) << "shortest first";
  EXPECT_EQ(all[7]["length"], 64);
  EXPECT_EQ(all[0]["block"], 16);
  EXPECT_TRUE(holds(outcome.out, "B = 16:")) << outcome.out;
  EXPECT_TRUE(holds(outcome.out, "B = 32:")) << outcome.out;
  EXPECT_EQ(results("p.json")["model"], "tiny.gguf");
  EXPECT_EQ(results("p.json")["threads"], 1);
}

TEST_F(Bench, MemoryOfProcessesOfTheirOwn) {
  const Outcome outcome = run_program(on_model("memory", {"--lengths", "20,60", "--rounds", "1", "--budget",
                                                          "24", "--block", "16", "--json", file("m.json")}));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const auto all = runs(results("m.json"), "memory");
  ASSERT_EQ(all.size(), 2u);
  EXPECT_NEAR(all[0]["prompt_tokens"].get<double>(), 20, 2);
  EXPECT_NEAR(all[1]["prompt_tokens"].get<double>(), 60, 2);
  EXPECT_GT(all[0]["peak_resident_bytes"], 1 << 20);
  EXPECT_GT(all[0]["cache_bytes"], 0);
  EXPECT_TRUE(holds(outcome.out, "change")) << outcome.out;
}

/// A folder of peers, each a shell script.
class BenchCompare : public Bench {
 protected:
  static void peer(const std::string& name, const std::string& script) {
    fs::create_directories(file("peers"));
    write("peers/" + name, "#!/bin/sh\n" + script + "\n");
    fs::permissions(file("peers/" + name), fs::perms::owner_all);
  }
  static Arguments compare(const std::string& peers, Arguments more = {}) {
    Arguments all = on_model("compare", {"--lengths", "20,40", "--rounds", "1", "--budget", "24", "--block",
                                         "16", "--answer", "4", "--policy", "keydiff", "--peer-folder",
                                         file("peers"), "--peers", peers, "--json", file("c.json")});
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  static constexpr const char* kGood =
      R"(echo warming up; echo '{"engine":"e","version":"v 1","prompt_tokens":20,"ttft_seconds":100,)"
      R"("decode_tokens_per_second":0.5,"peak_resident_bytes":1048576,"cache_bytes":null,"note":"a note"}')";
  static std::vector<Json> of(const std::string& name) {
    std::vector<Json> some;
    for (const Json& run : runs(results("c.json"), "compare")) {
      if (run["name"] == name) some.push_back(run);
    }
    return some;
  }
};

TEST_F(BenchCompare, PeersThatWork) {
  fs::remove_all(file("peers"));
  peer("llama.cpp", std::string("echo \"$@\" >> ") + file("arguments") + "; " + kGood);
  const Outcome outcome = run_program(compare("llama.cpp"));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  ASSERT_EQ(of("llama.cpp").size(), 2u);
  ASSERT_EQ(of("keynest keydiff").size(), 2u);
  EXPECT_EQ(of("llama.cpp")[0]["ttft_seconds"], 100);
  EXPECT_GT(of("keynest keydiff")[0]["ttft_seconds"], 0);
  EXPECT_GT(of("keynest keydiff")[0]["decode_tokens_per_second"], 0);
  EXPECT_TRUE(holds(outcome.out, "| 20 | llama.cpp | 100 | 1 | 0.500 | 1 | 1.00 |")) << outcome.out;
  EXPECT_TRUE(holds(outcome.out, "- llama.cpp: v 1; a note")) << outcome.out;
  const std::string arguments = read("arguments");
  // keynest puts the model's first special token before a text, a peer does not: it has one less to take.
  for (const char* part : {"--model", "tiny.gguf", "--tokens 19", "--tokens 39", "--answer 4", "--threads 1",
                           "--budget 24", "prompt-20.txt"}) {
    EXPECT_TRUE(holds(arguments, part)) << arguments;
  }
}

TEST_F(BenchCompare, PeersThatAreNotInstalledAreLeftOutInOneLine) {
  fs::remove_all(file("peers"));
  peer("kvpress", "echo 'kvpress: run scripts/get-peers' >&2; exit 3");
  const Outcome outcome = run_program(compare("kvpress,openvino"));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_TRUE(holds(outcome.err, "kvpress is left out: kvpress: run scripts/get-peers")) << outcome.err;
  EXPECT_TRUE(holds(outcome.err, "openvino is left out: cannot start")) << outcome.err;
  EXPECT_EQ(outcome.err.find("is left out"), outcome.err.find("kvpress is left out") + 8) << "once only";
  ASSERT_EQ(of("kvpress").size(), 1u);
  EXPECT_EQ(of("kvpress")[0]["missing"], "kvpress: run scripts/get-peers");
  EXPECT_EQ(of("keynest keydiff").size(), 2u);
}

TEST_F(BenchCompare, QuietlyTheTableSaysWhatIsMissing) {
  fs::remove_all(file("peers"));
  peer("kvpress", "echo 'kvpress: run scripts/get-peers' >&2; exit 3");
  const Outcome outcome = run_program(compare("kvpress", {"-q"}));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  EXPECT_TRUE(holds(outcome.out, "| 20 | kvpress | not installed: kvpress: run scripts/get-peers |"))
      << outcome.out;
}

TEST_F(BenchCompare, PeersThatFailLaterAreInTheTableTwice) {
  fs::remove_all(file("peers"));
  peer("llama.cpp",
       "test -e " + file("ran") + " && { echo 'no more' >&2; exit 9; }; touch " + file("ran") + "; " + kGood);
  Arguments arguments = compare("llama.cpp");
  *(std::find(arguments.begin(), arguments.end(), "--rounds") + 1) = "2";
  const Outcome outcome = run_program(arguments);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_TRUE(holds(outcome.out, "| 20 | llama.cpp | 100 |")) << outcome.out;
  EXPECT_TRUE(holds(outcome.out, "| 20 | llama.cpp | round 2: ended with 9: no more |")) << outcome.out;
}

TEST_F(BenchCompare, TheModelIsNotInMemoryWhilePeersRun) {
  fs::remove_all(file("peers"));
  peer("llama.cpp", "grep -c tiny.gguf /proc/$PPID/maps > " + file("maps") + "; " + kGood);
  const Outcome outcome = run_program(compare("llama.cpp"));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(read("maps"), "0\n");
}

TEST_F(BenchCompare, AModelThatCannotBeReadIsNamed) {
  for (const std::string command : {"compare", "memory"}) {
    const Outcome outcome = bench({command, "-m", "/no/such.gguf"});
    EXPECT_EQ(outcome.code, 1);
    EXPECT_TRUE(holds(outcome.err, "/no/such.gguf")) << outcome.err;
    EXPECT_EQ(outcome.out, "");
  }
}

TEST_F(BenchCompare, PeersThatFailAreRecordedAndNotTriedAtLongerPrompts) {
  fs::remove_all(file("peers"));
  peer("crash", "echo 'out of memory' >&2; exit 9");
  peer("garbage", "echo hello; echo '[1]'");
  peer("half", R"(echo '{"engine":"e","prompt_tokens":20,"ttft_seconds":"soon"}')");
  peer("hang", "sleep 1000");
  const Outcome outcome = run_program(compare("crash,garbage,half,hang", {"--limit", "1"}));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  ASSERT_EQ(of("crash").size(), 1u);
  EXPECT_EQ(of("crash")[0]["problem"], "ended with 9: out of memory");
  ASSERT_EQ(of("garbage").size(), 1u);
  EXPECT_EQ(of("garbage")[0]["problem"], "printed no line of JSON");
  ASSERT_EQ(of("half").size(), 1u);
  EXPECT_EQ(of("half")[0]["problem"], "its result has no ttft_seconds");
  ASSERT_EQ(of("hang").size(), 1u);
  EXPECT_TRUE(holds(of("hang")[0]["problem"], "did not end within 1 s")) << of("hang")[0];
  EXPECT_TRUE(holds(outcome.out, "| 20 | hang | did not end within 1 s")) << outcome.out;
}

TEST_F(BenchCompare, CtrlCKeepsWhatThereIs) {
  fs::remove_all(file("peers"));
  peer("hang", "echo $$ > " + file("pid") + "; sleep 1000");
  Program program(compare("hang"));
  ASSERT_TRUE(program.wait_error("hang, 20 tokens"));
  while (!holds(read("pid"), "\n")) ::usleep(1000);
  program.signal(SIGINT);
  EXPECT_EQ(program.finish(), 130);
  EXPECT_EQ(of("keynest keydiff").size(), 1u);
  EXPECT_TRUE(holds(program.out(), "keynest keydiff")) << program.out();
  EXPECT_FALSE(fs::exists("/proc/" + read("pid").substr(0, read("pid").find('\n')))) << "the peer goes on";
}

TEST_F(BenchCompare, ShowPrintsTheSameTablesAndAPicture) {
  fs::remove_all(file("peers"));
  peer("llama.cpp", kGood);
  const Outcome measured = run_program(compare("llama.cpp", {"-q"}));
  ASSERT_EQ(measured.code, 0) << measured.err;
  const Outcome shown = bench({"show", file("c.json"), "--plot", file("c.svg")});
  EXPECT_EQ(shown.code, 0) << shown.err;
  EXPECT_EQ(shown.out, measured.out);
  EXPECT_TRUE(holds(read("c.svg"), "<svg")) << read("c.svg");
  EXPECT_TRUE(holds(read("c.svg"), "keynest keydiff"));
}

TEST_F(Bench, ShowRefusesWhatIsNoResult) {
  write("odd.json", "{\"runs\": 3}");
  const Outcome outcome = bench({"show", file("odd.json")});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_TRUE(holds(outcome.err, "odd.json")) << outcome.err;
}

TEST_F(Bench, QuickOnARealModel) {
  const char* folder = std::getenv("KEYNEST_MODELS_DIR");
  const std::string model =
      std::string(folder != nullptr ? folder : "models") + "/SmolLM2-135M-Instruct.Q4_1.gguf";
  if (!fs::exists(model)) GTEST_SKIP() << "scripts/get-model smollm2 fetches the model";
  for (const std::string command : {"prefill", "decode", "policies", "memory"}) {
    const Outcome outcome =
        bench({command, "-m", model, "-t", "1", "--quick", "-q", "--json", file("q.json")});
    EXPECT_EQ(outcome.code, 0) << command << outcome.err;
    EXPECT_FALSE(runs(results("q.json"), command).empty()) << command;
    EXPECT_TRUE(holds(outcome.out, "SmolLM2-135M-Instruct.Q4_1.gguf")) << outcome.out;
  }
}

}  // namespace
}  // namespace keynest::test
