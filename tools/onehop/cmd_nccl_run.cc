// SPDX-License-Identifier: Apache-2.0
// onehop nccl-run: runs a program with libonehop_nccl.so in NCCL's place.
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/env.h"
#include "base/log.h"
#include "commands.h"
#include "nccl_library.h"
#include "options.h"
#include "output.h"

namespace onehop::cli {
namespace {

constexpr const char* kNcclRunFooter = R"(Examples:
  onehop nccl-run -- python train.py                       the program's NCCL calls go to libonehop_nccl.so
  onehop nccl-run -- torchrun --nproc-per-node 4 train.py  those of all processes that it starts
  onehop nccl-run --mode off -- python train.py            all are forwarded to the real NCCL, to compare
  ONEHOP_LOG=info onehop nccl-run -- python train.py       says of every communicator whether onehop carries it

Sets LD_PRELOAD and, unless it is set, VLLM_NCCL_SO_PATH, then becomes the program. docs/nccl.md says what is carried.

Exit code: that of the program; 127 when it is not found, 126 when it cannot be run; 1 when libonehop_nccl.so is not
installed.)";

/// ONEHOP_NCCL.
enum class NcclMode { accelerate, alone, off };
constexpr Named<NcclMode> kNcclModes[] = {
    {"auto", NcclMode::accelerate}, {"alone", NcclMode::alone}, {"off", NcclMode::off}};

void set_variable(const char* name, const std::string& value) {
  (void)::setenv(name, value.c_str(), 1);  // NOLINT(concurrency-mt-unsafe): the only thread
}

/// Before what is preloaded already.
void prepend(const char* name, const std::string& value, char separator) {
  const std::string before = env::get(name).value_or("");
  set_variable(name, before.empty() ? value : value + separator + before);
}

int run_nccl(std::optional<NcclMode> mode, const std::vector<std::string>& command) {
  const auto library = find_nccl_library();
  if (!library)
    fail(ErrorCode::not_found,
         "libonehop_nccl.so is not installed beside this command: install the package onehop-nccl");
  const std::string path = library->string();
  if (path.find(':') != std::string::npos)
    fail(ErrorCode::unsupported, "LD_PRELOAD cannot name '{}': move it to a path without a colon", path);
  if (path.find(' ') == std::string::npos) {
    prepend("LD_PRELOAD", path, ':');
  } else {  // which separates names in LD_PRELOAD
    prepend("LD_PRELOAD", library->filename().string(), ':');
    prepend("LD_LIBRARY_PATH", library->parent_path().string(), ':');
  }
  if (!env::get("VLLM_NCCL_SO_PATH")) set_variable("VLLM_NCCL_SO_PATH", path);
  if (mode == NcclMode::accelerate) {
    (void)::unsetenv("ONEHOP_NCCL");  // NOLINT(concurrency-mt-unsafe): the only thread
  } else if (mode) {
    set_variable("ONEHOP_NCCL", std::string(name_of(kNcclModes, *mode)));
  }
  if (log::enabled(log::Level::error))  // not with ONEHOP_LOG=off
    print_error(fmt::format("onehop: {} is in NCCL's place; ONEHOP_LOG=info says what it does\n", path));

  std::vector<char*> arguments;
  for (const std::string& each : command) arguments.push_back(const_cast<char*>(each.c_str()));
  arguments.push_back(nullptr);
  (void)::execvp(arguments[0], arguments.data());
  const int error = errno;
  print_error(fmt::format("onehop: cannot run '{}': {}\n", command.front(), errno_text(error)));
  return error == ENOENT ? 127 : 126;
}

}  // namespace

void add_nccl_run(CLI::App& app, std::function<int()>& run) {
  struct Arguments {
    NcclMode mode = NcclMode::accelerate;
    std::vector<std::string> command;
  };
  auto arguments = std::make_shared<Arguments>();
  CLI::App* const sub =
      app.add_subcommand("nccl-run", "Run a program that uses NCCL with onehop in NCCL's place");
  sub->footer(kNcclRunFooter);
  sub->positionals_at_end();
  const CLI::Option* const mode =
      add_named(*sub, "--mode", arguments->mode, kNcclModes,
                "Calls for NCCL: auto (what onehop lacks), off (all), alone (none); else ONEHOP_NCCL's")
          ->type_name("MODE")
          ->default_str("");
  sub->add_option("command", arguments->command, "-- program [arguments...]")->required()->type_name("");
  sub->callback([arguments, mode, &run] {
    run = [arguments, mode] {
      // Without the option, ONEHOP_NCCL stays as the user has set it.
      return run_nccl(mode->count() > 0 ? std::optional(arguments->mode) : std::nullopt, arguments->command);
    };
  });
}

}  // namespace onehop::cli
