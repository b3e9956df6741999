// What a session accepts and refuses, and that a refusal changes nothing.
#include <gguf.h>

#include <cmath>
#include <cstdio>
#include <limits>
#include <set>

#include "engine/law_test.h"
#include "kernels/page.h"
#include "keynest/keynest.h"

namespace keynest::test {
namespace {

std::string error_of(const Settings& settings) {
  auto session = Session::create(tiny("llama"), options_of(settings));
  EXPECT_FALSE(session.ok());
  return session.ok() ? "" : session.error().message;
}

TEST(BudgetText, EveryFormIsUnderstood) {
  EXPECT_EQ(Budget::parse("full")->unit, Budget::Unit::kUnbounded);
  EXPECT_EQ(Budget::parse("2048")->value, 2048);
  EXPECT_EQ(Budget::parse("25%")->unit, Budget::Unit::kShare);
  EXPECT_DOUBLE_EQ(Budget::parse("12.5%")->value, 0.125);
  EXPECT_EQ(Budget::parse("64MiB")->value, 64.0 * 1024 * 1024);
  EXPECT_EQ(Budget::parse("1.5GB")->value, 1.5e9);
  for (const char* text : {"full", "2048", "25%", "100B"}) EXPECT_EQ(Budget::parse(text)->print(), text);
}

TEST(BudgetText, NonsenseIsRefusedWithTheForms) {
  for (const char* text :
       {"", "-5", "12.5", "abc", "5%%", "MiB", "1e5", "nan", "inf", "0x10", "5 %", "10TB"}) {
    const auto budget = Budget::parse(text);
    ASSERT_FALSE(budget.ok()) << text;
    EXPECT_NE(budget.error().message.find("64MiB"), std::string::npos) << "the message lists what is allowed";
  }
}

TEST(SessionOptions, BadOnesAreRefusedByName) {
  EXPECT_NE(error_of({.block = 0}).find("block 0"), std::string::npos);
  EXPECT_NE(error_of({.block = 513}).find("512"), std::string::npos) << "names the trained context";
  EXPECT_NE(error_of({.block = 8, .decode_block = 9}).find("decode block 9"), std::string::npos);
  EXPECT_NE(error_of({.threads = -1}).find("threads"), std::string::npos);
  EXPECT_NE(error_of({.policy = "sink:first=8", .budget = 4}).find("4"), std::string::npos);
  EXPECT_NE(error_of({.budget = 1'000'000, .cache_limit = 1'000'000}).find("1000000 are available"),
            std::string::npos);
  SessionOptions zero = options_of({});
  zero.budget = {Budget::Unit::kEntries, 0};
  EXPECT_FALSE(Session::create(tiny("llama"), zero).ok());
}

TEST(SessionBudget, BytesAreNeverExceeded) {
  for (const char* policy : {"keydiff", "keydiff:heads=adaptive"}) {
    SessionOptions options = options_of({.policy = policy, .block = 32});
    options.budget = *Budget::parse("200KiB");
    auto session = Session::create(tiny("llama"), options);
    ASSERT_TRUE(session.ok()) << session.error().message;
    ASSERT_TRUE((*session)->prefill(random_tokens(*tiny("llama"), 1500, 1)).ok());
    const Stats stats = (*session)->stats();
    EXPECT_GE(stats.budget, 64) << "the bytes are used";
    EXPECT_LE(stats.cache.peak_bytes, std::size_t{200 * 1024});
    EXPECT_GE(stats.cache.peak_bytes, std::size_t{100 * 1024});
  }
}

TEST(SessionBudget, AShareIsOfTheFirstPrompt) {
  SessionOptions options = options_of({.block = 16});
  options.budget = *Budget::parse("25%");
  auto session = Session::create(tiny("llama"), options);
  ASSERT_TRUE(session.ok());
  ASSERT_TRUE((*session)->prefill(random_tokens(*tiny("llama"), 400, 1)).ok());
  EXPECT_EQ((*session)->stats().budget, 100);
  EXPECT_EQ((*session)->kept(0, 0).size(), 100u);
}

TEST(SessionBudget, APromptTakenBackWholeSettlesNothing) {
  SessionOptions options = options_of({.block = 16});
  options.budget = *Budget::parse("100%");
  auto session = Session::create(tiny("llama"), options);
  ASSERT_TRUE(session.ok());
  ASSERT_TRUE((*session)->prefill(random_tokens(*tiny("llama"), 40, 1)).ok());
  EXPECT_EQ((*session)->stats().budget, 40);
  ASSERT_TRUE((*session)->rollback(Position{0}).ok());
  ASSERT_TRUE((*session)->prefill(random_tokens(*tiny("llama"), 90, 2)).ok());
  EXPECT_EQ((*session)->stats().budget, 90);
  EXPECT_EQ((*session)->kept(0, 0).size(), 90u);
}

TEST(SessionBudget, ARefusedPromptSettlesNothing) {
  SessionOptions options = options_of({.policy = "keydiff:schedule=prefill", .block = 16});
  options.budget = *Budget::parse("50%");
  options.cache_limit = 2 * 2 * PageLayout::make(KvType::kF16, 16, 0).bytes;  // a page for every head
  auto session = Session::create(tiny("llama"), options);
  ASSERT_TRUE(session.ok()) << session.error().message;
  const Status refused = (*session)->prefill(random_tokens(*tiny("llama"), 80, 1));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kOutOfMemory) << refused.error().message;
  EXPECT_EQ((*session)->stats().budget, 0);
  EXPECT_TRUE((*session)->protect({Position{0}, Position{45}}).ok())
      << "more than half of the refused prompt";
  EXPECT_FALSE((*session)->prefill(random_tokens(*tiny("llama"), 20, 1)).ok()) << "half of it is less";
  EXPECT_EQ((*session)->stats().budget, 0);
}

TEST(SessionBudget, APromptAfterARefusedOneSettlesItsOwn) {
  SessionOptions options = options_of({.policy = "keydiff:schedule=prefill", .block = 16});
  options.budget = *Budget::parse("50%");
  options.cache_limit = 2 * 2 * PageLayout::make(KvType::kF16, 16, 0).bytes;  // a page for every head
  auto session = Session::create(tiny("llama"), options);
  ASSERT_TRUE(session.ok()) << session.error().message;
  ASSERT_FALSE((*session)->prefill(random_tokens(*tiny("llama"), 80, 1)).ok());
  ASSERT_TRUE((*session)->prefill(random_tokens(*tiny("llama"), 20, 1)).ok());
  EXPECT_EQ((*session)->stats().budget, 10);
}

// NestedKV's episodes are a 32nd of the announced prompt: a long prompt that was stopped and taken back
// leaves no trace in them.
TEST(SessionRollback, AnnouncedLengthsAreTakenBackToo) {
  const auto model = tiny("llama");
  const Settings settings{.policy = "nestedkv", .budget = 64, .block = 16};
  auto detour = make_session(model, settings), straight = make_session(model, settings);
  ASSERT_TRUE(detour && straight);
  const std::vector<Token> start = random_tokens(*model, 16, 1), rest = random_tokens(*model, 400, 2);
  ASSERT_TRUE(detour->prefill(start).ok());
  const auto stop = [](std::int64_t, std::int64_t) { return false; };
  EXPECT_EQ(detour->prefill(random_tokens(*model, 8000, 3), stop).error().code, ErrorCode::kCancelled);
  ASSERT_TRUE(detour->rollback(Position{10}).ok());
  ASSERT_TRUE(straight->prefill(std::span(start).first(10)).ok());
  for (auto* session : {&detour, &straight}) ASSERT_TRUE((*session)->prefill(rest).ok());
  EXPECT_EQ(kept_everywhere(*detour, *model), kept_everywhere(*straight, *model));
  EXPECT_EQ(logits_of(*detour), logits_of(*straight));
}

// The same where what stays was announced with the long prompt: it is processed again as part of that.
TEST(SessionRollback, WhatStaysKeepsTheLengthItWasAnnouncedWith) {
  const auto model = tiny("llama");
  const Settings settings{.policy = "nestedkv", .budget = 64, .block = 16};
  auto detour = make_session(model, settings), straight = make_session(model, settings);
  ASSERT_TRUE(detour && straight);
  const std::vector<Token> prompt = random_tokens(*model, 8000, 1), rest = random_tokens(*model, 400, 2);
  const auto stop_at = [](std::int64_t last) {
    return [last](std::int64_t done, std::int64_t) { return done < last; };
  };
  EXPECT_EQ(detour->prefill(prompt, stop_at(48)).error().code, ErrorCode::kCancelled);
  ASSERT_TRUE(detour->rollback(Position{32}).ok());
  EXPECT_EQ(straight->prefill(prompt, stop_at(32)).error().code, ErrorCode::kCancelled);
  for (auto* session : {&detour, &straight}) ASSERT_TRUE((*session)->prefill(rest).ok());
  EXPECT_EQ(kept_everywhere(*detour, *model), kept_everywhere(*straight, *model));
  EXPECT_EQ(logits_of(*detour), logits_of(*straight));
}

// And a prompt that was refused has announced nothing to the tokens that come instead.
TEST(SessionPrompt, ARefusedOneAnnouncesNothing) {
  const auto model = tiny("llama");
  Settings settings{.policy = "nestedkv", .budget = 64, .block = 16};
  auto straight = make_session(model, settings);
  settings.cache_limit = 2 * 2 * 3 * straight->stats().cache.page_bytes;  // what N + B may take
  auto session = make_session(model, settings);
  ASSERT_TRUE(session && straight);
  auto one = session->fork(), other = session->fork();
  ASSERT_TRUE(one.ok() && other.ok());
  ASSERT_TRUE((*one)->prefill(random_tokens(*model, 70, 1)).ok());
  decode_all(**one, random_tokens(*model, 8, 1));  // beyond 64: two pages in every head
  ASSERT_TRUE((*other)->prefill(random_tokens(*model, 10, 1)).ok());
  EXPECT_EQ(session->prefill(random_tokens(*model, 8000, 2)).error().code, ErrorCode::kOutOfMemory);
  one->reset();
  other->reset();
  const std::vector<Token> tokens = random_tokens(*model, 400, 3);
  EXPECT_EQ(decode_all(*session, tokens), decode_all(*straight, tokens));
  EXPECT_EQ(kept_everywhere(*session, *model), kept_everywhere(*straight, *model));
}

TEST(SessionPrompt, EmptyAndForeignTokensAreRefused) {
  auto session = make_session(tiny("llama"), {});
  ASSERT_TRUE(session);
  EXPECT_EQ(session->prefill({}).error().code, ErrorCode::kInvalidArgument);
  const std::vector<Token> foreign{1, tiny("llama")->info().vocabulary};
  EXPECT_EQ(session->prefill(foreign).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(session->decode(-1).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(session->seen(), 0);
  EXPECT_TRUE(session->decode(1).ok());
}

TEST(SessionPrompt, StoppingAtABlockKeepsWhatWasDone) {
  const auto model = tiny("llama");
  const std::vector<Token> text = random_tokens(*model, 100, 1);
  const Settings settings{.policy = "keydiff", .budget = 40, .block = 16};
  auto stopped = make_session(model, settings);
  const Status status = stopped->prefill(text, [](std::int64_t done, std::int64_t) { return done < 48; });
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::kCancelled);
  EXPECT_EQ(stopped->seen(), 48);
  ASSERT_TRUE(stopped->prefill(std::span(text).subspan(48)).ok());
  auto whole = make_session(model, settings);
  ASSERT_TRUE(whole->prefill(text).ok());
  EXPECT_EQ(logits_of(*stopped), logits_of(*whole));
}

TEST(SessionSampling, SameSeedSameTokens) {
  const auto model = tiny("llama");
  const auto draw = [&](std::uint32_t seed) {
    auto session = make_session(model, {});
    EXPECT_TRUE(session->prefill(random_tokens(*model, 20, 1)).ok());
    std::vector<Token> tokens;
    for (int i = 0; i < 30; ++i) {
      tokens.push_back(
          session->sample({.temperature = 1.5f, .top_k = 0, .top_p = 1, .min_p = 0, .seed = seed}));
      EXPECT_TRUE(session->decode(tokens.back()).ok());
    }
    return tokens;
  };
  EXPECT_EQ(draw(1), draw(1));
  EXPECT_NE(draw(1), draw(2));
}

/// Writes NaN over the first weight of a tensor.
bool damage(const std::string& path, const char* tensor) {
  gguf_context* file = gguf_init_from_file(path.c_str(), {true, nullptr});
  if (file == nullptr) return false;
  const std::int64_t id = gguf_find_tensor(file, tensor);
  const std::size_t offset = gguf_get_data_offset(file) + gguf_get_tensor_offset(file, id);
  gguf_free(file);
  std::FILE* out = std::fopen(path.c_str(), "r+b");
  if (out == nullptr) return false;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const bool done =
      std::fseek(out, static_cast<long>(offset), SEEK_SET) == 0 && std::fwrite(&nan, 4, 1, out) == 1;
  return std::fclose(out) == 0 && done;
}

TEST(SessionScores, KeysThatAreNotNumbersAreAnErrorAndChangeNothing) {
  const TemporaryDirectory directory;
  const std::string path = directory.file("nan.gguf");
  ASSERT_TRUE(write_tiny_gguf(path, tiny_model("llama")));
  ASSERT_TRUE(damage(path, "blk.1.attn_k.weight"));
  auto model = Model::load(path);
  ASSERT_TRUE(model.ok());
  for (const char* policy : {"keydiff", "nestedkv", "h2o"}) {
    auto session = make_session(*model, {.policy = policy, .budget = 40, .block = 32});
    ASSERT_TRUE(session);
    ASSERT_TRUE(session->prefill(random_tokens(**model, 32, 1)).ok())
        << "nothing is scored within the budget";
    const auto kept = kept_everywhere(*session, **model);
    const Status status = session->prefill(random_tokens(**model, 32, 2));
    ASSERT_FALSE(status.ok()) << policy;
    EXPECT_EQ(status.error().code, ErrorCode::kNonFinite) << status.error().message;
    EXPECT_EQ(session->seen(), 32);
    EXPECT_EQ(kept_everywhere(*session, **model), kept) << policy;
  }
}

TEST(CInterface, FailuresComeAsCodesWithAMessage) {
  keynest_model* model = nullptr;
  EXPECT_EQ(keynest_model_load("/nowhere/model.gguf", &model), KEYNEST_INVALID_FILE);
  EXPECT_NE(std::string(keynest_last_error()).find("/nowhere/model.gguf"), std::string::npos);
  EXPECT_EQ(keynest_model_load(nullptr, &model), KEYNEST_INVALID_ARGUMENT);
  EXPECT_EQ(keynest_prefill(nullptr, nullptr, 0, nullptr, nullptr), KEYNEST_INVALID_ARGUMENT);
}

TEST(CInterface, RunsAPromptAndForksIt) {
  const TemporaryDirectory directory;
  const std::string path = directory.file("tiny.gguf");
  ASSERT_TRUE(write_tiny_gguf(path, tiny_model("qwen2")));
  keynest_model* model = nullptr;
  ASSERT_EQ(keynest_model_load(path.c_str(), &model), KEYNEST_OK) << keynest_last_error();
  keynest_session_options options{};
  options.policy = "keydiff";
  options.budget = "16";
  options.block = 8;
  options.threads = 1;
  keynest_session *session = nullptr, *copy = nullptr;
  ASSERT_EQ(keynest_session_create(model, &options, &session), KEYNEST_OK) << keynest_last_error();
  std::int32_t token = 0;
  EXPECT_EQ(keynest_sample(session, nullptr, &token), KEYNEST_REFUSED);
  const std::vector<std::int32_t> tokens(40, 5);
  ASSERT_EQ(keynest_prefill(session, tokens.data(), tokens.size(), nullptr, nullptr), KEYNEST_OK);
  ASSERT_EQ(keynest_sample(session, nullptr, &token), KEYNEST_OK);
  ASSERT_EQ(keynest_fork(session, &copy), KEYNEST_OK);
  keynest_session_free(session);
  keynest_model_free(model);  // the fork keeps what it needs
  ASSERT_EQ(keynest_decode(copy, token), KEYNEST_OK);
  keynest_cache_stats stats{};
  ASSERT_EQ(keynest_get_cache_stats(copy, &stats), KEYNEST_OK);
  EXPECT_EQ(stats.seen, 41);
  EXPECT_EQ(stats.budget, 16);
  EXPECT_EQ(keynest_rollback(copy, 3), KEYNEST_REFUSED);
  EXPECT_EQ(keynest_rollback(copy, 99), KEYNEST_INVALID_ARGUMENT);
  keynest_session_free(copy);
}

}  // namespace
}  // namespace keynest::test
