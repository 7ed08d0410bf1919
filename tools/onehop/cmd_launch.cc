// SPDX-License-Identifier: Apache-2.0
// onehop launch: starts the ranks of a program on this machine.
#include <memory>
#include <optional>

#include "onehop/types.h"

#include "base/check.h"
#include "base/units.h"
#include "binding.h"
#include "commands.h"
#include "launcher.h"
#include "options.h"
#include "output.h"

namespace onehop::cli {
namespace {

constexpr const char* kLaunchFooter = R"(Examples:
  onehop launch -n 4 -- ./allreduce               four ranks; Group::from_env() joins them
  onehop launch -n 2 --tag-output -- python t.py  every line of output with its rank before it
  onehop launch -n 2 --bind cores -- ./allreduce  each rank on a core of its own, where the kernel leaves it
  onehop launch -n 4 --log-dir logs -- ./train    the output of rank r in logs/rank-r.log
  onehop launch -n 8 -- sh -c 'echo $RANK of $WORLD_SIZE'

Ranks get torchrun's variables (RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, GROUP_RANK, MASTER_ADDR, MASTER_PORT)
and ONEHOP_RANK, ONEHOP_SIZE, ONEHOP_STORE. Standard input goes to rank 0.

When a rank fails, the others get SIGTERM, then SIGKILL. With --keep-going they go on, and each failure is a line on
standard error. SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2 are passed on; a second SIGINT kills at once.

--bind chooses among the processors that this command may use: rank r gets the r-th core, or the ranks in order are
spread over the NUMA nodes. With more ranks than cores, ranks share cores; waiting ranks then give the core away.

Exit code: 0 when all ranks end well; else that of the first rank that failed, 128 + N when signal N ended it;
127 when the program is not found, 126 when it cannot be run.)";

Duration parse_grace(const std::string& text) {
  const std::optional<Duration> grace = parse_duration(text);
  require(grace.has_value(), "'{}' is not a time up to a day, such as 5s, 500ms or 2m", text);
  return *grace;
}

int run_launch(const LaunchOptions& options) {
  const LaunchOutcome outcome = launch(options);
  end_as(outcome);
  if (outcome.exit_code == 126 || outcome.exit_code == 127) {
    if (outcome.how.starts_with("cannot run")) {
      print_error(fmt::format("onehop: {}\n", outcome.how));
      return outcome.exit_code;
    }
  }
  if (outcome.failed_rank >= 0 && outcome.stopped_by == 0 && !options.keep_going) {
    print_error(fmt::format("onehop: rank {} {}{}\n", outcome.failed_rank, outcome.how,
                            options.ranks > 1 ? "; the other ranks were ended" : ""));
  }
  return outcome.exit_code;
}

}  // namespace

void add_launch(CLI::App& app, std::function<int()>& run) {
  struct Arguments {
    LaunchOptions launch;
    Binding binding = Binding::none;
  };
  auto arguments = std::make_shared<Arguments>();
  LaunchOptions& options = arguments->launch;
  CLI::App* const sub = app.add_subcommand("launch", "Start the ranks of a program on this machine");
  sub->footer(kLaunchFooter);
  sub->positionals_at_end();
  sub->add_option("-n,--ranks", options.ranks, fmt::format("How many, 1 to {}", kMaxHostRanks))
      ->required()
      ->type_name("N")
      ->check(number_of_ranks(1, kMaxHostRanks));
  sub->add_flag("--tag-output,--prefix", options.tag_output,
                "Put \"[rank] \" before every line; lines never mix");
  sub->add_option("--log-dir", options.log_folder, "Write the output of rank r to rank-r.log in this folder")
      ->type_name("DIR")
      ->check(folder_name());
  sub->add_flag("--keep-going", options.keep_going, "A rank that fails does not end the others");
  add_parsed(*sub, "--timeout-kill", options.grace, parse_grace,
             "From SIGTERM to SIGKILL when the job is ended")
      ->default_str("5s")
      ->type_name("TIME");
  add_named(*sub, "--bind", arguments->binding, kBindings, kBindHelp)->type_name("WHERE");
  sub->add_option("command", options.command, "-- program [arguments...]")->required()->type_name("");
  sub->callback([arguments, &run] {
    run = [arguments] {
      arguments->launch.processors = plan_binding(arguments->binding, arguments->launch.ranks);
      return run_launch(arguments->launch);
    };
  });
}

}  // namespace onehop::cli
