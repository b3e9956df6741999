#include "cli/interrupt.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

namespace keynest::cli {
namespace {

volatile std::sig_atomic_t interrupt_flag = 0;

/// The handler writes here, so that waiting for input and for Ctrl-C is one wait without a gap between them.
int wake_pipe[2] = {-1, -1};

extern "C" void raise_flag(int) {
  const int saved = errno;
  interrupt_flag = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_pipe[1], "", 1);
  errno = saved;
}

void empty_wake_pipe() {
  char bytes[64];
  while (::read(wake_pipe[0], bytes, sizeof bytes) > 0) {
  }
}

}  // namespace

void arm_interrupt() {
  if (wake_pipe[0] < 0 && ::pipe2(wake_pipe, O_CLOEXEC | O_NONBLOCK) != 0) wake_pipe[0] = wake_pipe[1] = -1;
  empty_wake_pipe();
  interrupt_flag = 0;
  struct sigaction action {};
  action.sa_handler = raise_flag;
  // Back to the default after the first: the second Ctrl-C kills.
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
}

bool interrupted() { return interrupt_flag != 0; }

bool wait_readable(int descriptor) {
  pollfd both[2] = {{descriptor, POLLIN, 0}, {wake_pipe[0], POLLIN, 0}};
  while (!interrupted()) {
    if (::poll(both, 2, -1) > 0 && both[0].revents != 0) return !interrupted();
  }
  return false;
}

}  // namespace keynest::cli
