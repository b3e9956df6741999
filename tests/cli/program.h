// The built program as a child process: its exit, its output, signals and broken pipes.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

namespace keynest::test {

/// A running `keynest`. Standard input, output and error are pipes; a terminal on standard error if asked
/// for.
class Program {
 public:
  struct Options {
    std::vector<std::string> arguments;
    bool terminal = false;    ///< standard error is a pseudo-terminal
    std::string output = {};  ///< standard output goes to this file ("closed": it is closed); empty: a pipe
    bool terminal_input = false;  ///< standard input is that pseudo-terminal too, which echoes
  };

  explicit Program(const Options& options);
  explicit Program(std::vector<std::string> arguments) : Program(Options{std::move(arguments)}) {}
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  void write(std::string_view text) const;
  void close_input();
  void close_output();

  /// Waits until standard output (or error) holds `text` that often; false when it ends without.
  bool wait_output(std::string_view text, int times = 1) { return wait_for(out_, text, times); }
  bool wait_error(std::string_view text, int times = 1) { return wait_for(err_, text, times); }

  /// Waits for more output of either kind; false at the end of both.
  bool wait_more();

  /// Takes what standard output holds already.
  void drain_output();

  /// Waits until all that was written has been read.
  void wait_reading() const;

  void signal(int number) const;

  /// Reads everything, waits for the end. The exit status; 128 + n when signal n killed it.
  int finish();

  /// The same, with standard input left open.
  int wait();

  const std::string& out() const { return out_; }
  const std::string& err() const { return err_; }

 private:
  bool wait_for(const std::string& stream, std::string_view text, int times);
  pid_t child_ = -1;
  int input_ = -1, output_ = -1, error_ = -1;
  std::string out_, err_;
};

struct Outcome {
  int code = -1;
  std::string out, err;
};

/// Runs to the end with `input` on standard input.
Outcome run_program(std::vector<std::string> arguments, std::string_view input = {});

}  // namespace keynest::test
