#include "model/weights.h"

#include <ggml-alloc.h>
#include <ggml-cpu.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <thread>

#include "model/products.h"

namespace keynest {
namespace {

constexpr std::size_t kTensorAlignment = 32;  // what ggml's kernels expect of a tensor's data

ggml_backend_dev_t cpu_device() { return ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU); }

/// ggml's own list of rearranged memory kinds (AMX, repacked, ...), best first.
std::vector<ggml_backend_buffer_type_t> list_extra_types() {
  std::vector<ggml_backend_buffer_type_t> types;
  ggml_backend_dev_t device = cpu_device();
  if (device == nullptr) return types;
  auto get = reinterpret_cast<ggml_backend_dev_get_extra_bufts_t>(ggml_backend_reg_get_proc_address(
      ggml_backend_dev_backend_reg(device), "ggml_backend_dev_get_extra_bufts"));
  if (get == nullptr) return types;
  for (ggml_backend_buffer_type_t* type = get(device); type != nullptr && *type != nullptr; ++type) {
    types.push_back(*type);
  }
  return types;
}

/// Asks ggml whether `use` of such a tensor would run from memory of this type, for a batch of tokens.
bool usable(const TensorInfo& info, WeightUse use, ggml_backend_buffer_type_t type) {
  constexpr std::int64_t kTokens = 512;
  const ggml_init_params params{ggml_tensor_overhead() * 8, nullptr, true};
  const std::unique_ptr<ggml_context, decltype(&ggml_free)> context(ggml_init(params), ggml_free);
  const std::unique_ptr<ggml_backend_buffer, decltype(&ggml_backend_buffer_free)> buffer(
      ggml_backend_buft_alloc_buffer(type, 0), ggml_backend_buffer_free);
  ggml_tensor* weight = ggml_new_tensor(context.get(), info.type, GGML_MAX_DIMS, info.shape.data());
  ggml_tensor* op =
      use == WeightUse::kLookup
          ? ggml_get_rows(context.get(), weight, ggml_new_tensor_1d(context.get(), GGML_TYPE_I32, kTokens))
          : ggml_mul_mat(context.get(), weight,
                         ggml_new_tensor_2d(context.get(), GGML_TYPE_F32, info.shape[0], kTokens));
  weight->buffer = buffer.get();
  return ggml_backend_dev_supports_op(cpu_device(), op);
}

bool type_fits(ggml_type type, WeightUse use) {
  if (type == GGML_TYPE_F32) return true;
  if (use == WeightUse::kVector) return false;
  return ggml_get_type_traits_cpu(type)->vec_dot != nullptr &&
         ggml_get_type_traits(type)->to_float != nullptr;
}

/// Calls work(0) .. work(count - 1) from a few threads. Rearranging weights takes longer than reading them.
void for_each_in_parallel(std::size_t count, const std::function<void(std::size_t)>& work) {
  std::atomic<std::size_t> next = 0;
  const auto run = [&] {
    for (std::size_t i = next++; i < count; i = next++) work(i);
  };
  const std::size_t threads = std::min<std::size_t>({count, std::thread::hardware_concurrency(), 8});
  std::vector<std::jthread> others;
  for (std::size_t i = 1; i < threads; ++i) others.emplace_back(run);
  run();
}

std::string print(std::span<const std::int64_t> shape) {
  std::size_t used = shape.size();
  while (used > 1 && shape[used - 1] == 1) --used;
  std::string text;
  for (std::size_t i = 0; i < used; ++i) text += (i == 0 ? "[" : ", ") + std::to_string(shape[i]);
  return text + "]";
}

}  // namespace

WeightTable::WeightTable(const GgufFile& file, bool repack, Gemm gemm)
    : file_(file), gemm_(gemm), taken_(static_cast<std::size_t>(file.tensor_count())) {
  if (repack) extra_types_ = list_extra_types();
}

void WeightTable::fail(ErrorCode code, const std::string& message) {
  if (status_.ok()) status_ = Error{code, message};
}

void WeightTable::ignore(const std::string& name) {
  if (const std::int64_t id = file_.find_tensor(name); id >= 0) taken_[static_cast<std::size_t>(id)] = true;
}

WeightTable::Group& WeightTable::group(ggml_backend_buffer_type_t type) {
  for (Group& group : groups_) {
    if (group.type == type) return group;
  }
  const std::size_t tensors = static_cast<std::size_t>(file_.tensor_count()) + 1;
  const ggml_init_params params{ggml_tensor_overhead() * tensors, nullptr, true};
  Group& added = groups_.emplace_back();
  added.type = type;
  added.context.reset(ggml_init(params));
  return added;
}

/// `native`: keynest's own products read it, which do so as the file has it.
ggml_backend_buffer_type_t WeightTable::choose(const TensorInfo& info, WeightUse use, bool native) const {
  if (use != WeightUse::kVector && !native) {
    for (ggml_backend_buffer_type_t type : extra_types_) {
      if (usable(info, use, type)) return type;
    }
  }
  return info.offset % kTensorAlignment == 0 ? nullptr : ggml_backend_cpu_buffer_type();
}

bool WeightTable::check(const std::string& name, const TensorInfo& info,
                        std::initializer_list<std::int64_t> shape, WeightUse use) {
  std::array<std::int64_t, GGML_MAX_DIMS> wanted;
  wanted.fill(1);
  std::copy(shape.begin(), shape.end(), wanted.begin());
  if (wanted != info.shape) {
    fail(ErrorCode::kInvalidFile,
         "tensor '" + name + "' has shape " + print(info.shape) + "; the metadata asks for " + print(wanted));
    return false;
  }
  if (!type_fits(info.type, use)) {
    fail(ErrorCode::kUnsupported, "tensor '" + name + "' has type " + ggml_type_name(info.type) +
                                      ", which cannot be used there" +
                                      (use == WeightUse::kVector ? "; it must be f32" : ""));
    return false;
  }
  return true;
}

ggml_tensor* WeightTable::take(const std::string& name, std::initializer_list<std::int64_t> shape,
                               WeightUse use) {
  if (!has(name)) fail(ErrorCode::kInvalidFile, "tensor '" + name + "' is missing");
  return take_optional(name, shape, use);
}

ggml_tensor* WeightTable::take_optional(const std::string& name, std::initializer_list<std::int64_t> shape,
                                        WeightUse use) {
  const std::int64_t id = file_.find_tensor(name);
  if (id < 0 || !status_.ok()) return nullptr;
  const TensorInfo info = file_.tensor(id);
  if (!check(name, info, shape, use)) return nullptr;
  taken_[static_cast<std::size_t>(id)] = true;
  const bool native = use == WeightUse::kMatrix && keynest::multiplies_natively(gemm_, info.type);
  multiplies_natively_ |= native;
  Group& group = this->group(choose(info, use, native));
  for (const auto& [tensor, taken_id] : group.tensors) {
    if (taken_id == id) return tensor;
  }
  ggml_tensor* tensor = ggml_new_tensor(group.context.get(), info.type, GGML_MAX_DIMS, info.shape.data());
  ggml_set_name(tensor, name.c_str());
  group.tensors.emplace_back(tensor, id);
  return tensor;
}

Status WeightTable::check_all_taken() const {
  for (std::size_t id = 0; id < taken_.size(); ++id) {
    if (taken_[id]) continue;
    return Error{ErrorCode::kUnsupported,
                 std::string("tensor '") + gguf_get_tensor_name(file_.gguf(), static_cast<std::int64_t>(id)) +
                     "' is not part of the architecture as supported here"};
  }
  return {};
}

Status WeightTable::bind_mapping(Weights& weights, Group& group) const {
  const std::span<const std::byte> bytes = weights.data_->bytes();
  // ggml's buffers have no read-only kind; the graph never writes to a weight.
  auto* base = const_cast<std::byte*>(bytes.data());
  auto& buffer = weights.buffers_.emplace_back(ggml_backend_cpu_buffer_from_ptr(base, bytes.size()));
  if (!buffer) return Error{ErrorCode::kOutOfMemory, "no memory for a buffer's description"};
  ggml_backend_buffer_set_usage(buffer.get(), GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
  for (const auto& [tensor, id] : group.tensors) {
    const TensorInfo info = file_.tensor(id);
    if (ggml_backend_tensor_alloc(buffer.get(), tensor, base + info.offset) != GGML_STATUS_SUCCESS) {
      return Error{ErrorCode::kInternal, std::string("tensor '") + tensor->name + "' could not be bound"};
    }
  }
  return {};
}

Status WeightTable::copy(Weights& weights, Group& group) const {
  auto& buffer = weights.buffers_.emplace_back(
      ggml_backend_alloc_ctx_tensors_from_buft(group.context.get(), group.type));
  if (!buffer) {
    return Error{ErrorCode::kOutOfMemory, std::string("no memory for weights of kind ") +
                                              ggml_backend_buft_name(group.type) +
                                              "; try without repacking, which keeps them mapped"};
  }
  ggml_backend_buffer_set_usage(buffer.get(), GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
  const std::byte* base = weights.data_->bytes().data();
  for_each_in_parallel(group.tensors.size(), [&](std::size_t i) {
    const auto& [tensor, id] = group.tensors[i];
    const TensorInfo info = file_.tensor(id);
    ggml_backend_tensor_set(tensor, base + info.offset, 0, info.bytes);
  });
  return {};
}

void WeightTable::settle_memory(const MappedFile& data) const {
  std::vector<std::pair<std::size_t, std::size_t>> mapped;
  for (const Group& group : groups_) {
    if (group.type != nullptr) continue;
    for (const auto& [tensor, id] : group.tensors) {
      const TensorInfo info = file_.tensor(id);
      mapped.emplace_back(info.offset, info.offset + info.bytes);
    }
  }
  std::sort(mapped.begin(), mapped.end());
  std::size_t begin = 0;
  for (const auto& [first, last] : mapped) {
    data.release(begin, first);
    data.populate(first, last);
    begin = std::max(begin, last);
  }
  data.release(begin, data.bytes().size());
}

Result<Weights> WeightTable::load(std::unique_ptr<MappedFile> data) {
  KEYNEST_TRY(status_);
  KEYNEST_TRY(check_all_taken());
  Weights weights;
  weights.data_ = std::move(data);
  weights.data_->prefetch(0, weights.data_->bytes().size());
  for (Group& group : groups_) {
    KEYNEST_TRY(group.type == nullptr ? bind_mapping(weights, group) : copy(weights, group));
  }
  settle_memory(*weights.data_);
  for (Group& group : groups_) weights.contexts_.push_back(std::move(group.context));
  return weights;
}

}  // namespace keynest
