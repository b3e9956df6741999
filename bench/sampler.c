// Preloaded into a program (scripts/profile): notes where it is each time the process has used a little CPU
// time, and writes the addresses, relative to the program's start, to the file named by KEYNEST_SAMPLES when
// it ends.
#define _GNU_SOURCE
#include <link.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <ucontext.h>

enum { kMostSamples = 1 << 20 };
static unsigned long samples[kMostSamples];
static int count = 0;
static unsigned long program = 0;

static unsigned long address_in(const ucontext_t* context) {
#if defined(__x86_64__)
  return (unsigned long)context->uc_mcontext.gregs[REG_RIP];
#else
  return (unsigned long)context->uc_mcontext.pc;
#endif
}

static void note(int number, siginfo_t* info, void* context) {
  (void)number, (void)info;
  const int index = __atomic_fetch_add(&count, 1, __ATOMIC_RELAXED);
  if (index < kMostSamples) samples[index] = address_in(context) - program;
}

/// The first object is the program itself.
static int take_first(struct dl_phdr_info* info, size_t size, void* data) {
  (void)size, (void)data;
  program = info->dlpi_addr;
  return 1;
}

static void set_timer(long microseconds) {
  const struct itimerval timer = {{0, microseconds}, {0, microseconds}};
  setitimer(ITIMER_PROF, &timer, NULL);
}

__attribute__((constructor)) static void start(void) {
  dl_iterate_phdr(take_first, NULL);
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_sigaction = note;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  sigaction(SIGPROF, &action, NULL);
  set_timer(1000);
}

__attribute__((destructor)) static void stop(void) {
  set_timer(0);
  const char* path = getenv("KEYNEST_SAMPLES");
  FILE* file = path != NULL ? fopen(path, "w") : NULL;
  if (file == NULL) return;
  for (int i = 0; i < count && i < kMostSamples; ++i) fprintf(file, "%lx\n", samples[i]);
  fclose(file);
}
