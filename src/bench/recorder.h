// The results of a benchmark: what it ran on, and every single run as it came, kept on disk after each.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "keynest/result.h"

namespace keynest::bench {

using Json = nlohmann::ordered_json;

/// What a benchmark needs of the program around it.
struct Host {
  std::function<Status(const std::string& json)> save;  ///< keeps the results; called after every run
  std::function<void(const std::string& line)> tell;    ///< progress
  std::function<bool()> stopped;                        ///< Ctrl-C was pressed
};

class Recorder {
 public:
  /// `head`: what is known before the first run; a list "runs" is added to it.
  Recorder(Json head, Host host);

  /// Errors: those of Host::save; kCancelled when stopped.
  Status add(Json run);
  /// kCancelled when stopped.
  Status check() const;
  void tell(const std::string& line) const { host_.tell(line); }
  const Host& host() const { return host_; }
  const Json& results() const { return results_; }

 private:
  Json results_;
  Host host_;
};

/// CPU, cores, memory, load and date; keynest's version and SIMD target.
Json describe_machine();

}  // namespace keynest::bench
