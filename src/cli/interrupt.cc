#include "cli/interrupt.h"

#include <csignal>

namespace keynest::cli {
namespace {

volatile std::sig_atomic_t interrupt_flag = 0;

extern "C" void raise_flag(int) { interrupt_flag = 1; }

}  // namespace

void arm_interrupt() {
  interrupt_flag = 0;
  struct sigaction action {};
  action.sa_handler = raise_flag;
  // Back to the default after the first: the second Ctrl-C kills. No SA_RESTART: a waiting read must return.
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
}

bool interrupted() { return interrupt_flag != 0; }

}  // namespace keynest::cli
