// SPDX-License-Identifier: Apache-2.0
// The communicator of PyTorch's intra-node code: it exists only where the GPUs of one machine are fully
// connected by NVLink, and its caller chooses the all-reduce algorithm. Group and all_reduce have none of
// these limits.
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
  Duration timeout = kDefaultTimeout;  ///< for rendezvous, and for each all-reduce
  /// Communicators that use one store at the same time need different names: 1 to 128 characters, no '/'.
  std::string name = "world";
  /// Several ranks on one GPU, for tests; all of them must allow it (also
  /// ONEHOP_ALLOW_OVERLAPPING_DEVICES=1).
  bool allow_overlapping_devices = false;
  /// What this rank believes about the machine's GPUs instead of asking the driver and NVML: for tests.
  std::optional<Topology> topology;
};

/// A rank's end of the communicator. After `rendezvous` all calls are thread-safe; before, one thread has it.
class ONEHOP_API IntraNodeComm {
 public:
  static constexpr std::size_t kDefaultBufferBytes = std::size_t{10} << 20;

  /// Whether ENABLE_INTRA_NODE_COMM is on (1, true, yes, on). Error{invalid_argument} when its value is no
  /// flag.
  [[nodiscard]] static bool is_enabled();

  /// Talks to nobody yet. `buffer_bytes`, the same on all ranks, bounds what `select_all_reduce_algorithm`
  /// takes. Error{invalid_argument} for a missing store, a rank outside 0..world_size - 1 or an unusable
  /// name: what is needed to tell the other ranks anything.
  IntraNodeComm(std::shared_ptr<Store> store, Rank rank, int world_size,
                std::size_t buffer_bytes = kDefaultBufferBytes, IntraNodeOptions options = {});
  IntraNodeComm(IntraNodeComm&&) noexcept;
  IntraNodeComm& operator=(IntraNodeComm&&) noexcept;
  IntraNodeComm(const IntraNodeComm&) = delete;
  IntraNodeComm& operator=(const IntraNodeComm&) = delete;
  ~IntraNodeComm();  ///< leaves

  /// Collective. True once the communicator is usable; again true at once after that. False, on all ranks and
  /// with the same `reason`, when the ranks cannot or must not have one:
  /// - a rank has not set ENABLE_INTRA_NODE_COMM=1; also a rank that is not enabled must call this;
  /// - fewer than 2 ranks, or more than kMaxDevices;
  /// - ranks on several hosts, or that differ in user, version, world size, buffer size or kind of device;
  /// - two ranks on one GPU, unless every rank allows it;
  /// - a GPU of compute capability below 8.0;
  /// - GPUs not fully connected: a pair without NVLink in one direction. A rank with
  ///   TEST_INTRA_NODE_COMM=1 or ONEHOP_FORCE_FULLY_CONNECTED=1 vouches for the links from its GPU; set it on
  ///   all. Host ranks share memory: they are always fully connected.
  /// Rank 0 logs the reason as a warning. After false it may be called again, by all ranks.
  ///
  /// Error on all ranks for real failures: Error{timeout} or Error{peer_lost} that names the rank that did
  /// not come or died, Error{invalid_argument} when a rank's options or variables are unusable,
  /// Error{unsupported} when its device is. World sizes above kMaxHostRanks are refused without asking the
  /// others.
  [[nodiscard]] bool rendezvous();
  /// Why the last `rendezvous` returned false; empty otherwise.
  [[nodiscard]] const std::string& reason() const;

  [[nodiscard]] Rank rank() const;
  [[nodiscard]] int size() const;
  [[nodiscard]] DeviceId device() const;
  [[nodiscard]] std::size_t buffer_bytes() const;
  /// The group behind it, for other collectives and for `abort`. Error{invalid_argument} before rendezvous.
  [[nodiscard]] Group& group() const;

  /// What the original would use for a sum of `count` elements at `data`, in place: one_shot up to 256 KiB,
  /// two_shot up to 10 MiB, both inclusive; none beyond these or the buffer, for types other than f32 and
  /// bf16, when the address or the size in bytes is no multiple of 4, and before `rendezvous` has returned
  /// true. Looks at this rank's pointer alone: with the same alignment on all ranks, all make the same
  /// choice.
  [[nodiscard]] Algorithm select_all_reduce_algorithm(const void* data, std::size_t count, DType type) const;

  /// Collective: data[i] = sum over all ranks of data[i], in place, with the caller's algorithm. Every type
  /// and size that onehop::all_reduce takes. On GPUs it is queued on `stream`.
  ///
  /// Error{invalid_argument}, of which the other ranks hear as for onehop::all_reduce: `algorithm` is none or
  /// unknown; in a communicator of GPUs `data` is not memory of its GPU (the error names both); `data` is
  /// null or misaligned. The same before `rendezvous` has returned true, on this rank alone.
  void all_reduce(void* data, std::size_t count, DType type, Algorithm algorithm, Stream stream = {}) const;

  /// GPUs: waits until everything queued on `stream` has ended, at most the options' timeout; as
  /// Group::synchronize.
  void synchronize(Stream stream) const;

  /// All-reduces of this communicator per algorithm, counted when the call returns: on GPUs when it is
  /// queued. They are never reset.
  [[nodiscard]] std::array<std::uint64_t, kAlgorithmCount> usage() const;
  /// All-reduces of all communicators of this process, also of those that are gone.
  [[nodiscard]] static std::uint64_t total_usage();

 private:
  class State;
  [[nodiscard]] State& state() const;
  std::unique_ptr<State> state_;
};

}  // namespace onehop
