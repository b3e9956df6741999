#include "bench/runs.h"

#include <algorithm>
#include <set>

namespace keynest::bench {

double number_of(const Json& run, const char* field, double otherwise) {
  const auto found = run.find(field);
  return found != run.end() && found->is_number() ? found->get<double>() : otherwise;
}

std::string text_of(const Json& run, const char* field) {
  const auto found = run.find(field);
  return found != run.end() && found->is_string() ? found->get<std::string>() : std::string();
}

Runs::Runs(const Json& results) {
  const auto list = results.find("runs");
  if (list == results.end() || !list->is_array()) return;
  for (const Json& run : *list) {
    if (run.is_object()) runs_.push_back(&run);
  }
}

template <typename Wanted>
Runs Runs::filter(const Wanted& wanted) const {
  Runs some;
  std::copy_if(runs_.begin(), runs_.end(), std::back_inserter(some.runs_),
               [&](const Json* run) { return wanted(*run); });
  return some;
}

Runs Runs::where(const char* field, const std::string& value) const {
  return filter([&](const Json& run) { return text_of(run, field) == value; });
}

Runs Runs::where(const char* field, double value) const {
  return filter([&](const Json& run) { return run.contains(field) && number_of(run, field) == value; });
}

std::vector<std::string> Runs::texts(const char* field) const {
  std::vector<std::string> found;
  for (const Json* run : runs_) {
    const std::string text = text_of(*run, field);
    if (std::find(found.begin(), found.end(), text) == found.end()) found.push_back(text);
  }
  return found;
}

std::vector<double> Runs::numbers(const char* field) const {
  const auto all = values(field);
  const std::set<double> distinct(all.begin(), all.end());
  return {distinct.begin(), distinct.end()};
}

std::vector<double> Runs::values(const char* field) const {
  std::vector<double> found;
  for (const Json* run : runs_) {
    const auto value = run->find(field);
    if (value != run->end() && value->is_number()) found.push_back(value->get<double>());
  }
  return found;
}

std::vector<double> round_ratios(const Runs& a, const Runs& b, const char* field) {
  std::vector<double> ratios;
  for (const double round : a.numbers("round")) {
    const auto above = a.where("round", round).values(field), below = b.where("round", round).values(field);
    for (std::size_t i = 0; i < std::min(above.size(), below.size()); ++i) {
      if (below[i] > 0) ratios.push_back(above[i] / below[i]);
    }
  }
  return ratios;
}

}  // namespace keynest::bench
