// keynest inspect: one prompt under one or several policies, and what each head kept of it.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <utility>

#include "cli/atomic_file.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/format.h"
#include "cli/generate.h"
#include "cli/inspection.h"
#include "cli/interrupt.h"
#include "cli/prompt.h"
#include "cli/protect.h"
#include "cli/report.h"
#include "cli/summary.h"

namespace keynest::cli {
namespace {

constexpr const char* kDefaultPage = "inspect.html";

struct InspectFlags {
  ModelFlags model;
  InputFlags input;
  TemplateFlags chat;
  CacheFlags cache;
  ProtectFlags protect;
  std::vector<std::string> policies;
  TalkFlags talk;
  std::string json, html;
};

/// What can be known before the model is loaded, so that a mistake costs no waiting.
struct Request {
  std::vector<SessionOptions> sessions;  // one a policy
  std::string chat_template, text;
  std::string json, html;  // empty: not wanted
  Protection protection;
};

Result<std::vector<SessionOptions>> all_sessions(const InspectFlags& flags) {
  std::vector<SessionOptions> sessions;
  CacheFlags cache = flags.cache;
  const std::vector<std::string> standard{cache.policy};
  for (const std::string& policy : flags.policies.empty() ? standard : flags.policies) {
    cache.policy = policy;
    auto options = session_options(cache);
    if (!options) return options.error();
    options->record_scores = true;
    const auto same = [&](const SessionOptions& other) { return other.policy == options->policy; };
    if (std::any_of(sessions.begin(), sessions.end(), same)) {
      return invalid_argument("--policy " + policy + " is given twice; give every policy once");
    }
    sessions.push_back(*options);
  }
  return sessions;
}

/// "-" is standard output, which is always there.
Status check_output(const std::string& path) {
  if (path.empty()) return {};
  return check_writable(path);
}

Result<Request> check(const InspectFlags& flags) {
  KEYNEST_TRY(check_chat(flags.chat));
  if (flags.json == "-" && flags.html == "-") {
    return invalid_argument("--json - and --html - both write to standard output; give one of them a file");
  }
  auto sessions = all_sessions(flags);
  if (!sessions) return sessions.error();
  auto protection = parse_protection(flags.protect.words, !flags.chat.system.empty());
  if (!protection) return protection.error();
  auto chat_template = resolve_template(flags.chat.chat_template);
  if (!chat_template) return chat_template.error();
  Request request{std::move(*sessions), *chat_template, {}, flags.json, flags.html, std::move(*protection)};
  if (request.json.empty() && request.html.empty()) request.html = kDefaultPage;
  KEYNEST_TRY(check_output(request.json));
  KEYNEST_TRY(check_output(request.html));
  auto text = read_input(flags.input);
  if (!text) return text.error();
  request.text = std::move(*text);
  return request;
}

void tell(const InspectedRun& run, std::size_t tokens) {
  const Stats& stats = run.stats;
  remark(stats.policy + ": " + format_tokens(static_cast<std::int64_t>(tokens)) + ", " +
         (stats.budget > 0 ? "budget " + std::to_string(stats.budget) : std::string("no budget")) +
         ", cache " + format_bytes(stats.cache.bytes) + " of " + format_bytes(stats.cache.full_bytes));
  if (stats.evictions > 0 || stats.budget == 0) return;
  remark(stats.policy + ": nothing was evicted, the prompt fits the budget; give a smaller --budget");
}

/// One prompt for all policies.
struct Work {
  const std::shared_ptr<const Model>& model;
  const std::vector<Token>& tokens;
  const Protection& protection;
  SystemPrompt prompt;
  bool quiet;
};

Result<InspectedRun> inspect(const Work& work, const SessionOptions& options) {
  auto session = Session::create(work.model, options);
  if (!session) return session.error();
  KEYNEST_TRY(protect_prompt(**session, *work.model, work.protection, work.prompt));
  Output output;
  KEYNEST_TRY(process_prompt(**session, work.tokens, output, !work.quiet));
  auto run = read_heads(**session, work.model->info());
  if (run && !work.quiet) tell(*run, work.tokens.size());
  return run;
}

Result<Inspection> inspect_all(const InspectFlags& flags, const Request& request,
                               const std::shared_ptr<const Model>& model) {
  auto prompt = render_prompt(*model, flags.chat, request.chat_template, request.text, flags.talk.verbose);
  if (!prompt) return prompt.error();
  Inspection inspection{model->info(), prompt_tokens(*model, *prompt), {}, {}};
  const auto count = static_cast<std::int64_t>(inspection.tokens.size());
  warn_if_beyond(model->info(), "prompt", count);
  inspection.pieces = token_texts(*model, inspection.tokens);
  const Work work{model,
                  inspection.tokens,
                  request.protection,
                  {flags.chat.system, request.chat_template, *prompt, inspection.tokens},
                  flags.talk.quiet};
  for (const SessionOptions& options : request.sessions) {
    auto run = inspect(work, options);
    if (!run) return run.error();
    inspection.runs.push_back(std::move(*run));
  }
  return inspection;
}

Status write(const std::string& path, const std::string& content, bool quiet) {
  if (path == "-") return Output().write(content);
  KEYNEST_TRY(write_whole_file(path, content));
  if (!quiet) remark("wrote " + path + " (" + format_bytes(content.size()) + ")");
  return {};
}

Status write_all(const Request& request, const Inspection& inspection, bool quiet) {
  if (!request.json.empty()) KEYNEST_TRY(write(request.json, inspection_json(inspection), quiet));
  if (!request.html.empty()) KEYNEST_TRY(write(request.html, inspection_page(inspection), quiet));
  return {};
}

int run(const InspectFlags& flags) {
  arm_interrupt();
  const auto request = check(flags);
  if (!request) return report(request.error());
  auto model = load_model(flags.model);
  if (!model) return report(model.error());
  if (flags.talk.verbose) remark("model " + describe((*model)->info()));
  const auto inspection = inspect_all(flags, *request, *model);
  if (interrupted()) return kExitInterrupted;
  if (!inspection) return report(inspection.error());
  const Status written = write_all(*request, *inspection, flags.talk.quiet);
  return written ? kExitOk : report(written.error());
}

std::string footer() {
  return R"(Without --json and --html the page goes to inspect.html. It needs nothing beside itself: open it in any browser.

Examples:
  Two policies side by side, 256 entries per layer and head:
    keynest inspect -m qwen2.5-coder-0.5b.gguf -f report.txt --policy keydiff --policy tova --budget 256
  Numbers for another program:
    keynest inspect -m model.gguf -f report.txt --policy nestedkv --budget 25% --json - -q | jq '.runs[0].kept_share'

)" + policy_footer();
}

void declare_policies(CLI::App& command, InspectFlags& flags) {
  // One policy becomes several, and nothing is generated.
  for (const char* name : {"--policy", "--decode-block"}) command.remove_option(command.get_option(name));
  command
      .add_option("--policy", flags.policies,
                  "What the cache keeps; see the list below; may be given several times")
      ->type_name("SPEC")
      ->default_str(flags.cache.policy)
      ->allow_extra_args(false)
      ->group("Cache");
}

void declare_output(CLI::App& command, InspectFlags& flags) {
  command.add_option("--html", flags.html, "Write the page to this file; - for standard output")
      ->type_name("FILE")
      ->group("Output");
  command.add_option("--json", flags.json, "Write the numbers to this file; - for standard output")
      ->type_name("FILE")
      ->group("Output");
}

}  // namespace

void add_inspect(CLI::App& app, Context& context) {
  auto flags = std::make_shared<InspectFlags>();
  auto prompt = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand("inspect", "Show what policies keep of a prompt, head by head");
  declare(*command, flags->model);
  declare(*command, flags->input, *prompt);
  declare_chat(*command, flags->chat);
  declare(*command, flags->chat);
  declare(*command, flags->cache);
  declare(*command, flags->protect);
  declare_policies(*command, *flags);
  declare_output(*command, *flags);
  declare(*command, flags->talk);
  command->footer(footer);
  command->callback([command, flags, prompt, &context] {
    if (command->count("--prompt") > 0) flags->input.prompt = *prompt;
    context.work = [flags] { return run(*flags); };
  });
}

}  // namespace keynest::cli
