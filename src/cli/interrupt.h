// Ctrl-C: the first asks the work to stop at its next block or token, the second ends the program at once.
#pragma once

namespace keynest::cli {

/// Makes Ctrl-C raise the flag (again), and a closed pipe an error value rather than a signal.
void arm_interrupt();

/// Ctrl-C was pressed since the last arm_interrupt().
bool interrupted();

/// Waits until `descriptor` can be read; false when Ctrl-C comes (or came) instead.
bool wait_readable(int descriptor);

}  // namespace keynest::cli
