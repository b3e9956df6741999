#include "bench/process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>

#ifdef __linux__
#include <sys/prctl.h>
#endif

namespace keynest::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kMostOutput = 1u << 20, kMostErrors = 1u << 14;

/// A pipe of which we read one end.
class Pipe {
 public:
  Pipe() {
    if (::pipe2(ends_, O_CLOEXEC) != 0) ends_[0] = ends_[1] = -1;
  }
  ~Pipe() {
    close_end(0);
    close_end(1);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;

  int reading() const { return ends_[0]; }
  int writing() const { return ends_[1]; }
  void close_writing() { close_end(1); }
  /// From now on take() does not wait.
  void stop_waiting() const { ::fcntl(ends_[0], F_SETFL, O_NONBLOCK); }

  /// Takes what is there; closes at the end.
  void take(std::string& into) {
    char chunk[4096];
    while (ends_[0] >= 0) {
      const ssize_t n = ::read(ends_[0], chunk, sizeof chunk);
      if (n > 0) {
        into.append(chunk, static_cast<std::size_t>(n));
      } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
        close_end(0);
      } else if (errno == EAGAIN) {
        return;
      }
    }
  }

 private:
  void close_end(int end) {
    if (ends_[end] >= 0) ::close(ends_[end]);
    ends_[end] = -1;
  }
  int ends_[2];
};

/// A started program with its pipes.
struct Child {
  pid_t pid = -1;
  Pipe out, err;

  /// 0, or the number of the error.
  int start(const std::vector<std::string>& command);
  void kill_group(int signal) const { ::kill(-pid, signal); }
  /// The exit code, once it has ended.
  bool ended(int& exit_code) const;
  void wait_output() const;
};

/// The child's side: becomes the program, or tells why it cannot. Nothing here may allocate.
[[noreturn]] void become(char* const* arguments, int out, int err, int failure) {
  ::setpgid(0, 0);
#ifdef __linux__
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // when we are killed ourselves
#endif
  for (const int signal : {SIGINT, SIGPIPE}) std::signal(signal, SIG_DFL);  // as we may not have them
  const int nothing = ::open("/dev/null", O_RDONLY);
  ::dup2(nothing, 0);
  ::dup2(out, 1);
  ::dup2(err, 2);
  ::execvp(arguments[0], arguments);
  const int error = errno;
  [[maybe_unused]] const ssize_t written = ::write(failure, &error, sizeof error);
  ::_exit(127);
}

int Child::start(const std::vector<std::string>& command) {
  std::vector<char*> arguments;
  for (const std::string& part : command) arguments.push_back(const_cast<char*>(part.c_str()));
  arguments.push_back(nullptr);
  Pipe failure;  // closed by a successful exec
  pid = ::fork();
  if (pid < 0) return errno;
  if (pid == 0) become(arguments.data(), out.writing(), err.writing(), failure.writing());
  ::setpgid(pid, pid);  // here too, so that it is so from now on
  for (Pipe* pipe : {&failure, &out, &err}) pipe->close_writing();
  int error = 0;
  if (::read(failure.reading(), &error, sizeof error) != sizeof error) error = 0;
  if (error != 0) ::waitpid(pid, nullptr, 0);
  for (Pipe* pipe : {&out, &err}) pipe->stop_waiting();
  return error;
}

bool Child::ended(int& exit_code) const {
  int status = 0;
  if (::waitpid(pid, &status, WNOHANG) != pid) return false;
  exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return true;
}

void Child::wait_output() const {
  constexpr int kMilliseconds = 20;
  pollfd both[2] = {{out.reading(), POLLIN, 0}, {err.reading(), POLLIN, 0}};
  ::poll(both, 2, kMilliseconds);
  // A pipe whose other end has gone is always ready: that must not become a loop without a pause.
  if (((both[0].revents | both[1].revents) & POLLIN) == 0) ::usleep(kMilliseconds * 1000 / 4);
}

void keep_end(std::string& text, std::size_t most) {
  if (text.size() > most) text.erase(0, text.size() - most);
}

}  // namespace

Result<ProcessEnd> run_process(const std::vector<std::string>& command, double limit_seconds,
                               const std::function<bool()>& stopped) {
  ProcessEnd end;
  Child child;
  const auto started = Clock::now();
  if (const int error = child.start(command); error != 0) {
    return Error{ErrorCode::kIo, "cannot start \"" + command[0] + "\": " + std::strerror(error)};
  }
  bool cancelled = false;
  while (!child.ended(end.exit_code)) {
    child.wait_output();
    child.out.take(end.out);
    child.err.take(end.err);
    if (end.out.size() > kMostOutput) end.out.resize(kMostOutput);
    keep_end(end.err, kMostErrors);
    end.seconds = std::chrono::duration<double>(Clock::now() - started).count();
    cancelled = cancelled || stopped();
    end.timed_out = end.timed_out || (!cancelled && end.seconds > limit_seconds);
    if (cancelled || end.timed_out) child.kill_group(SIGKILL);
  }
  end.seconds = std::chrono::duration<double>(Clock::now() - started).count();
  child.kill_group(SIGKILL);  // whatever it has left behind
  child.out.take(end.out);
  child.err.take(end.err);
  if (cancelled) return Error{ErrorCode::kCancelled, "stopped"};
  return end;
}

}  // namespace keynest::bench
