// SPDX-License-Identifier: Apache-2.0
// onehop p2p-check: proves that GPUs reach each other's memory, and measures how fast.
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <optional>

#include "onehop/peer_check.h"

#include "base/check.h"
#include "base/units.h"
#include "commands.h"
#include "options.h"
#include "origin.h"
#include "output.h"
#include "p2p_report.h"

namespace onehop::cli {
namespace {

constexpr const char* kP2pCheckFooter = R"(Examples:
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

Duration parse_timeout(const std::string& text) {
  const std::optional<Duration> timeout = parse_duration(text);
  require(timeout && *timeout != Duration{0},
          "'{}' is not a time above 0 and up to a day, such as 30s, 500ms or 2m", text);
  return *timeout;
}

std::size_t parse_transfer(const std::string& text) {
  const std::uint64_t bytes = parse_size(text);
  require(bytes != 0 && bytes % 16 == 0, "'{}' is not a multiple of 16 bytes", text);
  return bytes;
}

int run_p2p_check(const PeerCheckOptions& options, const std::string& json) {
  check_writable(json);
  const std::vector<PairReport> reports = check_peers(options);
  write_output(json, p2p_json(reports, options.bytes));
  if (!is_stdout(json)) print(wrapped(describe(origin()), "# ") + p2p_text(reports, use_colors()));
  // The output is complete. The driver's exit handlers would wait for a kernel that does not end.
  if (any_hung(reports)) ::_exit(kExitFailed);
  return all_ok(reports) ? kExitOk : kExitFailed;
}

}  // namespace

void add_p2p_check(CLI::App& app, std::function<int()>& run) {
  struct Arguments {
    PeerCheckOptions check;
    std::vector<int> devices;
    std::string json;  ///< file, "-" for standard output, empty for none
    bool quick = false;
  };
  auto arguments = std::make_shared<Arguments>();
  PeerCheckOptions& options = arguments->check;
  options.remember = true;
  options.timeout = std::chrono::seconds{60};
  CLI::App* const sub =
      app.add_subcommand("p2p-check", "Prove that GPUs reach each other's memory; measure how fast");
  sub->footer(kP2pCheckFooter);
  sub->add_option("--devices", arguments->devices, "Pairs of these devices alone, such as 0,1")
      ->delimiter(',')
      ->type_name("LIST")
      ->check(device_number());
  CLI::Option* const size = add_parsed(*sub, "--size", options.bytes, parse_transfer,
                                       "Bytes per transfer (default 256M; 16M with --quick)")
                                ->type_name("BYTES");
  sub->add_flag("--quick", arguments->quick, "Verify, but measure no bandwidth");
  sub->add_option("--json", arguments->json, "Write the results as JSON; '-': only that")
      ->type_name(kOutputType)
      ->check(output_path());
  add_parsed(*sub, "--timeout", options.timeout, parse_timeout, "For all pairs together")
      ->default_str("60s")
      ->type_name("TIME");
  sub->callback([arguments, size, &run] {
    PeerCheckOptions& check = arguments->check;
    const std::vector<int>& devices = arguments->devices;
    if (!devices.empty() && std::ranges::count(devices, devices.front()) == std::ssize(devices)) {
      throw UsageError(fmt::format("--devices names only device {}; a pair needs 2", devices.front()));
    }
    for (const int device : devices) check.devices.emplace_back(device);
    check.measure_bandwidth = !arguments->quick;
    if (arguments->quick && size->count() == 0) check.bytes = kQuickBytes;
    run = [arguments] { return run_p2p_check(arguments->check, arguments->json); };
  });
}

}  // namespace onehop::cli
