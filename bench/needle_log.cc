#include "needle_log.h"

#include <algorithm>
#include <utility>

namespace keynest::bench {
namespace {

bool same_key(const nlohmann::json& a, const nlohmann::json& b) {
  return std::all_of(std::begin(kNeedleKey), std::end(kNeedleKey), [&](const char* field) {
    return a.contains(field) && b.contains(field) && a[field] == b[field];
  });
}

}  // namespace

Result<NeedleLog> NeedleLog::open(const std::string& path) {
  NeedleLog log;
  log.path_ = path;
  if (path.empty()) return log;
  bool ends = true;  // with a whole line
  {
    std::ifstream in(path);
    for (std::string text; std::getline(in, text);) {
      nlohmann::json line = nlohmann::json::parse(text, nullptr, false);
      if (line.is_object()) log.lines_.push_back(std::move(line));
      ends = !in.eof();
    }
  }
  log.file_.open(path, std::ios::app);
  if (!ends) log.file_ << '\n';
  if (!log.file_) return Error{ErrorCode::kIo, path + ": cannot be written; name another --json file"};
  return log;
}

const nlohmann::json* NeedleLog::find(const nlohmann::json& line) const {
  const auto found =
      std::find_if(lines_.begin(), lines_.end(), [&](const auto& other) { return same_key(line, other); });
  return found == lines_.end() ? nullptr : &*found;
}

Status NeedleLog::add(nlohmann::json line) {
  if (!path_.empty()) {
    file_ << line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << std::endl;
    if (!file_) return Error{ErrorCode::kIo, path_ + ": writing failed; is the disk full?"};
  }
  lines_.push_back(std::move(line));
  return {};
}

}  // namespace keynest::bench
