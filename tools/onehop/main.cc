// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <new>
#include <sstream>
#include <string>
#include <utility>

#include "onehop/error.h"

#include "base/check.h"
#include "base/nearest.h"
#include "base/variables.h"
#include "commands.h"
#include "launcher.h"
#include "origin.h"
#include "output.h"

namespace onehop::cli {
namespace {

constexpr const char* kFooter = R"(Try:
  onehop bench all-reduce                 verified sweep, 1 KB to 64 MB, 4 ranks on this machine
  onehop compare before.json after.json   two reports of 'bench --json', row by row
  onehop tune --out tuning.json           which algorithm is fastest here, as a table that groups can follow
  onehop tune --show                      the table that groups use here
  onehop launch -n 4 -- ./my-program      four processes that find each other with Group::from_env()
  onehop nccl-run -- python train.py      a program's NCCL calls go to onehop, where it carries them
  onehop topo                             who reaches whom, and how
  onehop p2p-check                        does data really cross between GPUs, and how fast
  onehop doctor                           what works here, what does not, and what to do

'onehop help COMMAND' explains each with examples, 'onehop help environment' all variables.

Exit codes: 0 done; 1 what was asked failed (a wrong result included); 2 the command line makes no sense;
'launch': the code of the first rank that failed, 128 + N when signal N ended it; 'nccl-run': that of the program.

Environment: ONEHOP_LOG=info or debug shows what happens; ONEHOP_RUNTIME_DIR is where private directories go.)";

/// Opens descriptors 0 to 2 where they are closed; the first file opened could otherwise become standard output.
void open_standard_descriptors() {
  int fd = 0;
  do {
    fd = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  } while (fd >= 0 && fd <= STDERR_FILENO && ::fcntl(fd, F_SETFD, 0) == 0);
  if (fd > STDERR_FILENO) (void)::close(fd);
}

void say(std::string message) {
  std::replace(message.begin(), message.end(), '\n', ' ');
  print_error(fmt::format("onehop: {}\n", printable(message)));
}

/// ": did you mean '--sizes'?", or nothing.
std::string suggestion(std::string_view typed, const std::vector<std::string>& words) {
  const std::vector<std::string_view> views(words.begin(), words.end());
  const auto meant = nearest(typed, views);
  return meant ? fmt::format(": did you mean '{}'?", *meant) : "";
}

/// "; what nccl-tests calls so is --sizes FIRST:LAST:FACTOR", or nothing.
std::string for_users_of_nccl_tests(std::string_view typed) {
  struct Option {
    std::string_view letter;
    std::string_view name;
    std::string_view ours;
  };
  constexpr Option kOptions[] = {
      {"-b", "--minbytes", "--sizes FIRST:LAST:FACTOR"},
      {"-e", "--maxbytes", "--sizes FIRST:LAST:FACTOR"},
      {"-f", "--stepfactor", "--sizes FIRST:LAST:FACTOR"},
      {"-i", "--stepbytes", "--sizes with a list"},
      {"-g", "--ngpus", "--ranks N"},
      {"-t", "--nthreads", "--threads"},
      {"-w", "--warmup_iters", "--warmup N"},
      {"-d", "--datatype", "--type TYPE"},
      {"-o", "", "--op OP"},
      {"-r", "", "--root RANK"},
      {"-c", "", "--no-check to leave it out"},
      {"-m", "--agg_iters", "--calls N"},
      {"-G", "--cudagraph", "--mode chain, a CUDA graph of many calls"},
      {"-z", "--blocking", "--mode eager"},
      {"-C", "--report_cputime", "--mode eager, whose last column is the host's time"},
      {"-R", "--local_register", "--buffers symmetric"},
      {"-J", "--output_file", "--json FILE"},
      {"-N", "--run_cycles", "--repeat N"},
      {"-a", "--average", "always -a 3 here, the slowest rank's time"},
      {"-p", "--parallel_init", "always -p 1 here: ranks join at the same time"},
  };
  // "-b8" is "-b 8".
  const bool with_value = typed.size() > 2 && typed[1] != '-' && typed[2] >= '0' && typed[2] <= '9';
  const std::string_view name = with_value ? typed.substr(0, 2) : typed;
  for (const Option& each : kOptions) {
    if (each.letter == name || each.name == name) {
      return fmt::format("; what nccl-tests calls so is {}", each.ours);
    }
  }
  return "";
}

/// Excludes "--", which precedes the arguments of another program.
bool is_option(const std::string& word) {
  return word.starts_with('-') && word != "--";
}

bool has_unknown_option(const CLI::App& app) {
  return std::ranges::any_of(app.remaining(/*recurse=*/true), is_option);
}

/// Names the first unknown option or argument, and the nearest known word.
std::string complaint_about_extra(const CLI::App& app) {
  const auto chosen = app.get_subcommands();
  const std::vector<std::string> extras = app.remaining(/*recurse=*/true);
  // They include the values of unknown options and are not ordered.
  auto first = std::find_if(extras.begin(), extras.end(), is_option);
  if (first == extras.end()) first = extras.begin();
  const std::string typed = first == extras.end() ? "" : first->substr(0, first->find('='));
  const CLI::App& asked = chosen.empty() ? app : *chosen.front();
  const std::string whose = chosen.empty() ? "" : fmt::format(" of '{}'", asked.get_name());
  std::vector<std::string> words;
  if (typed.starts_with('-')) {
    for (const CLI::Option* option : asked.get_options()) {
      for (const std::string& name : option->get_lnames()) words.push_back("--" + name);
    }
    if (std::ranges::find(words, typed) != words.end())
      return fmt::format("'{}'{} is no option after '--'; leave out the '--'", typed, whose);
    std::string theirs;
    if (typed == "--np" && asked.get_option_no_throw("--ranks") != nullptr) {
      theirs = "; what mpirun calls so is -n N";
    } else if (asked.get_name() == "bench") {
      theirs = for_users_of_nccl_tests(typed);
    }
    return fmt::format("unknown option '{}'{}{}", typed, whose,
                       theirs.empty() ? suggestion(typed, words) : theirs);
  }
  if (!chosen.empty()) {
    const CLI::Option* const check = asked.get_option_no_throw("--check");
    const bool is_its_value = check != nullptr && check->count() > 0 && (typed == "0" || typed == "1");
    return fmt::format("unexpected argument '{}'{}{}", typed, whose,
                       is_its_value ? "; --check takes no value, and --no-check is its opposite" : "");
  }
  return fmt::format("unknown subcommand '{}'{}", typed, suggestion(typed, names_of_commands(app)));
}

/// What CLI11 says of something missing, repeated or given a value, in a sentence.
std::string complaint_about_missing(const CLI::App& app, const std::string& message) {
  constexpr std::string_view kFlagWithValue = "Could not convert: ";
  if (const std::size_t value = message.find(" = ");
      message.starts_with(kFlagWithValue) && value != std::string::npos) {
    return fmt::format("{} takes no value, got '{}'",
                       message.substr(kFlagWithValue.size(), value - kFlagWithValue.size()),
                       message.substr(value + 3));
  }
  if (const std::size_t twice = message.find(": At Most 1 required"); twice != std::string::npos)
    return fmt::format("{} is given more than once", message.substr(0, twice));
  constexpr std::string_view kNoValue = ": 1 required ";
  if (const std::size_t at = message.find(kNoValue);
      at != std::string::npos && message.ends_with(" missing")) {
    const std::size_t value = at + kNoValue.size();
    return fmt::format("{} needs a value, {}", message.substr(0, at),
                       message.substr(value, message.rfind(" missing") - value));
  }
  const std::size_t end = message.find(" is required");
  if (end == std::string::npos) return message;
  if (app.get_subcommands().empty()) {
    return fmt::format("a subcommand is missing; there are {}", fmt::join(names_of_commands(app), ", "));
  }
  return fmt::format("{} is missing", message.substr(0, end));
}

int usage_error(const CLI::App& app, std::string message) {
  const auto chosen = app.get_subcommands();
  say(fmt::format("{} (see 'onehop {}--help')", message,
                  chosen.empty() ? "" : chosen.front()->get_name() + " "));
  return kExitUsage;
}

/// Help that fits the terminal.
class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override {
    return fitted(CLI::Formatter::make_help(app, std::move(name), mode), columns_of_stdout());
  }
};

int run_command(int argc, char** argv) {
  remember_command_line(argc, argv);
  CLI::App app{"onehop: communication between the GPUs or processes of one machine", "onehop"};
  app.formatter(std::make_shared<HelpFormatter>());
  app.footer(kFooter);
  app.set_version_flag("--version", describe(build_info()),
                       "Print the version, and the commit if known, and exit");
  app.require_subcommand(1);
  app.get_formatter()->column_width(34);
  std::function<int()> run;
  add_bench(app, {argv, argv + argc}, run);
  add_tune(app, {argv, argv + argc}, run);
  add_topo(app, run);
  add_p2p_check(app, run);
  add_doctor(app, run);
  add_launch(app, run);
  add_nccl_run(app, run);
  add_compare(app, run);
  add_help(app, run);
  if (argc == 2 && std::string_view(argv[1]) == kCommandTreeOption) return print_command_tree(app);

  try {
    try {
      app.parse(argc, argv);
    } catch (const CLI::Success& help_or_version) {
      std::ostringstream text;
      const int code = app.exit(help_or_version, text);
      print(text.str());
      return code;
    }
    check_environment();
    const int code = run();
    if (std::fflush(stdout) != 0) fail_errno(errno, "cannot write the output");
    return code;
  } catch (const CLI::ParseError& error) {
    // CLI11 reports a missing subcommand before an unknown word in its place.
    const bool unknown = app.get_subcommands().empty() && argc > 1;
    // It reports a missing option before a misspelt one, and takes the latter's value for an argument.
    const bool misspelt = (dynamic_cast<const CLI::RequiredError*>(&error) != nullptr ||
                           dynamic_cast<const CLI::ValidationError*>(&error) != nullptr) &&
                          has_unknown_option(app);
    const bool extra = unknown || misspelt || dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr;
    return usage_error(app, extra ? complaint_about_extra(app) : complaint_about_missing(app, error.what()));
  } catch (const UsageError& error) {
    return usage_error(app, error.what());
  } catch (const Error& error) {
    if (!report_failure(error)) say(error.message());
  } catch (const std::bad_alloc&) {
    const Error error(ErrorCode::out_of_resources, "out of memory; use smaller sizes or fewer ranks");
    if (!report_failure(error)) say(error.message());
  } catch (const std::exception& error) {
    say(fmt::format("unexpected: {}", error.what()));
  }
  return kExitFailed;
}

}  // namespace
}  // namespace onehop::cli

int main(int argc, char** argv) {
  onehop::cli::open_standard_descriptors();
  // When the reader is gone ('onehop topo | head') the process ends quietly, even if its parent ignores SIGPIPE.
  (void)::signal(SIGPIPE, SIG_DFL);
  // If the parent ignores SIGCHLD, the kernel keeps no exit codes, and nothing tells that a child has ended.
  (void)::signal(SIGCHLD, SIG_DFL);
  return onehop::cli::run_command(argc, argv);
}
