// The C interface: thin wrappers that turn Results into status codes and keep the last message per thread.
#include <cstring>
#include <limits>
#include <new>
#include <string>

#include "keynest/keynest.h"
#include "keynest/model.h"
#include "keynest/session.h"

struct keynest_model {
  std::shared_ptr<const keynest::Model> model;
};
struct keynest_session {
  std::unique_ptr<keynest::Session> session;
};

namespace {

using keynest::Error;
using keynest::Status;

thread_local std::string last_error;

keynest_status fail(const Error& error) {
  last_error = error.message;
  return static_cast<keynest_status>(static_cast<int>(error.code) + 1);
}

keynest_status report(const Status& status) { return status ? KEYNEST_OK : fail(status.error()); }

keynest_status missing(const char* what) {
  return fail(keynest::invalid_argument(std::string(what) + " must not be NULL"));
}

/// Copies `count` items into a caller's buffer when they fit; tells the count either way.
template <typename T>
keynest_status copy_out(const T* items, std::size_t count, T* buffer, std::size_t capacity,
                        std::size_t* size) {
  *size = count;
  if (count > capacity) {
    return fail(keynest::invalid_argument("the buffer holds " + std::to_string(capacity) + " items, but " +
                                          std::to_string(count) + " are needed"));
  }
  if (count > 0) std::memcpy(buffer, items, count * sizeof(T));
  return KEYNEST_OK;
}

keynest::Result<keynest::SessionOptions> session_options(const keynest_session_options& from) {
  keynest::SessionOptions options;
  if (from.policy != nullptr) {
    auto policy = keynest::PolicySpec::parse(from.policy);
    if (!policy) return policy.error();
    options.policy = *policy;
  }
  if (from.budget != nullptr) {
    auto budget = keynest::Budget::parse(from.budget);
    if (!budget) return budget.error();
    options.budget = *budget;
  }
  if (from.block != 0) options.block = from.block;
  options.decode_block = from.decode_block;
  options.threads = from.threads;
  options.cache_limit = from.cache_limit;
  return options;
}

keynest::SamplingOptions sampling_options(const keynest_sampling& from) {
  keynest::SamplingOptions options;
  options.temperature = from.temperature;
  options.top_k = from.top_k;
  options.top_p = from.top_p > 0 ? from.top_p : 1.0f;
  options.min_p = from.min_p;
  options.repeat_penalty = from.repeat_penalty > 0 ? from.repeat_penalty : 1.0f;
  options.seed = from.seed;
  return options;
}

}  // namespace

// The order of the C codes is the order of ErrorCode.
static_assert(static_cast<int>(keynest::ErrorCode::kInvalidArgument) + 1 == KEYNEST_INVALID_ARGUMENT);
static_assert(static_cast<int>(keynest::ErrorCode::kInternal) + 1 == KEYNEST_INTERNAL);

extern "C" {

const char* keynest_last_error(void) { return last_error.c_str(); }

const char* keynest_version(void) {
  static const std::string text = keynest::version_text();
  return text.c_str();
}

keynest_status keynest_model_load(const char* path, keynest_model** model) {
  if (path == nullptr || model == nullptr) return missing("path and model");
  auto loaded = keynest::Model::load(path);
  if (!loaded) return fail(loaded.error());
  *model = new keynest_model{*loaded};
  return KEYNEST_OK;
}

void keynest_model_free(keynest_model* model) { delete model; }

keynest_status keynest_tokenize(const keynest_model* model, const char* text, size_t size, int add_special,
                                int parse_special, int32_t* tokens, size_t capacity, size_t* count) {
  if (model == nullptr || text == nullptr || count == nullptr) return missing("model, text and count");
  const auto found = model->model->tokenize({text, size}, add_special != 0, parse_special != 0);
  return copy_out(found.data(), found.size(), tokens, tokens == nullptr ? 0 : capacity, count);
}

keynest_status keynest_piece(const keynest_model* model, int32_t token, char* buffer, size_t capacity,
                             size_t* size) {
  if (model == nullptr || size == nullptr) return missing("model and size");
  const std::string piece = model->model->piece(token);
  return copy_out(piece.data(), piece.size(), buffer, buffer == nullptr ? 0 : capacity, size);
}

int keynest_is_end(const keynest_model* model, int32_t token) {
  return model != nullptr && model->model->is_end(token) ? 1 : 0;
}

keynest_status keynest_session_create(const keynest_model* model, const keynest_session_options* options,
                                      keynest_session** session) {
  if (model == nullptr || session == nullptr) return missing("model and session");
  auto parsed = session_options(options != nullptr ? *options : keynest_session_options{});
  if (!parsed) return fail(parsed.error());
  auto created = keynest::Session::create(model->model, *parsed);
  if (!created) return fail(created.error());
  *session = new keynest_session{std::move(created).value()};
  return KEYNEST_OK;
}

void keynest_session_free(keynest_session* session) { delete session; }

keynest_status keynest_protect(keynest_session* session, int64_t first, int64_t last) {
  if (session == nullptr) return missing("session");
  constexpr int64_t kMost = std::numeric_limits<std::int32_t>::max();
  if (first < 0 || last < 0 || first > kMost || last > kMost) {
    return fail(
        keynest::invalid_argument("protected range [" + std::to_string(first) + ", " + std::to_string(last) +
                                  ") is not allowed: give positions from 0 to " + std::to_string(kMost)));
  }
  return report(session->session->protect({keynest::Position{static_cast<std::int32_t>(first)},
                                           keynest::Position{static_cast<std::int32_t>(last)}}));
}

keynest_status keynest_prefill(keynest_session* session, const int32_t* tokens, size_t count,
                               keynest_progress progress, void* user) {
  if (session == nullptr || (tokens == nullptr && count > 0)) return missing("session and tokens");
  keynest::ProgressCallback callback;
  if (progress != nullptr) {
    callback = [=](std::int64_t done, std::int64_t total) { return progress(done, total, user) != 0; };
  }
  return report(session->session->prefill({tokens, count}, callback));
}

keynest_status keynest_decode(keynest_session* session, int32_t token) {
  if (session == nullptr) return missing("session");
  return report(session->session->decode(token));
}

const float* keynest_logits(const keynest_session* session, size_t* count) {
  const auto logits = session != nullptr ? session->session->logits() : std::span<const float>{};
  if (count != nullptr) *count = logits.size();
  return logits.empty() ? nullptr : logits.data();
}

keynest_status keynest_sample(keynest_session* session, const keynest_sampling* options, int32_t* token) {
  if (session == nullptr || token == nullptr) return missing("session and token");
  if (session->session->logits().empty()) {
    return fail({keynest::ErrorCode::kRefused, "there are no logits to sample from: process a token first"});
  }
  *token = session->session->sample(sampling_options(options != nullptr ? *options : keynest_sampling{}));
  return KEYNEST_OK;
}

keynest_status keynest_fork(const keynest_session* session, keynest_session** copy) {
  if (session == nullptr || copy == nullptr) return missing("session and copy");
  auto forked = session->session->fork();
  if (!forked) return fail(forked.error());
  *copy = new keynest_session{std::move(forked).value()};
  return KEYNEST_OK;
}

keynest_status keynest_rollback(keynest_session* session, int64_t position) {
  if (session == nullptr) return missing("session");
  if (position < 0 || position > session->session->seen()) {
    return fail(keynest::invalid_argument("position " + std::to_string(position) +
                                          " is outside what was seen: 0 to " +
                                          std::to_string(session->session->seen())));
  }
  return report(session->session->rollback(keynest::Position{static_cast<std::int32_t>(position)}));
}

keynest_status keynest_get_cache_stats(const keynest_session* session, keynest_cache_stats* stats) {
  if (session == nullptr || stats == nullptr) return missing("session and stats");
  const keynest::Stats all = session->session->stats();
  *stats = {all.cache.bytes, all.cache.peak_bytes, all.cache.full_bytes, all.cache.seen, all.budget};
  return KEYNEST_OK;
}

}  // extern "C"
