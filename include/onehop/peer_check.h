// SPDX-License-Identifier: Apache-2.0
// Proof that GPUs reach each other's memory. That the driver allows peer access does not mean that data
// arrives: with some IOMMU and ACS settings it is lost or lands elsewhere, and nobody is told.
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

/// What is tried, from one device towards another. Data is different for every pair, test and position, its
/// destination is overwritten first, and all of it is verified by a kernel on the device where it ended.
enum class PeerTest : std::uint8_t {
  store,           ///< a kernel on `from` writes into memory on `to`
  load,            ///< a kernel on `from` reads memory on `to`
  copy,            ///< a copy engine moves memory of `from` to `to`
  atomics,         ///< a kernel on `from` adds to words on `to`; needs native atomics
  shared_atomics,  ///< kernels on both add to the same words on `to` at the same time; needs native atomics
  flag,            ///< both devices run a kernel and answer each other's flags, many times
};
inline constexpr int kPeerTestCount = 6;
[[nodiscard]] ONEHOP_API std::string_view to_string(PeerTest test);

enum class PeerOutcome : std::uint8_t {
  passed,
  failed,   ///< wrong data, or the driver reported an error
  hung,     ///< no result in time; the devices are not to be used any more by this process
  skipped,  ///< these devices do not offer it
  not_run,  ///< an earlier test made it pointless
};
[[nodiscard]] ONEHOP_API std::string_view to_string(PeerOutcome outcome);

struct PeerTestResult {
  PeerTest test{};
  PeerOutcome outcome = PeerOutcome::not_run;
  std::string detail;  ///< one line; empty for what passed
};

/// One ordered pair: what `from` can do with the memory of `to`.
struct ONEHOP_API PairReport {
  DeviceId from;
  DeviceId to;
  PairAttributes attributes;
  std::vector<PeerTestResult> tests;  ///< one of each PeerTest, in their order
  // Medians, one direction at a time, in 10^9 bytes per second. Empty when not measured.
  std::optional<double> store_gbps;
  std::optional<double> load_gbps;
  std::optional<double> copy_gbps;
  /// From a store on one device to its being seen by the other: half a round trip, in nanoseconds.
  std::optional<double> latency_ns;

  /// Access is there, and every test passed or was skipped because the devices do not offer it.
  [[nodiscard]] bool ok() const;
  /// One line about the first test that did not pass; empty when ok().
  [[nodiscard]] std::string failure() const;
};

struct PeerCheckOptions {
  std::vector<DeviceId> devices;  ///< at least 2 different ones; empty: all that the process sees
  /// Verified per test, and moved per measurement. A multiple of 16. Each device needs twice as much memory.
  std::size_t bytes = 256u << 20;
  bool measure_bandwidth = true;
  int repetitions = 10;                         ///< per measurement, after one that does not count
  int round_trips = 1000;                       ///< of the flag
  std::uint64_t seed = 1;                       ///< of the data
  Duration timeout = std::chrono::seconds{60};  ///< for all pairs together
  /// Keep the outcome for `peers_verified`, also when it is that something failed.
  bool remember = false;
};

/// Checks every ordered pair, one after the other, in this process, and enables access between them for good.
/// Reports are sorted by `from`, then `to`. What a device or a link does wrong is in the reports and not an
/// error: wrong data does not end the check; a hang or an error of the driver does, since it leaves devices
/// that cannot be trusted, and the rest is `not_run`. After a hang, memory and streams of the check
/// are not given back, since that would wait too. Devices should be idle: other work slows what is measured,
/// and a device that is busy may not answer a flag in time. Errors: invalid_argument (devices, sizes),
/// unsupported (no GPU, or built without CUDA), out_of_resources (not enough free memory; peers beyond CUDA's
/// limit).
[[nodiscard]] ONEHOP_API std::vector<PairReport> check_peers(const PeerCheckOptions& options = {});

/// Whether each of the devices reaches each other one, by the functional tests alone (4 MiB per test), which
/// run at most once per boot, driver and pair: the outcome is kept in $XDG_CACHE_HOME/onehop (or
/// ~/.cache/onehop), by device UUID. A file that is damaged or not this user's is as good as none. A failure
/// is kept too; `onehop p2p-check` checks again. Fewer than two devices have nothing to verify: true. Errors
/// as for check_peers.
[[nodiscard]] ONEHOP_API bool peers_verified(const std::vector<DeviceId>& devices);

}  // namespace onehop
