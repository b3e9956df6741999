// keynest chat: a conversation over one kept, bounded cache.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <cstdio>
#include <memory>
#include <utility>

#include "cli/commands.h"
#include "cli/conversation.h"
#include "cli/flags.h"
#include "cli/generate.h"
#include "cli/interrupt.h"
#include "cli/line_reader.h"
#include "cli/prompt.h"
#include "cli/protect.h"
#include "cli/report.h"
#include "cli/summary.h"

namespace keynest::cli {
namespace {

struct ChatFlags {
  ModelFlags model;
  std::vector<std::string> files;
  TemplateFlags chat;
  CacheFlags cache;
  ProtectFlags protect;
  TextFlags text;
  TalkFlags talk;
};

struct Request {
  SessionOptions session;
  GenerateOptions generate;
  std::string chat_template;
  std::string document;  ///< precedes the first message
  Protection protection;
};

constexpr const char* kCommands = R"(  /help   this list
  /stats  tokens, speed and cache so far
  /reset  forget the conversation and start anew
  /exit   leave (Ctrl-D too)
A backslash at the end of a line continues the message on the next one. Ctrl-C stops a reply.
)";

/// "/word" and nothing else.
bool is_command(const std::string& line) {
  return line.size() > 1 && line[0] == '/' &&
         std::all_of(line.begin() + 1, line.end(), [](unsigned char c) { return std::isalpha(c) != 0; });
}

class Chat {
 public:
  Chat(const ChatFlags& flags, Request request, std::shared_ptr<const Model> model)
      : flags_(flags),
        request_(std::move(request)),
        model_(std::move(model)),
        conversation_(*model_, request_.chat_template, flags.chat.system),
        interactive_(is_terminal(kStandardInput)) {}

  /// Errors as Session::create.
  Status start();

  /// Talks until the input ends.
  Result<int> talk();

 private:
  void prompt(bool continuation) const;
  bool run_command(const std::string& line);
  Result<std::vector<Token>> tokens_of(const std::string& line);
  Status take_turn(const std::string& line);
  Status feed();
  Status settle(Status turn);
  void show_summary() const;

  const ChatFlags& flags_;
  Request request_;
  std::shared_ptr<const Model> model_;
  std::unique_ptr<Session> session_;
  Conversation conversation_;
  std::vector<Token>
      pending_;  ///< said, but not yet in the cache: a turn that was stopped goes on with the next
  Output output_;
  std::int64_t generated_ = 0;
  bool interactive_;
  bool warned_ = false;
  bool done_ = false;
};

Status Chat::start() {
  auto session = Session::create(model_, request_.session);
  if (!session) return session.error();
  session_ = std::move(*session);
  conversation_.reset();
  pending_.clear();
  generated_ = 0;
  warned_ = false;
  return protect_ranges(*session_, request_.protection);
}

void Chat::prompt(bool continuation) const {
  if (!interactive_) return;
  std::fputs(continuation ? "| " : "> ", stderr);
  std::fflush(stderr);
}

void Chat::show_summary() const { std::fputs(summary_text(session_->stats(), generated_).c_str(), stderr); }

/// True when the conversation goes on.
bool Chat::run_command(const std::string& line) {
  if (line == "/exit" || line == "/quit") return false;
  if (line == "/stats") {
    show_summary();
  } else if (line == "/help") {
    std::fputs(kCommands, stderr);
  } else if (line == "/reset") {
    const Status started = start();
    if (!started) report(started.error());
  } else {
    remark("there is no command " + line + "; /help lists them");
  }
  return true;
}

Result<std::vector<Token>> Chat::tokens_of(const std::string& line) {
  const bool first = conversation_.empty();
  auto text = conversation_.add_user(first ? join_parts({request_.document, line}) : line);
  if (!text) return text.error();
  if (!first) return model_->tokenize(*text, false, true);
  std::vector<Token> tokens = prompt_tokens(*model_, *text);
  if (request_.protection.system) {
    const auto range = system_range(*model_, {flags_.chat.system, request_.chat_template, *text, tokens});
    if (!range) return range.error();
    KEYNEST_TRY(session_->protect(*range));
  }
  return tokens;
}

/// Puts what is pending into the cache; what was not processed stays pending.
Status Chat::feed() {
  const std::int64_t before = session_->seen();
  Status fed = process_prompt(*session_, pending_, output_, !flags_.talk.quiet);
  pending_.erase(pending_.begin(), pending_.begin() + (session_->seen() - before));
  return fed;
}

Status Chat::take_turn(const std::string& line) {
  auto tokens = tokens_of(line);
  if (!tokens) return tokens.error();
  pending_.insert(pending_.end(), tokens->begin(), tokens->end());
  const auto after = session_->seen() + static_cast<std::int64_t>(pending_.size());
  if (!warned_) warned_ = warn_if_beyond(model_->info(), "conversation", after);
  Reply reply;
  Status turn = feed();
  if (turn) turn = generate(*model_, *session_, request_.generate, output_, reply);
  generated_ += reply.tokens;
  conversation_.add_reply(std::move(reply.text));
  KEYNEST_TRY(output_.write("\n"));
  return turn;
}

/// After a turn: Ctrl-C and errors end it, not the conversation, as long as somebody sits there.
Status Chat::settle(Status turn) {
  const bool stopped = interrupted();
  if (stopped && !interactive_) return Error{ErrorCode::kCancelled, "interrupted"};
  if (stopped) arm_interrupt();
  if (output_.closed()) done_ = true;
  if (turn || turn.error().code == ErrorCode::kCancelled) return {};
  if (!interactive_ || turn.error().code == ErrorCode::kIo) return turn;
  report(turn.error());
  remark("/reset starts a new conversation");
  return {};
}

Result<int> Chat::talk() {
  LineReader reader(kStandardInput);
  if (interactive_ && !flags_.talk.quiet) remark("type a message; /help lists the commands, Ctrl-D leaves");
  while (!done_) {
    auto line = read_message(reader, [this](bool continuation) { prompt(continuation); });
    if (!line) return line.error();
    if (!*line) break;
    if ((*line)->empty()) continue;
    if (is_command(**line)) {
      done_ = !run_command(**line);
    } else {
      KEYNEST_TRY(settle(take_turn(**line)));
    }
  }
  if (!flags_.talk.quiet && !output_.closed()) show_summary();
  return kExitOk;
}

Result<std::string> read_document(const std::vector<std::string>& files) {
  std::vector<std::string> parts;
  for (const std::string& file : files) {
    if (file == "-") return invalid_argument("-f - is not possible here: standard input is the conversation");
    auto text = read_file(file);
    if (!text) return text.error();
    parts.push_back(std::move(*text));
  }
  return join_parts(parts);
}

Result<Request> check(const ChatFlags& flags) {
  auto session = session_options(flags.cache);
  if (!session) return session.error();
  auto protection = parse_protection(flags.protect.words, !flags.chat.system.empty());
  if (!protection) return protection.error();
  auto stops = stop_strings(flags.text);
  if (!stops) return stops.error();
  auto chat_template = resolve_template(flags.chat.chat_template);
  if (!chat_template) return chat_template.error();
  auto document = read_document(flags.files);
  if (!document) return document.error();
  const GenerateOptions generate{flags.text.sampling, flags.text.max_tokens, *stops, flags.text.ignore_eos,
                                 true};
  return Request{*session, generate, *chat_template, std::move(*document), std::move(*protection)};
}

Result<int> chat(const ChatFlags& flags) {
  auto request = check(flags);
  if (!request) return request.error();
  auto model = load_model(flags.model);
  if (!model) return model.error();
  if (interrupted()) return kExitInterrupted;
  if (flags.talk.verbose) remark("model " + describe((*model)->info()));
  if (request->chat_template.empty()) {
    request->chat_template = fallback_template((*model)->info(), !(*model)->chat_template().empty());
  }
  Chat conversation(flags, std::move(*request), *model);
  KEYNEST_TRY(conversation.start());
  return conversation.talk();
}

std::string footer() {
  return R"(Each message adds only its own tokens to the cache, which stays within the budget however long the conversation
gets. Within the conversation:
)" + std::string(kCommands) +
         R"(
Examples:
  Talk to a model, its cache bounded at 1024 entries per layer and head:
    keynest chat -m SmolLM2-135M-Instruct.gguf --budget 1024 --temp 0.7
  Talk about a book; it is read with the first question:
    keynest chat -m qwen2.5-coder-0.5b.gguf -f book.txt --budget 64MiB --system "Answer briefly."
  Two questions from a script, replies only:
    printf 'Name a river.\nAnd its length?\n' | keynest chat -m model.gguf -q

)" + policy_footer();
}

}  // namespace

void add_chat(CLI::App& app, Context& context) {
  auto flags = std::make_shared<ChatFlags>();
  CLI::App* command = app.add_subcommand("chat", "Talk to a model in several turns over one bounded cache");
  declare(*command, flags->model);
  command
      ->add_option("-f,--file", flags->files,
                   "Text file that precedes the first message; may be given several "
                   "times")
      ->type_name("FILE")
      ->allow_extra_args(false)
      ->group("Conversation");
  declare(*command, flags->chat);
  declare(*command, flags->cache);
  declare(*command, flags->protect);
  declare(*command, flags->text);
  declare(*command, flags->talk);
  command->footer(footer);
  command->callback([flags, &context] {
    context.work = [flags] {
      arm_interrupt();
      const auto code = chat(*flags);
      return code ? *code : report(code.error());
    };
  });
}

}  // namespace keynest::cli
