// SPDX-License-Identifier: Apache-2.0
// Tests that GPUs can access each other's memory. Permission by the driver does not prove that data arrives:
// with some IOMMU and ACS settings it is lost or written elsewhere, without an error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "onehop/error.h"
#include "onehop/export.h"
#include "onehop/peer_access.h"
#include "onehop/types.h"

namespace onehop {

/// The tests of one ordered pair of devices. The data differs for every pair, test and position. The
/// destination is overwritten first, and a kernel on the destination's device verifies all of it.
enum class PeerTest : std::uint8_t {
  store,           ///< a kernel on `from` writes into memory on `to`
  load,            ///< a kernel on `from` reads memory on `to`
  copy,            ///< a copy engine moves memory of `from` to `to`
  atomics,         ///< a kernel on `from` adds to words on `to`; needs native atomics
  shared_atomics,  ///< kernels on both add to the same words on `to` at the same time; needs native atomics
  flag,            ///< kernels on both devices answer each other's flags, many times
};
inline constexpr int kPeerTestCount = 6;
[[nodiscard]] ONEHOP_API std::string_view to_string(PeerTest test);

enum class PeerOutcome : std::uint8_t {
  passed,
  failed,   ///< wrong data, or the driver reported an error
  hung,     ///< no result in time; this process must not use the devices any more
  skipped,  ///< these devices do not support it
  not_run,  ///< an earlier test made it pointless
};
[[nodiscard]] ONEHOP_API std::string_view to_string(PeerOutcome outcome);

struct PeerTestResult {
  PeerTest test{};
  PeerOutcome outcome = PeerOutcome::not_run;
  std::string detail;  ///< one line; empty if the test passed
};

/// One ordered pair: what `from` can do with the memory of `to`.
struct ONEHOP_API PairReport {
  DeviceId from;
  DeviceId to;
  PairAttributes attributes;
  std::vector<PeerTestResult> tests;  ///< one result per PeerTest, in order of the enumeration
  // Median bandwidths, one direction at a time, in 10^9 bytes per second. Empty if not measured.
  std::optional<double> store_gbps;
  std::optional<double> load_gbps;
  std::optional<double> copy_gbps;
  /// Time from a store on one device until the other sees it, in nanoseconds: half a round trip.
  std::optional<double> latency_ns;

  /// True if peer access is available and every test passed or was skipped as unsupported by the devices.
  [[nodiscard]] bool ok() const;
  /// Describes the first test that did not pass, in one line; empty when ok().
  [[nodiscard]] std::string failure() const;
};

struct PeerCheckOptions {
  std::vector<DeviceId> devices;  ///< at least 2 distinct devices; empty: all that are visible to the process
  /// Bytes verified per test and moved per measurement; a multiple of 16. Each device needs twice as much
  /// memory.
  std::size_t bytes = 256u << 20;
  bool measure_bandwidth = true;
  int repetitions = 10;                         ///< per measurement, after one warm-up
  int round_trips = 1000;                       ///< of the flag test
  std::uint64_t seed = 1;                       ///< of the test data
  Duration timeout = std::chrono::seconds{60};  ///< for all pairs together
  /// Record the outcome, including failures, for `peers_verified`.
  bool remember = false;
};

/// Tests every ordered pair, one after the other, in this process. Enables access between the devices
/// permanently. Reports are sorted by `from`, then `to`. The devices should be idle: other work slows the
/// measurements, and a busy device may not answer a flag in time.
///
/// Faults of a device or a link are reported, not thrown. Wrong data does not end the check. A hang or a
/// driver error does, because the devices can no longer be trusted; the remaining tests are `not_run`. After
/// a hang, the memory and streams of the check are leaked, because freeing them would hang too.
///
/// Throws Error{invalid_argument} (devices, sizes), Error{unsupported} (no GPU, or built without CUDA) and
/// Error{out_of_resources} (not enough free memory, or more peers than CUDA allows).
[[nodiscard]] ONEHOP_API std::vector<PairReport> check_peers(const PeerCheckOptions& options = {});

/// Returns whether every device can access every other one, according to the functional tests alone (4 MiB
/// per test). They run at most once per boot, driver and pair: the outcome is stored in
/// $XDG_CACHE_HOME/onehop (or ~/.cache/onehop), by device UUID. A file that is damaged or owned by another
/// user is ignored. Failures are stored too; `onehop p2p-check` repeats the tests. Returns true for fewer
/// than two devices. Errors as for check_peers.
[[nodiscard]] ONEHOP_API bool peers_verified(const std::vector<DeviceId>& devices);

}  // namespace onehop
