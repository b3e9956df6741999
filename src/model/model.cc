#include "keynest/model.h"

#include <exception>
#include <filesystem>
#include <future>
#include <new>

#include "kernels/matmul.h"
#include "model/architecture.h"
#include "model/chat_template.h"
#include "model/engine_guard.h"
#include "model/gguf_file.h"
#include "model/hparams.h"
#include "model/vocabulary.h"
#include "model/vocabulary_check.h"

namespace keynest {
namespace {

constexpr std::size_t kNodesPerLayer = 64;  // ours are below 40; the rest is for what the binding adds
constexpr std::size_t kNodesAround = 64;

class GgufModel : public GraphModel {
 public:
  static Result<std::shared_ptr<const Model>> load(const std::string& path, const ModelOptions& options);

  const ModelInfo& info() const override { return info_; }
  const Hparams& hparams() const override { return hparams_; }
  const llama_vocab* vocab() const override { return vocabulary_->get(); }

  std::vector<Token> tokenize(std::string_view text, bool add_special, bool parse_special) const override {
    return vocabulary_->tokenize(text, add_special, parse_special);
  }
  std::string piece(Token token, bool special) const override { return vocabulary_->piece(token, special); }
  bool is_end(Token token) const override { return vocabulary_->is_end(token); }
  std::string chat_template() const override { return chat_template_; }

  Result<std::string> apply_chat_template(const std::vector<ChatMessage>& messages, bool add_assistant,
                                          const std::string& chat_template) const override {
    const std::string& own = chat_template_.empty() ? kDefaultTemplate : chat_template_;
    return render_chat(messages, add_assistant, chat_template.empty() ? own : chat_template);
  }

  StepGraph build(ggml_context* context, const StepShape& shape, AttentionBinding& binding) const override {
    StepBuilder step(context, shape, hparams_, binding, graph_nodes());
    return network_->build(step);
  }
  RopeRotation rope_rotation(int layer) const override { return network_->rope_rotation(layer); }
  std::size_t graph_nodes() const override {
    return static_cast<std::size_t>(hparams_.layers) * kNodesPerLayer + kNodesAround;
  }

 private:
  Status read(GgufFile& file, const ModelOptions& options);
  void fill_info(Metadata& metadata, const GgufFile& file);

  inline static const std::string kDefaultTemplate = "chatml";

  ModelInfo info_;
  Hparams hparams_;
  std::string chat_template_;
  Weights weights_;
  std::unique_ptr<Network> network_;
  std::unique_ptr<Vocabulary> vocabulary_;
};

Error unknown_architecture(const std::string& name) {
  std::string known;
  for (const std::string_view each : architecture_names())
    known += (known.empty() ? "" : ", ") + std::string(each);
  return {ErrorCode::kUnsupported, "architecture '" + name + "' is not supported; supported are: " + known};
}

Result<std::shared_ptr<const Model>> GgufModel::load(const std::string& path, const ModelOptions& options) {
  auto file = GgufFile::open(path, options.use_mmap);
  if (!file) return file.error();
  auto model = std::make_shared<GgufModel>();
  model->info_.path = path;
  if (Status status = model->read(**file, options); !status) {
    return Error{status.error().code, "model file '" + path + "': " + status.error().message};
  }
  return std::shared_ptr<const Model>(std::move(model));
}

Status GgufModel::read(GgufFile& file, const ModelOptions& options) {
  Metadata general(file.gguf(), "");
  const std::string architecture = general.text("general.architecture");
  if (general.has("split.count"))
    general.fail(ErrorCode::kUnsupported, "models split over files are not supported");
  KEYNEST_TRY(general.status());
  const CreateNetwork create = find_architecture(architecture);
  if (create == nullptr) return unknown_architecture(architecture);

  Metadata metadata(file.gguf(), architecture);
  hparams_ = read_hparams(metadata);
  check_vocabulary(metadata);
  KEYNEST_TRY(metadata.status());
  if (options.gemm == Gemm::kBf16 && !bf16_matmul_supported()) {
    return Error{ErrorCode::kUnsupported,
                 "products in BF16 were asked for, which this CPU cannot multiply (no AVX-512 BF16); choose "
                 "auto, native or ggml"};
  }
  hparams_.gemm = options.gemm;
  WeightTable table(file, options.repack, options.gemm);
  network_ = create(metadata, hparams_, table);
  fill_info(metadata, file);
  info_.gemm = table.multiplies_natively() ? "native" : "ggml";
  KEYNEST_TRY(metadata.status());
  KEYNEST_TRY(table.status());

  // The two take about as long as each other.
  auto vocabulary = std::async(std::launch::async, [&] {
    const AbortGuard guard;
    return Vocabulary::load(file.gguf());
  });
  auto weights = table.load(file.release_data());
  auto loaded = vocabulary.get();
  if (!loaded) return loaded.error();
  if (!weights) return weights.error();
  vocabulary_ = std::move(loaded).value();
  weights_ = std::move(weights).value();
  return {};
}

void GgufModel::fill_info(Metadata& metadata, const GgufFile& file) {
  chat_template_ = metadata.text("tokenizer.chat_template", "");
  info_.name = metadata.text("general.name", std::filesystem::path(info_.path).stem().string());
  info_.architecture = metadata.architecture();
  info_.layers = hparams_.layers;
  info_.heads = hparams_.heads;
  info_.kv_heads = hparams_.kv_heads;
  info_.head_dim = hparams_.head_dim;
  info_.vocabulary = hparams_.vocabulary;
  info_.trained_context = hparams_.trained_context;
  info_.layer_windows = hparams_.layer_windows;
  for (std::int64_t id = 0; id < file.tensor_count(); ++id) info_.weight_bytes += file.tensor(id).bytes;
}

}  // namespace

Result<std::shared_ptr<const Model>> Model::load(const std::string& path, const ModelOptions& options) {
  const std::string file = "model file '" + path + "': ";
  try {
    const AbortGuard guard;
    return GgufModel::load(path, options);
  } catch (const EngineAbort& error) {
    return Error{ErrorCode::kInvalidFile, file + "the engine refused it: " + error.what()};
  } catch (const std::bad_alloc&) {
    return Error{ErrorCode::kOutOfMemory, file + "not enough memory to load it"};
  } catch (const std::exception& error) {
    return Error{ErrorCode::kInternal, file + error.what()};
  }
}

}  // namespace keynest
