// SPDX-License-Identifier: Apache-2.0
// The communicator of PyTorch's intra-node code. It exists only where the GPUs of one machine are fully
// connected by NVLink, and the caller selects the all-reduce algorithm. Group and all_reduce have neither
// restriction.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "onehop/error.h"
#include "onehop/export.h"
#include "onehop/group.h"
#include "onehop/store.h"
#include "onehop/topology.h"
#include "onehop/types.h"

namespace onehop {

struct IntraNodeOptions {
  DeviceId device = DeviceId::host;    ///< the same kind on all ranks
  Duration timeout = kDefaultTimeout;  ///< for rendezvous and for each all-reduce
  /// Communicators that use one store at the same time need different names: 1 to 128 characters, no '/'.
  std::string name = "world";
  /// Allows several ranks on one GPU, for tests. Every rank must set it (also
  /// ONEHOP_ALLOW_OVERLAPPING_DEVICES=1).
  bool allow_overlapping_devices = false;
  /// For tests: the topology that this rank assumes instead of querying the driver and NVML.
  std::optional<Topology> topology;
};

/// One rank's handle of the communicator. All calls after a successful `rendezvous` are thread-safe. Before
/// that, only one thread may use the object.
class ONEHOP_API IntraNodeComm {
 public:
  static constexpr std::size_t kDefaultBufferBytes = std::size_t{10} << 20;

  /// Whether ENABLE_INTRA_NODE_COMM is on (1, true, yes, on). Throws Error{invalid_argument} if its value is
  /// not a flag.
  [[nodiscard]] static bool is_enabled();

  /// Does not communicate. `buffer_bytes`, the same on all ranks, bounds the sizes for which
  /// `select_all_reduce_algorithm` selects an algorithm. Throws Error{invalid_argument} if the store is
  /// missing, the rank is outside 0..world_size - 1 or the name is invalid: without these a rank could not
  /// report an error to the others.
  IntraNodeComm(std::shared_ptr<Store> store, Rank rank, int world_size,
                std::size_t buffer_bytes = kDefaultBufferBytes, IntraNodeOptions options = {});
  IntraNodeComm(IntraNodeComm&&) noexcept;
  IntraNodeComm& operator=(IntraNodeComm&&) noexcept;
  IntraNodeComm(const IntraNodeComm&) = delete;
  IntraNodeComm& operator=(const IntraNodeComm&) = delete;
  ~IntraNodeComm();  ///< leaves the group

  /// Forms the communicator. Collective. Returns true once it is usable; later calls then return true at
  /// once. Returns false on all ranks, with the same `reason`, if the ranks cannot or must not form one:
  /// - a rank has not set ENABLE_INTRA_NODE_COMM=1 (such a rank must call this as well);
  /// - there are fewer than 2 ranks or more than kMaxDevices;
  /// - the ranks are on several hosts, or differ in user, version, world size, buffer size or kind of device;
  /// - two ranks share a GPU, unless every rank allows it;
  /// - a GPU has compute capability below 8.0;
  /// - the GPUs are not fully connected: a pair lacks NVLink in one direction. A rank with
  ///   TEST_INTRA_NODE_COMM=1 or ONEHOP_FORCE_FULLY_CONNECTED=1 declares the links of its GPU to be present;
  ///   set it on all ranks. Host ranks share memory and are always fully connected.
  ///
  /// Rank 0 logs the reason as a warning. All ranks may call it again after false.
  ///
  /// Throws on all ranks for actual failures: Error{timeout} or Error{peer_lost}, which name the rank that
  /// did not arrive or died; Error{invalid_argument} if a rank's options or variables are invalid;
  /// Error{unsupported} if a rank's device is. World sizes above kMaxHostRanks are refused without
  /// communication.
  [[nodiscard]] bool rendezvous();
  /// The reason why the last `rendezvous` returned false; empty otherwise.
  [[nodiscard]] const std::string& reason() const;

  [[nodiscard]] Rank rank() const;
  [[nodiscard]] int size() const;
  [[nodiscard]] DeviceId device() const;
  [[nodiscard]] std::size_t buffer_bytes() const;
  /// The underlying group, for other collectives and for `abort`. Throws Error{invalid_argument} before
  /// rendezvous.
  [[nodiscard]] Group& group() const;

  /// Returns the algorithm that PyTorch's implementation would use to sum `count` elements at `data` in
  /// place: one_shot up to 256 KiB and two_shot up to 10 MiB, both inclusive. Returns none beyond these sizes
  /// or the buffer, and for types other than f32 and bf16. Also returns none if the address or the size in
  /// bytes is not a multiple of 4, and before `rendezvous` has returned true. Only this rank's pointer is
  /// examined: with the same alignment on all ranks, all ranks make the same choice.
  [[nodiscard]] Algorithm select_all_reduce_algorithm(const void* data, std::size_t count, DType type) const;

  /// data[i] = sum over all ranks of data[i], in place, with the given algorithm. Collective. Accepts every
  /// type and size that onehop::all_reduce accepts. On GPUs it is enqueued on `stream`.
  ///
  /// Throws Error{invalid_argument}, which reaches the other ranks as in onehop::all_reduce:
  /// - `algorithm` is none or unknown;
  /// - `data` is null or misaligned;
  /// - the communicator is of GPUs, and `data` is not memory of its GPU (the error names both).
  ///
  /// Before `rendezvous` has returned true, it throws the same error on this rank only.
  void all_reduce(void* data, std::size_t count, DType type, Algorithm algorithm, Stream stream = {}) const;

  /// GPUs: waits until all work enqueued on `stream` has completed, at most for the timeout of the options.
  /// Errors as for Group::synchronize.
  void synchronize(Stream stream) const;

  /// Number of all-reduces of this communicator per algorithm, counted when the call returns (on GPUs: when
  /// it is enqueued). Never reset.
  [[nodiscard]] std::array<std::uint64_t, kAlgorithmCount> usage() const;
  /// Number of all-reduces of all communicators of this process, including destroyed ones.
  [[nodiscard]] static std::uint64_t total_usage();

 private:
  class State;
  [[nodiscard]] State& state() const;
  std::unique_ptr<State> state_;
};

}  // namespace onehop
