#include "cli/report.h"

#include <cstdio>
#include <string>

namespace keynest::cli {
namespace {

void print(std::string_view kind, std::string_view message) {
  const std::string line = "keynest: " + std::string(kind) + std::string(message) + "\n";
  std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace

int report(const Error& error) {
  if (error.code == ErrorCode::kCancelled) return kExitInterrupted;
  print("", error.message);
  return error.code == ErrorCode::kInvalidArgument ? kExitUsage : kExitFailed;
}

void warn(std::string_view message) { print("warning: ", message); }

void remark(std::string_view message) { print("", message); }

}  // namespace keynest::cli
