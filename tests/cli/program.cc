#include "cli/program.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <stdexcept>
#include <utility>

namespace keynest::test {
namespace {

/// [reading end, writing end], closed in later children.
std::pair<int, int> make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
  return {ends[0], ends[1]};
}

/// [our end, the program's end] of a pseudo-terminal.
std::pair<int, int> make_terminal() {
  const int ours = ::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (ours < 0 || ::grantpt(ours) != 0 || ::unlockpt(ours) != 0) throw std::runtime_error("no terminal");
  return {ours, ::open(::ptsname(ours), O_RDWR | O_NOCTTY | O_CLOEXEC)};
}

[[noreturn]] void become(const Program::Options& options, int in, int out, int err) {
  ::dup2(in, 0);
  ::dup2(out, 1);
  ::dup2(err, 2);
  std::signal(SIGPIPE, SIG_DFL);
  std::signal(SIGINT, SIG_DFL);
  if (options.output == "closed") {
    ::close(1);
  } else if (!options.output.empty()) {
    ::dup2(::open(options.output.c_str(), O_WRONLY | O_CLOEXEC), 1);
  }
  std::vector<char*> arguments{const_cast<char*>(KEYNEST_PROGRAM)};
  for (const std::string& argument : options.arguments)
    arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  ::execv(KEYNEST_PROGRAM, arguments.data());
  ::_exit(127);
}

void close_and_forget(int& descriptor) {
  if (descriptor >= 0) ::close(descriptor);
  descriptor = -1;
}

int count(std::string_view stream, std::string_view text) {
  int found = 0;
  for (auto at = stream.find(text); at != std::string_view::npos; at = stream.find(text, at + 1)) ++found;
  return found;
}

/// Takes what is there; closes the descriptor at its end (a terminal ends with an error).
void take(int& descriptor, std::string& into) {
  std::array<char, 4096> chunk{};
  const ssize_t n = ::read(descriptor, chunk.data(), chunk.size());
  if (n > 0) into.append(chunk.data(), static_cast<std::size_t>(n));
  if (n <= 0) close_and_forget(descriptor);
}

}  // namespace

Program::Program(const Options& options) {
  std::signal(SIGPIPE, SIG_IGN);
  const auto in = make_pipe(), out = make_pipe();
  const auto err = options.terminal ? make_terminal() : make_pipe();
  child_ = ::fork();
  if (child_ == 0) become(options, options.terminal_input ? err.second : in.first, out.second, err.second);
  for (const int theirs : {in.first, out.second, err.second}) ::close(theirs);
  input_ = in.second;
  if (options.terminal_input) {
    ::close(input_);
    input_ = ::dup(err.first);
  }
  output_ = out.first;
  error_ = err.first;
}

Program::~Program() {
  if (child_ > 0) {
    signal(SIGKILL);
    finish();
  }
}

void Program::write(std::string_view text) const {
  while (!text.empty()) {
    const ssize_t n = ::write(input_, text.data(), text.size());
    if (n <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(n));
  }
}

void Program::close_input() { close_and_forget(input_); }
void Program::close_output() { close_and_forget(output_); }
void Program::signal(int number) const { ::kill(child_, number); }

bool Program::wait_more() {
  pollfd both[2] = {{output_, POLLIN, 0}, {error_, POLLIN, 0}};
  if (output_ < 0 && error_ < 0) return false;
  ::poll(both, 2, -1);
  if (both[0].revents != 0) take(output_, out_);
  if (both[1].revents != 0) take(error_, err_);
  return true;
}

bool Program::wait_for(const std::string& stream, std::string_view text, int times) {
  while (count(stream, text) < times) {
    if (!wait_more()) return false;
  }
  return true;
}

void Program::drain_output() {
  pollfd look{output_, POLLIN, 0};
  while (output_ >= 0 && ::poll(&look, 1, 0) > 0) take(output_, out_);
}

void Program::wait_reading() const {
  for (int unread = 1; unread > 0; ::usleep(1000)) ::ioctl(input_, FIONREAD, &unread);
}

int Program::finish() {
  close_input();
  return wait();
}

int Program::wait() {
  while (wait_more()) {
  }
  int status = 0;
  ::waitpid(child_, &status, 0);
  child_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

Outcome run_program(std::vector<std::string> arguments, std::string_view input) {
  Program program(std::move(arguments));
  program.write(input);
  const int code = program.finish();
  return {code, program.out(), program.err()};
}

}  // namespace keynest::test
