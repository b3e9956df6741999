/* The C interface of an installed keynest, from C. */
#include <keynest/keynest.h>
#include <stdio.h>

int main(void) {
  keynest_model* model = NULL;
  if (keynest_model_load("no-such-model.gguf", &model) == KEYNEST_OK)
    return puts("a missing file was loaded"), 1;
  printf("%s\n%s\n", keynest_version(), keynest_last_error());
  return 0;
}
