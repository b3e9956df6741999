#include "policy/golden_set.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <numeric>

#include "cli/npy_header.h"

namespace keynest::golden {
namespace {

using nlohmann::json;

json manifest(const std::string& folder) {
  std::ifstream in(folder + "/manifest.json");
  return json::parse(in, nullptr, false);
}

template <typename T>
std::vector<double> numbers(const std::string& bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  return {values.begin(), values.end()};
}

Array read_array(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  const std::string file((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  if (file.size() < 10) return {};
  const std::size_t length = static_cast<unsigned char>(file[8]) + 256u * static_cast<unsigned char>(file[9]);
  const auto header = cli::parse_npy_header(std::string_view(file).substr(10, length));
  if (!header) return {};
  const std::string data = file.substr(10 + length);
  if (header->type == "<f8") return {header->shape, numbers<double>(data)};
  if (header->type == "<f4") return {header->shape, numbers<float>(data)};
  if (header->type == "<i4") return {header->shape, numbers<std::int32_t>(data)};
  if (header->type == "|u1") return {header->shape, numbers<std::uint8_t>(data)};
  return {};
}

Stream read_stream(const std::string& name, const json& s) {
  return {name, s["budget"], s["window"], s["announced"], s["episode"], s["lengths"]};
}

Case read_case(const std::string& folder, const std::string& name, const json& info) {
  Case c;
  c.folder = folder;
  c.name = name;
  c.degenerate = info["source"]["kind"] == "degenerate";
  c.tokens = info["n"];
  c.head_dim = info["head_dim"];
  c.kv_heads = info["n_kv_heads"];
  c.query_heads = info["n_query_heads"];
  const json& p = info["params"];
  c.ratios = p["ratios"].get<std::vector<double>>();
  c.budgets = info["budgets"].get<std::vector<std::int32_t>>();
  c.snapkv_window = p["snapkv_window"];
  c.snapkv_kernel = p["snapkv_kernel"];
  c.layer = p["layer"];
  c.layers = p["n_layers"];
  for (const auto& [stream, parameters] : p["streams"].items())
    c.streams.push_back(read_stream(stream, parameters));
  return c;
}

}  // namespace

Array Array::at(std::size_t index) const {
  const std::size_t part = data.size() / static_cast<std::size_t>(shape[0]);
  const auto first = data.begin() + static_cast<std::ptrdiff_t>(index * part);
  return {{shape.begin() + 1, shape.end()}, {first, first + static_cast<std::ptrdiff_t>(part)}};
}

bool Case::has(const std::string& array) const {
  return std::filesystem::exists(folder + "/" + name + "/" + array + ".npy");
}

Array Case::load(const std::string& array) const {
  Array loaded = read_array(folder + "/" + name + "/" + array + ".npy");
  EXPECT_FALSE(loaded.empty()) << "missing or damaged: " << name << "/" << array;
  return loaded;
}

std::string whole_set() {
  const char* given = std::getenv("KEYNEST_GOLDEN_DIR");
  return given != nullptr && *given != '\0' ? given : KEYNEST_GOLDEN_DIR;
}

std::vector<std::string> folders() {
  std::vector<std::string> found;
  for (const std::string& folder : {std::string(KEYNEST_TEST_DATA) + "/golden", whole_set()}) {
    if (std::filesystem::exists(folder + "/manifest.json")) found.push_back(folder);
  }
  return found;
}

std::vector<Case> cases() {
  std::vector<Case> all;
  const std::vector<std::string> sets = folders();
  for (const std::string& folder : sets) {
    const json m = manifest(folder);
    for (const auto& [name, info] : m["cases"].items()) {
      const bool again = std::any_of(all.begin(), all.end(), [&](const Case& c) { return c.name == name; });
      if (!again) all.push_back(read_case(folder, name, info));
    }
  }
  return all;
}

PyramidTable pyramid_table(const std::string& folder) {
  const json p = manifest(folder)["pyramid_budgets"];
  return {p["lengths"].get<std::vector<std::int64_t>>(),
          manifest(folder)["ratios"].get<std::vector<double>>(),
          p["n_layers"],
          p["window"],
          p["beta"],
          read_array(folder + "/" + p["file"].get<std::string>())};
}

}  // namespace keynest::golden
