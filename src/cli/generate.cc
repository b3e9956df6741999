#include "cli/generate.h"

#include "cli/interrupt.h"
#include "cli/progress.h"
#include "cli/text_stream.h"

namespace keynest::cli {
namespace {

/// The text of a reply: remembered, and streamed as far as it is certain.
class Writer {
 public:
  Writer(const std::vector<std::string>& stops, Output& output, Reply& reply)
      : stream_(stops), output_(output), reply_(reply) {}

  Status push(std::string_view piece) { return emit(stream_.push(piece)); }
  Status finish() { return emit(stream_.finish()); }
  bool stopped() const { return stream_.stopped(); }

 private:
  Status emit(const std::string& text) {
    reply_.text += text;
    return output_.write(text);
  }

  TextStream stream_;
  Output& output_;
  Reply& reply_;
};

/// Generates until something ends the text, and says what.
Result<Finish> write_tokens(const Model& model, Session& session, const GenerateOptions& options,
                            Output& output, Writer& writer, Reply& reply) {
  for (;;) {
    if (interrupted()) return Finish::kInterrupted;
    if (output.closed()) return Finish::kClosed;
    const bool limited = options.max_tokens >= 0;
    if (limited && reply.tokens >= options.max_tokens) return Finish::kLimit;
    const Token token = session.sample(options.sampling);
    if (model.is_end(token) && !options.ignore_eos) return Finish::kEnd;
    ++reply.tokens;
    KEYNEST_TRY(writer.push(model.piece(token)));
    const bool last = writer.stopped() || (limited && reply.tokens >= options.max_tokens);
    if (!last || options.keep_last) KEYNEST_TRY(session.decode(token));
    if (writer.stopped()) return Finish::kStop;
  }
}

}  // namespace

Status process_prompt(Session& session, std::span<const Token> tokens, Output& output, bool show_progress) {
  ProgressBar bar(show_progress);
  return session.prefill(tokens, [&](std::int64_t done, std::int64_t total) {
    if (bar.due(done, total)) bar.draw(done, total, session.stats().cache.bytes);
    return !interrupted() && !output.closed();
  });
}

Status generate(const Model& model, Session& session, const GenerateOptions& options, Output& output,
                Reply& reply) {
  Writer writer(options.stops, output, reply);
  auto finish = write_tokens(model, session, options, output, writer, reply);
  KEYNEST_TRY(writer.finish());
  if (!finish) return finish.error();
  reply.finish = *finish;
  return {};
}

}  // namespace keynest::cli
