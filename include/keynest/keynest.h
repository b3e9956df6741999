/* The C interface of keynest. Every function that can fail returns a status and leaves a message for
 * keynest_last_error() of the calling thread. Strings are UTF-8; nothing is printed and nothing aborts.
 *
 * A model may be shared between threads; a session belongs to one thread at a time. */
#ifndef KEYNEST_KEYNEST_H
#define KEYNEST_KEYNEST_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct keynest_model keynest_model;
typedef struct keynest_session keynest_session;

/* The same kinds of failure as keynest::ErrorCode, after 0 for success. */
typedef enum keynest_status {
  KEYNEST_OK = 0,
  KEYNEST_INVALID_ARGUMENT,
  KEYNEST_INVALID_FILE,
  KEYNEST_UNSUPPORTED,
  KEYNEST_OUT_OF_MEMORY,
  KEYNEST_NON_FINITE,
  KEYNEST_REFUSED,
  KEYNEST_CANCELLED,
  KEYNEST_IO,
  KEYNEST_INTERNAL
} keynest_status;

/* Zero or NULL in a field means its default. */
typedef struct keynest_session_options {
  const char* policy;   /* spec such as "keydiff:keep_last=20%"; default keydiff */
  const char* budget;   /* "2048", "25%", "64MiB" or "full"; default full */
  int32_t block;        /* prompt tokens between two evictions; default 128 */
  int32_t decode_block; /* generated tokens between two evictions; default block */
  int32_t threads;      /* default all cores */
  size_t cache_limit;   /* bytes; default what the machine has free */
} keynest_session_options;

typedef struct keynest_sampling {
  float temperature;    /* 0 = greedy */
  int32_t top_k;        /* 0 = off */
  float top_p;          /* 0 or 1 = off */
  float min_p;          /* 0 = off */
  float repeat_penalty; /* 0 or 1 = off */
  uint32_t seed;
} keynest_sampling;

typedef struct keynest_cache_stats {
  size_t bytes;      /* pages in use x page size, now */
  size_t peak_bytes; /* the most there ever were */
  size_t full_bytes; /* what an unbounded cache would hold for the tokens seen */
  int64_t seen;      /* tokens seen */
  int32_t budget;    /* N; 0 = unbounded */
} keynest_cache_stats;

/* Called for every block of a prompt; return 0 to stop there. */
typedef int (*keynest_progress)(int64_t done, int64_t total, void* user);

/* The message of the last failure on this thread; never NULL. */
const char* keynest_last_error(void);

/* Version, SIMD target and engine. */
const char* keynest_version(void);

keynest_status keynest_model_load(const char* path, keynest_model** model);
void keynest_model_free(keynest_model* model);

/* Writes at most `capacity` tokens and sets *count to how many the text has; KEYNEST_INVALID_ARGUMENT when
 * they do not fit (call again with *count). `size` bytes of text, any bytes. */
keynest_status keynest_tokenize(const keynest_model* model, const char* text, size_t size, int add_special,
                                int parse_special, int32_t* tokens, size_t capacity, size_t* count);

/* Bytes of one token, not zero-terminated; sets *size to its length; as above when they do not fit. */
keynest_status keynest_piece(const keynest_model* model, int32_t token, char* buffer, size_t capacity,
                             size_t* size);

/* 1 for end-of-generation tokens. */
int keynest_is_end(const keynest_model* model, int32_t token);

/* options may be NULL. The session keeps the model alive. */
keynest_status keynest_session_create(const keynest_model* model, const keynest_session_options* options,
                                      keynest_session** session);
void keynest_session_free(keynest_session* session);

/* Keeps the entries at positions first .. last-1 whatever their score; they count in the budget. Before the
 * prompt or between two. */
keynest_status keynest_protect(keynest_session* session, int64_t first, int64_t last);

/* progress may be NULL. */
keynest_status keynest_prefill(keynest_session* session, const int32_t* tokens, size_t count,
                               keynest_progress progress, void* user);
keynest_status keynest_decode(keynest_session* session, int32_t token);

/* Logits after the last token, [*count]; valid until the next call on the session. NULL when there are none.
 */
const float* keynest_logits(const keynest_session* session, size_t* count);

/* options may be NULL for greedy. KEYNEST_REFUSED when there are no logits. */
keynest_status keynest_sample(keynest_session* session, const keynest_sampling* options, int32_t* token);

keynest_status keynest_fork(const keynest_session* session, keynest_session** copy);
keynest_status keynest_rollback(keynest_session* session, int64_t position);
keynest_status keynest_get_cache_stats(const keynest_session* session, keynest_cache_stats* stats);

#ifdef __cplusplus
}
#endif

#endif
