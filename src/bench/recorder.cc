#include "bench/recorder.h"

#include <unistd.h>

#include <cstdlib>
#include <ctime>
#include <fstream>
#include <thread>
#include <utility>

#include "kernels/attention.h"
#include "keynest/session.h"

namespace keynest::bench {
namespace {

/// The value of a "name : value" line of a file of /proc; empty where there is none.
std::string proc_value(const char* path, const std::string& name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const auto colon = line.find(':');
    if (line.rfind(name, 0) != 0 || colon == std::string::npos) continue;
    const auto start = line.find_first_not_of(" \t", colon + 1);
    return start == std::string::npos ? std::string() : line.substr(start);
  }
  return {};
}

std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  char text[32];
  ::localtime_r(&now, &parts);
  return std::string(text, std::strftime(text, sizeof text, "%Y-%m-%d", &parts));
}

std::string one_line(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  for (auto at = text.find('\n'); at != std::string::npos; at = text.find('\n', at))
    text.replace(at, 1, ", ");
  return text;
}

}  // namespace

Json describe_machine() {
  double load[1] = {0};
  if (::getloadavg(load, 1) != 1) load[0] = 0;
  const std::string cpu = proc_value("/proc/cpuinfo", "model name");
  const auto pages = static_cast<double>(::sysconf(_SC_PHYS_PAGES));
  return {{"cpu", cpu.empty() ? "unknown CPU" : cpu},
          {"cores", std::thread::hardware_concurrency()},
          {"memory_bytes", pages * static_cast<double>(::sysconf(_SC_PAGESIZE))},
          {"load", load[0]},
          {"date", today()},
          {"keynest", one_line(version_text())},
          {"simd_target", simd_target()}};
}

Recorder::Recorder(Json head, Host host) : results_(std::move(head)), host_(std::move(host)) {
  results_["runs"] = Json::array();
}

Status Recorder::check() const {
  if (host_.stopped()) return Error{ErrorCode::kCancelled, "stopped"};
  return {};
}

Status Recorder::add(Json run) {
  results_["runs"].push_back(std::move(run));
  KEYNEST_TRY(host_.save(results_.dump(1, ' ', false, Json::error_handler_t::replace) + "\n"));
  return check();
}

}  // namespace keynest::bench
