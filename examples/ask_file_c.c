/* Asks a question about a file of any length inside a fixed cache, in C.
 *   ask_file_c MODEL.gguf FILE QUESTION [BUDGET]
 * The tests run it with models/SmolLM2-135M-Instruct.Q4_1.gguf. */
#include <keynest/keynest.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failed(keynest_status status) {
  if (status != KEYNEST_OK) fprintf(stderr, "ask_file_c: %s\n", keynest_last_error());
  return status != KEYNEST_OK;
}

/* Around the question: ChatML, the chat format of many models. */
static const char kBefore[] = "<|im_start|>user\n";
static const char kAfter[] = "<|im_end|>\n<|im_start|>assistant\n";

/* The file's bytes and the question as a turn of a conversation; NULL when it can't be read. To be freed. */
static char* read_prompt(const char* path, const char* question, size_t* size) {
  FILE* file = fopen(path, "rb");
  if (!file) return NULL;
  fseek(file, 0, SEEK_END);
  const long length = ftell(file);
  rewind(file);
  const size_t extra = sizeof kBefore + strlen(question) + sizeof kAfter + 2;
  char* prompt = length < 0 ? NULL : malloc((size_t)length + extra);
  if (prompt) {
    size_t end = (size_t)sprintf(prompt, "%s", kBefore);
    end += fread(prompt + end, 1, (size_t)length, file);
    *size = end + (size_t)sprintf(prompt + end, "\n\n%s%s", question, kAfter);
  }
  fclose(file);
  return prompt;
}

/* Tokens of the text; NULL on failure. To be freed. */
static int32_t* tokenize(const keynest_model* model, const char* text, size_t size, size_t* count) {
  const size_t capacity = size + 8; /* a token is at least a byte, and a few are added */
  int32_t* tokens = malloc(capacity * sizeof *tokens);
  if (tokens && failed(keynest_tokenize(model, text, size, 1, 1, tokens, capacity, count))) {
    free(tokens);
    return NULL;
  }
  return tokens;
}

static int answer(const keynest_model* model, keynest_session* session) {
  for (int i = 0; i < 64; ++i) {
    int32_t token;
    char piece[256];
    size_t size = 0;
    if (failed(keynest_sample(session, NULL, &token))) return 1;
    if (keynest_is_end(model, token)) break;
    if (failed(keynest_piece(model, token, piece, sizeof piece, &size))) return 1;
    fwrite(piece, 1, size, stdout);
    if (failed(keynest_decode(session, token))) return 1;
  }
  return 0;
}

static int run(const keynest_model* model, const char* text, size_t size, const char* budget) {
  const keynest_session_options options = {.policy = "keydiff", .budget = budget};
  keynest_session* session = NULL;
  keynest_cache_stats stats;
  size_t count = 0;
  int32_t* tokens = tokenize(model, text, size, &count);
  int error = !tokens || failed(keynest_session_create(model, &options, &session)) ||
              failed(keynest_prefill(session, tokens, count, NULL, NULL)) || answer(model, session) ||
              failed(keynest_get_cache_stats(session, &stats));
  if (!error) {
    printf("\n%zu tokens read; cache %zu KiB at its peak, %zu KiB without eviction\n", count,
           stats.peak_bytes / 1024, stats.full_bytes / 1024);
  }
  keynest_session_free(session);
  free(tokens);
  return error;
}

int main(int argc, char** argv) {
  if (argc < 4) return fprintf(stderr, "usage: ask_file_c MODEL.gguf FILE QUESTION [BUDGET]\n"), 2;
  size_t size = 0;
  char* prompt = read_prompt(argv[2], argv[3], &size);
  if (!prompt) return fprintf(stderr, "ask_file_c: can't read %s\n", argv[2]), 1;

  keynest_model* model = NULL;
  int error = failed(keynest_model_load(argv[1], &model));
  if (!error) error = run(model, prompt, size, argc > 4 ? argv[4] : "1024");
  keynest_model_free(model);
  free(prompt);
  return error;
}
