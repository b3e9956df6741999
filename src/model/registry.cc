#include "model/architecture.h"

// The architectures: one line each. NAME is the one in the metadata and that of create_NAME in NAME.cc.
#define KEYNEST_ARCHITECTURES(ENTRY) \
  ENTRY(llama)                       \
  ENTRY(qwen2)                       \
  ENTRY(qwen3)                       \
  ENTRY(gemma3)

namespace keynest {

#define KEYNEST_DECLARE(name) std::unique_ptr<Network> create_##name(Metadata&, Hparams&, WeightTable&);
KEYNEST_ARCHITECTURES(KEYNEST_DECLARE)
#undef KEYNEST_DECLARE

namespace {

struct Entry {
  std::string_view name;
  CreateNetwork create;
};

constexpr Entry kEntries[] = {
#define KEYNEST_ENTRY(name) {#name, create_##name},
    KEYNEST_ARCHITECTURES(KEYNEST_ENTRY)
#undef KEYNEST_ENTRY
};

}  // namespace

CreateNetwork find_architecture(std::string_view name) {
  for (const Entry& entry : kEntries) {
    if (entry.name == name) return entry.create;
  }
  return nullptr;
}

std::vector<std::string_view> architecture_names() {
  std::vector<std::string_view> names;
  for (const Entry& entry : kEntries) names.push_back(entry.name);
  return names;
}

}  // namespace keynest
