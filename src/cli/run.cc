// keynest run: one prompt, one text.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <utility>

#include "cli/atomic_file.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/generate.h"
#include "cli/interrupt.h"
#include "cli/prompt.h"
#include "cli/protect.h"
#include "cli/report.h"
#include "cli/stats_json.h"
#include "cli/summary.h"

namespace keynest::cli {
namespace {

struct RunFlags {
  ModelFlags model;
  InputFlags input;
  TemplateFlags chat;
  CacheFlags cache;
  ProtectFlags protect;
  TextFlags text;
  TalkFlags talk;
  std::string stats;
};

/// What can be known before the model is loaded, so that a mistake costs no waiting.
struct Request {
  SessionOptions session;
  GenerateOptions generate;
  std::string chat_template;
  std::string text;
  Protection protection;
};

/// One run, once the model is there.
struct Run {
  const RunFlags& flags;
  const Request& request;
  std::shared_ptr<const Model> model;
  std::unique_ptr<Session> session;
  Output output;
  Reply reply;
};

Result<Request> check(const RunFlags& flags) {
  KEYNEST_TRY(check_chat(flags.chat));
  auto session = session_options(flags.cache);
  if (!session) return session.error();
  auto protection = parse_protection(flags.protect.words, !flags.chat.system.empty());
  if (!protection) return protection.error();
  auto stops = stop_strings(flags.text);
  if (!stops) return stops.error();
  auto chat_template = resolve_template(flags.chat.chat_template);
  if (!chat_template) return chat_template.error();
  if (!flags.stats.empty()) KEYNEST_TRY(check_writable(flags.stats));
  auto text = read_input(flags.input);
  if (!text) return text.error();
  const GenerateOptions generate{flags.text.sampling, flags.text.max_tokens, *stops, flags.text.ignore_eos,
                                 false};
  return Request{*session, generate, *chat_template, std::move(*text), std::move(*protection)};
}

Status write_stats(const Run& run) {
  if (run.flags.stats.empty()) return {};
  const RunRecord record{run.model->info().path, run.reply.text, run.reply.tokens};
  return write_whole_file(run.flags.stats, stats_json(run.session->stats(), record));
}

/// Summary and statistics. `work` tells how prompt and generation went; stopping early is no failure.
Result<int> close(Run& run, const Status& work) {
  const bool on_screen = is_terminal(kStandardOutput) && is_terminal(kStandardError);
  if (on_screen && run.output.mid_line()) std::fputc('\n', stderr);
  if (!work && work.error().code != ErrorCode::kCancelled) return work.error();
  const bool silent = run.flags.talk.quiet || run.output.closed();
  if (!silent) std::fputs(summary_text(run.session->stats(), run.reply.tokens).c_str(), stderr);
  KEYNEST_TRY(write_stats(run));
  return interrupted() ? kExitInterrupted : kExitOk;
}

Result<int> answer(Run& run) {
  const Model& model = *run.model;
  auto prompt = render_prompt(model, run.flags.chat, run.request.chat_template, run.request.text,
                              run.flags.talk.verbose);
  if (!prompt) return prompt.error();
  const std::vector<Token> tokens = prompt_tokens(model, *prompt);
  warn_if_beyond(model.info(), "prompt", static_cast<std::int64_t>(tokens.size()));
  auto session = Session::create(run.model, run.request.session);
  if (!session) return session.error();
  run.session = std::move(*session);
  KEYNEST_TRY(protect_prompt(*run.session, model, run.request.protection,
                             {run.flags.chat.system, run.request.chat_template, *prompt, tokens}));
  Status work = process_prompt(*run.session, tokens, run.output, !run.flags.talk.quiet);
  if (work) work = generate(model, *run.session, run.request.generate, run.output, run.reply);
  return close(run, work);
}

int run(const RunFlags& flags) {
  arm_interrupt();
  const auto request = check(flags);
  if (!request) return report(request.error());
  auto model = load_model(flags.model);
  if (!model) return report(model.error());
  if (interrupted()) return kExitInterrupted;
  if (flags.talk.verbose) remark("model " + describe((*model)->info()));
  Run job{flags, *request, *model, nullptr, {}, {}};
  const auto code = answer(job);
  return code ? *code : report(code.error());
}

std::string footer() {
  return R"(The prompt is the files one after the other, then the text of -p; standard input if neither is given. It is put
into a chat template with --chat; without --chat and --no-chat that happens when --chat-template or --system is
given, when the model file carries a template, or when its name says "instruct", "chat" or "it".

Examples:
  Ask about a long document, keeping 2048 entries per layer and head:
    keynest run -m qwen2.5-coder-0.5b.gguf -f report.txt -p "What was decided in May?" --budget 2048
  Continue a text as it is, in at most 64 MiB of cache:
    keynest run -m gemma-3-270m.gguf --no-chat -f novel.txt --budget 64MiB -n 200 --temp 0.8 --seed 7
  Compare with the full cache, numbers as JSON, text only on standard output:
    cat report.txt | keynest run -m model.gguf --policy full --stats full.json -q > answer.txt

)" + policy_footer();
}

}  // namespace

void add_run(CLI::App& app, Context& context) {
  auto flags = std::make_shared<RunFlags>();
  auto prompt = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand("run", "Process a prompt of any length and generate text");
  declare(*command, flags->model);
  declare(*command, flags->input, *prompt);
  declare_chat(*command, flags->chat);
  declare(*command, flags->chat);
  declare(*command, flags->cache);
  declare(*command, flags->protect);
  declare(*command, flags->text);
  declare(*command, flags->talk);
  command
      ->add_option("--stats", flags->stats, "Write what happened as JSON to this file; - for standard error")
      ->type_name("FILE")
      ->group("Messages");
  command->footer(footer);
  command->callback([command, flags, prompt, &context] {
    if (command->count("--prompt") > 0) flags->input.prompt = *prompt;
    context.work = [flags] { return run(*flags); };
  });
}

}  // namespace keynest::cli
