#include "model/engine_guard.h"

#include <gguf.h>
#include <gtest/gtest.h>

#include <memory>
#include <thread>

namespace keynest::test {
namespace {

TEST(AbortGuard, TurnsFailedAssertionsIntoExceptions) {
  const std::unique_ptr<gguf_context, decltype(&gguf_free)> gguf(gguf_init_empty(), gguf_free);
  gguf_set_val_str(gguf.get(), "key", "text");
  const std::unique_ptr<ggml_context, decltype(&ggml_free)> context(ggml_init({1 << 16, nullptr, true}),
                                                                    ggml_free);
  const AbortGuard guard;
  EXPECT_THROW(gguf_get_val_u32(gguf.get(), 0), EngineAbort);                        // C++ of the library
  EXPECT_THROW(ggml_new_tensor_1d(context.get(), GGML_TYPE_COUNT, 1), EngineAbort);  // C of the library
}

TEST(AbortGuard, NestsAndEnds) {
  const auto before = ggml_set_abort_callback(nullptr);
  {
    const AbortGuard outer;
    { const AbortGuard inner; }
    EXPECT_THROW(ggml_abort(__FILE__, __LINE__, "still guarded"), EngineAbort);
  }
  EXPECT_EQ(ggml_set_abort_callback(before), nullptr);
}

TEST(AbortGuardDeathTest, LeavesOtherThreadsAlone) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        const AbortGuard guard;
        std::thread([] { ggml_abort(__FILE__, __LINE__, "not guarded"); }).join();
      },
      "not guarded");
}

TEST(EngineLogs, KeepTheFirstError) {
  silence_engine_logs();
  take_engine_error();
  EXPECT_EQ(gguf_init_from_buffer("none", 4, {.no_alloc = true, .ctx = nullptr}), nullptr);
  EXPECT_NE(take_engine_error().find("magic"), std::string::npos);
  EXPECT_EQ(take_engine_error(), "");
}

}  // namespace
}  // namespace keynest::test
