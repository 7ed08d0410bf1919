// SPDX-License-Identifier: Apache-2.0
// onehop doctor: reports what works on this machine, what does not, and the remedies.
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "onehop/collectives.h"
#include "onehop/diagnose.h"
#include "onehop/group.h"
#include "onehop/version.h"

#include "base/check.h"
#include "base/env.h"
#include "commands.h"
#include "doctor_checks.h"
#include "launcher.h"
#include "options.h"
#include "origin.h"
#include "output.h"

namespace onehop::cli {
namespace {

constexpr const char* kDoctorFooter = R"(Examples:
  onehop doctor           a line per mechanism: works, does not (and what to do), or not needed here
  onehop doctor --json -  the same for programs; a file name: beside the text
  onehop doctor --require cuda && ./program   only where a GPU can be used

The end-to-end check is the real thing: two processes join a group, share memory, reduce and verify.
GPUs that this process sees are tried too: memory is shared and given back, on each.

Exit code: 0 when the host backend works, 1 when it does not, whatever the GPUs do; with --require cuda also 1
when no GPU can be used.)";

enum class Requirement { host, cuda };
constexpr Named<Requirement> kRequirements[] = {{"host", Requirement::host}, {"cuda", Requirement::cuda}};

constexpr Duration kSelfTestTimeout = std::chrono::seconds{10};
constexpr int kSelfTestRanks = 2;

/// One rank of the end-to-end test.
int run_self_test_rank() {
  JoinOptions options;
  options.name = "doctor";
  options.timeout = kSelfTestTimeout;
  Group group = Group::from_env(options);
  const int rank = group.rank().value;

  const SymmetricBuffer buffer = group.allocate(4096);
  const auto mark = [](int of) { return static_cast<std::byte>(0x40 + of); };
  std::memset(buffer.local(), static_cast<int>(mark(rank)), buffer.bytes());
  buffer.barrier(0, kSelfTestTimeout);
  for (int peer = 0; peer < group.size(); ++peer) {
    const std::byte* const bytes = buffer.peer(Rank{peer});
    if (!std::all_of(bytes, bytes + buffer.bytes(), [&](std::byte byte) { return byte == mark(peer); })) {
      fail_from(Rank{rank}, ErrorCode::system, "rank {} does not see what rank {} wrote into its memory",
                rank, peer);
    }
  }

  std::vector<float> data(1000);
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<float>(i) + static_cast<float>(rank);
  (void)all_reduce(group, std::span(data));
  for (std::size_t i = 0; i < data.size(); ++i) {
    const float expected = 2 * static_cast<float>(i) + 1;  // (i + 0) + (i + 1), exact
    if (data[i] != expected) {
      fail_from(Rank{rank}, ErrorCode::system, "wrong sum on rank {}: element {} is {}, expected {}", rank, i,
                data[i], expected);
    }
  }
  return kExitOk;
}

Finding run_self_test() {
  Finding finding{"end to end",
                  "two processes",
                  Health::works,
                  "join a group, share memory, reduce 1000 floats and agree on the result",
                  {},
                  true};
  LaunchOptions options;
  options.ranks = kSelfTestRanks;
  options.command = {"/proc/self/exe", "doctor", "--self-test-rank"};
  options.collect_failures = true;
  try {
    const LaunchOutcome outcome = launch(options);
    end_as(outcome);
    if (outcome.exit_code == 0) return finding;
    const RankFailure* const cause = root_cause(outcome.failures);
    finding.detail =
        cause != nullptr ? cause->message : fmt::format("rank {} {}", outcome.failed_rank, outcome.how);
  } catch (const Error& error) {
    finding.detail = error.message();
  }
  finding.health = Health::fails;
  finding.remedy = "mend what fails above; if nothing does, run again with ONEHOP_LOG=debug";
  return finding;
}

std::string_view json_name(Health health) {
  switch (health) {
    case Health::works:
      return "works";
    case Health::fails:
      return "fails";
    case Health::not_applicable:
      break;
  }
  return "not_applicable";
}

/// Symbols on a terminal with UTF-8, words otherwise.
bool use_symbols() {
  if (::isatty(STDOUT_FILENO) == 0) return false;
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    if (const auto value = env::get(name)) {
      return value->find("UTF-8") != std::string::npos || value->find("utf8") != std::string::npos;
    }
  }
  return false;
}

void print_text(const std::vector<Finding>& findings, bool healthy, const GpuDiagnosis& gpu) {
  const bool symbols = use_symbols();
  const bool colors = use_colors();
  const std::size_t columns = columns_of_stdout();
  const auto sign = [&](Health health) {
    switch (health) {
      case Health::works:
        return colored(symbols ? "\u2713 " : "ok", Color::green, colors);
      case Health::fails:
        return colored(symbols ? "\u2717 " : "no", Color::red, colors);
      case Health::not_applicable:
        break;
    }
    return std::string(symbols ? "\u2013 " : "- ");
  };
  const std::string indent(34, ' ');
  std::string text;
  std::string section;
  for (const Finding& finding : findings) {
    if (finding.section != section)
      text += fmt::format("{}{}\n", section.empty() ? "" : "\n", finding.section);
    section = finding.section;
    const std::string begin = fmt::format("  {} {:<28} ", sign(finding.health), finding.name);
    text += wrapped(finding.detail, indent, columns).replace(0, indent.size(), begin);
    if (!finding.remedy.empty()) {
      const std::string more = indent + "   ";
      text += wrapped(finding.remedy, more, columns).replace(0, more.size(), indent + "-> ");
    }
  }
  const auto verdict = [&](const std::string& sentence, bool works) {
    return colored(sentence, works ? Color::green : Color::red, colors);
  };
  text += fmt::format(
      "\n{}\n",
      verdict(healthy ? "The host backend works here." : "The host backend does not work here.", healthy));
  std::string summary = gpu.summary;
  if (summary.starts_with('t')) summary[0] = 'T';
  // Most machines without a GPU are meant to have none: no failure.
  text += gpu.usable ? verdict(summary + ".", true) + "\n" : wrapped(summary + ".", "", columns);
  text += "\n" + wrapped(describe(origin()), "", columns);
  print(text);
}

std::string to_json(const std::vector<Finding>& findings, bool healthy, const GpuDiagnosis& gpu) {
  nlohmann::json checks = nlohmann::json::array();
  for (const Finding& finding : findings) {
    checks.push_back({{"section", finding.section},
                      {"name", finding.name},
                      {"status", json_name(finding.health)},
                      {"detail", finding.detail},
                      {"remedy", finding.remedy},
                      {"essential", finding.essential}});
  }
  nlohmann::json document = {{"format", "onehop-doctor"},
                             {"format_version", 1},
                             {"version", version()},
                             {"host_backend_works", healthy},
                             {"gpu_backend_works", gpu.usable},
                             {"gpu_summary", gpu.summary},
                             {"checks", checks}};
  return write_document(std::move(document));
}

int run_doctor(const std::string& json, Requirement required) {
  check_writable(json);
  std::vector<Finding> findings = check_machine();
  findings.push_back(run_self_test());
  const bool healthy = std::none_of(findings.begin(), findings.end(), [](const Finding& finding) {
    return finding.essential && finding.health != Health::works;
  });
  // Last, since it starts threads of CUDA in this process.
  const GpuDiagnosis gpu = diagnose_gpus();
  findings.insert(findings.end(), gpu.findings.begin(), gpu.findings.end());
  write_output(json, to_json(findings, healthy, gpu));
  if (!is_stdout(json)) print_text(findings, healthy, gpu);
  return healthy && (gpu.usable || required == Requirement::host) ? kExitOk : kExitFailed;
}

}  // namespace

void add_doctor(CLI::App& app, std::function<int()>& run) {
  struct Arguments {
    std::string json;  ///< file, "-" for standard output, empty for none
    Requirement required = Requirement::host;
    bool self_test_rank = false;
  };
  auto arguments = std::make_shared<Arguments>();
  CLI::App* const sub = app.add_subcommand("doctor", "Say what works on this machine and what does not");
  sub->footer(kDoctorFooter);
  CLI::Option* const json =
      sub->add_option("--json", arguments->json, "Write the same as JSON; '-' (or nothing): only that")
          ->type_name(kOutputType)
          ->expected(0, 1);
  add_named(*sub, "--require", arguments->required, kRequirements,
            "What must work for exit code 0: host or cuda")
      ->type_name("NAME");
  // For the ranks that doctor starts; the empty group hides the option from --help.
  sub->add_flag("--self-test-rank", arguments->self_test_rank)->group("");
  sub->callback([arguments, json, &run] {
    if (*json && arguments->json.empty()) arguments->json = "-";
    run = [arguments] {
      return arguments->self_test_rank ? run_self_test_rank()
                                       : run_doctor(arguments->json, arguments->required);
    };
  });
}

}  // namespace onehop::cli
