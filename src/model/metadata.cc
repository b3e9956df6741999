#include "model/metadata.h"

namespace keynest {

std::string Metadata::full_key(std::string_view key) const {
  return key.starts_with('.') ? architecture_ + std::string(key) : std::string(key);
}

void Metadata::fail(ErrorCode code, const std::string& message) {
  if (status_.ok()) status_ = Error{code, message};
}

void Metadata::wrong_type(std::string_view key, const std::string& wanted) {
  const std::int64_t id = find(key);
  const gguf_type type = gguf_get_kv_type(gguf_, id);
  std::string found = gguf_type_name(type);
  if (type == GGUF_TYPE_ARRAY) found += std::string(" of ") + gguf_type_name(gguf_get_arr_type(gguf_, id));
  fail(ErrorCode::kInvalidFile, "metadata key '" + full_key(key) + "' has type " + found + ", not " + wanted);
}

std::int64_t Metadata::find_typed(std::string_view key, gguf_type type, bool required) {
  const std::int64_t id = find(key);
  if (id < 0 && required) {
    fail(ErrorCode::kInvalidFile, "metadata key '" + full_key(key) + "' is missing");
  }
  if (id >= 0 && gguf_get_kv_type(gguf_, id) != type) {
    wrong_type(key, gguf_type_name(type));
    return -1;
  }
  return id;
}

std::uint32_t Metadata::u32(std::string_view key) {
  const std::int64_t id = find_typed(key, GGUF_TYPE_UINT32, true);
  return id < 0 ? 0 : gguf_get_val_u32(gguf_, id);
}

std::uint32_t Metadata::u32(std::string_view key, std::uint32_t fallback) {
  const std::int64_t id = find_typed(key, GGUF_TYPE_UINT32, false);
  return id < 0 ? fallback : gguf_get_val_u32(gguf_, id);
}

float Metadata::f32(std::string_view key) {
  const std::int64_t id = find_typed(key, GGUF_TYPE_FLOAT32, true);
  return id < 0 ? 0 : gguf_get_val_f32(gguf_, id);
}

float Metadata::f32(std::string_view key, float fallback) {
  const std::int64_t id = find_typed(key, GGUF_TYPE_FLOAT32, false);
  return id < 0 ? fallback : gguf_get_val_f32(gguf_, id);
}

bool Metadata::flag(std::string_view key, bool fallback) {
  const std::int64_t id = find_typed(key, GGUF_TYPE_BOOL, false);
  return id < 0 ? fallback : gguf_get_val_bool(gguf_, id);
}

std::string Metadata::text(std::string_view key) {
  const std::int64_t id = find_typed(key, GGUF_TYPE_STRING, true);
  return id < 0 ? std::string() : gguf_get_val_str(gguf_, id);
}

std::string Metadata::text(std::string_view key, std::string_view fallback) {
  const std::int64_t id = find_typed(key, GGUF_TYPE_STRING, false);
  return id < 0 ? std::string(fallback) : gguf_get_val_str(gguf_, id);
}

std::uint32_t Metadata::u32_of_all_layers(std::string_view key, std::uint32_t layers) {
  const std::int64_t id = find(key);
  if (id < 0 || gguf_get_kv_type(gguf_, id) != GGUF_TYPE_ARRAY) return u32(key);
  const gguf_type type = gguf_get_arr_type(gguf_, id);
  if (type != GGUF_TYPE_UINT32 && type != GGUF_TYPE_INT32)
    return wrong_type(key, "u32 or an array of them"), 0;
  if (layers == 0 || gguf_get_arr_n(gguf_, id) != layers) {
    fail(ErrorCode::kInvalidFile, "metadata key '" + full_key(key) + "' has " +
                                      std::to_string(gguf_get_arr_n(gguf_, id)) + " numbers for " +
                                      std::to_string(layers) + " layers");
    return 0;
  }
  const auto* values = static_cast<const std::uint32_t*>(gguf_get_arr_data(gguf_, id));
  for (std::uint32_t i = 1; i < layers; ++i) {
    if (values[i] == values[0]) continue;
    fail(ErrorCode::kUnsupported, "metadata key '" + full_key(key) + "' differs between layers");
    return 0;
  }
  return values[0];
}

std::uint32_t Metadata::u32_of_all_layers(std::string_view key, std::uint32_t layers,
                                          std::uint32_t fallback) {
  return has(key) ? u32_of_all_layers(key, layers) : fallback;
}

std::vector<bool> Metadata::flags(std::string_view key, std::size_t count) {
  const std::int64_t id = find(key);
  if (id < 0 || gguf_get_kv_type(gguf_, id) != GGUF_TYPE_ARRAY) return {};
  if (gguf_get_arr_type(gguf_, id) != GGUF_TYPE_BOOL || gguf_get_arr_n(gguf_, id) != count) {
    fail(ErrorCode::kInvalidFile,
         "metadata key '" + full_key(key) + "' must be an array of " + std::to_string(count) + " booleans");
    return {};
  }
  const auto* values = static_cast<const std::int8_t*>(gguf_get_arr_data(gguf_, id));
  return std::vector<bool>(values, values + count);
}

}  // namespace keynest
