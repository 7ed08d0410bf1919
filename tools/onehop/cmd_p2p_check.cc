// SPDX-License-Identifier: Apache-2.0
// onehop p2p-check: prove that GPUs reach each other's memory, and measure how fast.
#include <unistd.h>

#include <memory>
#include <optional>

#include "onehop/peer_check.h"

#include "base/check.h"
#include "base/units.h"
#include "commands.h"
#include "origin.h"
#include "output.h"
#include "p2p_report.h"
#include "text_table.h"

namespace onehop::cli {
namespace {

constexpr const char* kFooter = R"(
Examples:
  onehop p2p-check                      every pair, both directions: verified, then measured with 256 MiB
  onehop p2p-check --quick              verified only, with 16 MiB: a second or two
  onehop p2p-check --devices 0,1        these two
  onehop p2p-check --json machine.json  the table, and the same for programs in a file; '-': only JSON

Every pair moves data by kernel stores, kernel loads and copy engine, adds to the same words from both sides, and
answers flags; everything that arrives is compared. GB/s are 10^9 bytes per second, one direction at a time;
latency is from a store to its being seen, half a round trip. Run it on GPUs that are idle.
The outcome is kept for this user until the next boot, driver or onehop. peers_verified() answers with it, and groups
that require it (ONEHOP_REQUIRE_VERIFIED_PEERS=1) are refused where a pair failed or was not checked. Other groups do
not look at it.

Exit code: 0 every direction is verified; 1 one failed, has no access or did not end in time, or there are no two
GPUs; 2 bad usage.)";

constexpr std::size_t kQuickBytes = 16u << 20;

struct Arguments {
  std::vector<int> devices;
  std::optional<std::string> size;
  std::string timeout = "60s";
  std::string json;  ///< file, "-" for standard output, empty for none
  bool quick = false;
};

Duration parse_timeout(const std::string& text) {
  const std::optional<Duration> timeout = parse_duration(text);
  if (!timeout || *timeout == Duration{0}) {
    throw UsageError(
        fmt::format("--timeout '{}' is not a time above 0 and up to a day, such as 30s, 500ms or 2m", text));
  }
  return *timeout;
}

PeerCheckOptions parse(const Arguments& arguments) {
  PeerCheckOptions options;
  for (const int device : arguments.devices) {
    if (device < 0) throw UsageError(fmt::format("--devices names device {}; they go from 0", device));
    options.devices.emplace_back(device);
  }
  if (options.devices.size() == 1) {
    throw UsageError(fmt::format("--devices names only device {}; a pair needs 2", arguments.devices[0]));
  }
  options.measure_bandwidth = !arguments.quick;
  if (arguments.quick) options.bytes = kQuickBytes;
  if (arguments.size) {
    try {
      options.bytes = parse_size(*arguments.size);
    } catch (const Error& error) {
      throw UsageError(fmt::format("--size: {}", error.message()));
    }
    if (options.bytes == 0 || options.bytes % 16 != 0) {
      throw UsageError(fmt::format("--size '{}' is not a multiple of 16 bytes", *arguments.size));
    }
  }
  options.timeout = parse_timeout(arguments.timeout);
  options.remember = true;
  return options;
}

int run_p2p_check(const PeerCheckOptions& options, const std::string& json) {
  check_writable(json);
  const std::vector<PairReport> reports = check_peers(options);
  if (!is_stdout(json)) print(wrapped(describe(origin()), "# ") + p2p_text(reports));
  write_output(json, p2p_json(reports, options.bytes));
  // Everything is written; the driver's own exit would wait for a kernel that does not end.
  if (any_hung(reports)) ::_exit(kExitFailed);
  return all_ok(reports) ? kExitOk : kExitFailed;
}

}  // namespace

void add_p2p_check(CLI::App& app, std::function<int()>& run) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* const sub =
      app.add_subcommand("p2p-check", "Prove that GPUs reach each other's memory; measure how fast");
  sub->footer(kFooter);
  sub->add_option("--devices", arguments->devices, "Pairs of these devices alone, such as 0,1")
      ->delimiter(',')
      ->type_name("LIST")
      ->check(complaint_about_devices);
  sub->add_option("--size", arguments->size, "Bytes per transfer (default 256M; 16M with --quick)")
      ->type_name("BYTES");
  sub->add_flag("--quick", arguments->quick, "Verify, but measure no bandwidth");
  sub->add_option("--json", arguments->json, "Write the results as JSON; '-': only that")
      ->type_name(kOutputType)
      ->check(complaint_about_output);
  sub->add_option("--timeout", arguments->timeout, "For all pairs together")
      ->capture_default_str()
      ->type_name("TIME");
  sub->callback([arguments, &run] {
    const PeerCheckOptions options = parse(*arguments);
    run = [options, path = arguments->json] { return run_p2p_check(options, path); };
  });
}

}  // namespace onehop::cli
