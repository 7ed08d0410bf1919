// SPDX-License-Identifier: Apache-2.0
// A group of ranks on one machine.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "onehop/buffer.h"
#include "onehop/error.h"
#include "onehop/export.h"
#include "onehop/ipc.h"
#include "onehop/store.h"
#include "onehop/types.h"

namespace onehop {

class Deadline;
class IntraNodeComm;

/// How collectives pick their algorithm.
enum class AlgorithmPolicy : std::uint8_t {
  tuned,   ///< always finds one, for every size and type
  legacy,  ///< PyTorch's IntraNodeComm: one-shot to 256 KiB, two-shot to 10 MiB, f32 and bf16, otherwise none
};

struct JoinOptions {
  Rank rank;
  int size = 0;
  DeviceId device = DeviceId::host;
  Duration timeout = kDefaultTimeout;  ///< for joining, and the default of the group's calls
  /// Groups that live on one store at the same time need different names; one after another may share one.
  std::string name = "world";
  /// What each rank can stage at a time; 0: 10 MiB for host ranks (the field's default), 16 MiB for GPUs. A
  /// GPU gives about seven times as much memory for it, 13 MiB, and 1 MiB per rank: data on its way lies in
  /// mailboxes and slots of two parities. A host rank gives up to a quarter more, for sends.
  std::size_t scratch_bytes = 0;
  /// GPUs: memory that each rank gives so that copy engines carry messages of at least 64 MiB per rank of the
  /// group, and not longer than it (2 ranks: or longer). With less than 128 MiB per rank kernels carry them.
  std::size_t copy_scratch_bytes = 0;
  AlgorithmPolicy policy = AlgorithmPolicy::tuned;
  /// File with a tuning table (onehop/tuning.h), which the tuned policy follows; empty: that of the
  /// environment variable ONEHOP_TUNING, else what is shipped for the GPU, else the library's own choices.
  /// Rank 0's counts, for all ranks; it alone reads the file.
  std::string tuning{};
  /// Several ranks on one GPU, for tests (also ONEHOP_ALLOW_OVERLAPPING_DEVICES=1). Host ranks always may.
  /// Ranks that are threads share a context then: while one waits for another one on the GPU, a third may not
  /// make the driver wait for the whole GPU, as cudaMalloc, cudaFree and copies without a stream do.
  bool allow_overlapping_devices = false;
  /// How the GPUs' symmetric memory travels between the ranks' processes; `automatic`: what the environment
  /// variable ONEHOP_SHARE names (auto, fd, fabric or ipc), else the first of fabric handles, descriptors and
  /// CUDA IPC that works on all ranks. One rank's explicit choice is that of all ranks that leave it open;
  /// the group is refused if another rank names another one, or cannot. Host ranks: `automatic` or
  /// `posix_fd`. With `ipc`, making and freeing symmetric memory waits for all work on the GPU.
  ShareBy share_by = ShareBy::automatic;
  /// GPUs: refuse the group unless the latest check of every pair of its devices since the machine was booted
  /// passed (`onehop p2p-check`, check_peers, peers_verified). Also ONEHOP_REQUIRE_VERIFIED_PEERS=1. One rank
  /// that asks for it is enough; rank 0 reads its user's record of the checks. Joining checks nothing itself.
  bool require_verified_peers = false;
};

/// A member's end of a group. Joining is collective: every rank gets a group, or every rank gets the same
/// Error. Thread-safe; collectives of one group are serialised, those of different groups are independent.
///
/// With `JoinOptions::device` a GPU, symmetric memory is that GPU's, and collectives are queued on a stream
/// and return at once; whether they succeeded, `synchronize` and `check` tell. Make calls on one group in the
/// same order on all ranks; calls on different streams run one after the other.
///
/// When a rank dies, times out or aborts, every other rank's current and later calls throw an Error that
/// names it. Leave the group (destroy it) and form a new one; the process needs no restart. After fork(), the
/// child's copy is dead: its calls throw, its destructor does nothing to the parent's group.
class ONEHOP_API Group {
 public:
  /// Error{refused} with the same reason on all ranks when the group is not possible: more than kMaxDevices
  /// ranks (host: kMaxHostRanks), several hosts, two ranks on one device, different onehop versions or values
  /// of ONEHOP_CHECK, no common way to share memory, peers that are not verified although a rank requires it.
  /// A group of one rank is possible: its collectives copy this rank's own data.
  [[nodiscard]] static Group join(std::shared_ptr<Store> store, JoinOptions options);
  /// All ranks of a group of this process's GPUs, from one thread: rank r drives devices[r]. `defaults` other
  /// than rank, size and device are kept. Calls that only queue work (all_reduce and what else takes a
  /// stream) may then be made for one rank after another; those that meet the other ranks on the host
  /// (allocate, register_buffer, barrier, split, ...) need a thread per rank: see `on_every_rank`.
  [[nodiscard]] static std::vector<Group> join_local(const std::vector<DeviceId>& devices,
                                                     JoinOptions defaults = {});
  /// Rank, size and store from the environment of `onehop launch`, torchrun, mpirun or srun; fields already
  /// set in `defaults` other than rank, size and store are kept. See docs/guide for the variables.
  [[nodiscard]] static Group from_env(JoinOptions defaults = {});

  Group(Group&&) noexcept;
  Group& operator=(Group&&) noexcept;
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  ~Group();  ///< leaves

  [[nodiscard]] Rank rank() const;
  [[nodiscard]] int size() const;
  [[nodiscard]] DeviceId device() const;
  /// Host-unique random identity of this group instance, 32 hex digits, the same on all ranks.
  [[nodiscard]] const std::string& id() const;
  [[nodiscard]] const std::string& name() const;
  [[nodiscard]] Duration timeout() const;
  /// The file whose table the group follows, as rank 0 was told; empty: none was named.
  [[nodiscard]] const std::string& tuning_file() const;
  /// How symmetric memory travels between the ranks' processes, the same on all ranks: never
  /// ShareBy::automatic. Host groups: ShareBy::posix_fd.
  [[nodiscard]] ShareBy share_by() const;

  /// Collective. Error{mismatch} on all ranks, naming the sizes or options, when they differ;
  /// Error{invalid_argument} on all ranks when one's are out of range. The memory is zeroed.
  [[nodiscard]] SymmetricBuffer allocate(std::size_t bytes, const BufferOptions& options = {});
  /// Collective: makes memory that every rank has already symmetric, as it is: `bytes` bytes at `data`, which
  /// may lie anywhere in an allocation on this rank's GPU. Memory of cudaMalloc, and of cuMemCreate where it
  /// has descriptors. Error{mismatch} on all ranks, naming the sizes or options, when they differ;
  /// Error{invalid_argument} on all ranks when one's memory cannot be shared, saying what it is and what to
  /// use instead; Error{unsupported} in a group of host ranks. After each of these the group works on.
  ///
  /// The memory stays the caller's: it is neither zeroed nor freed, and must stay allocated while any rank
  /// holds the buffer. To end: wait for your streams, let go of the buffer on all ranks, then a barrier, then
  /// free. Memory that was freed all the same is never taken for the buffer by a later call of this library,
  /// not even when its address is used again; but peers' pointers to it lead nowhere good.
  ///
  /// Registering memory again is cheap, but it is a meeting and takes 2 MiB for signals: keep the buffer.
  [[nodiscard]] SymmetricBuffer register_buffer(void* data, std::size_t bytes,
                                                const BufferOptions& options = {});
  /// Collective: all ranks arrive.
  void barrier();
  void barrier(Duration timeout);
  /// GPU groups: waits until everything queued on `stream` has ended and throws if a collective of this group
  /// failed there. Without it (after cudaStreamSynchronize, say), `check()` tells whether results are right.
  /// Error{timeout}: the stream was not done; the group has failed on all ranks then. The error names the
  /// rank that holds the stream up: one that the device waits for, whose process does not answer, or that has
  /// begun fewer collectives; this rank where there is none. Host groups: `check()`.
  void synchronize(Stream stream);
  void synchronize(Stream stream, Duration timeout);
  /// Everyone's bytes in rank order, at most 64 KiB each. Collective.
  [[nodiscard]] std::vector<std::string> all_gather(std::string_view payload);
  /// Passing descriptors between the ranks of this group.
  [[nodiscard]] IpcChannel& channel();

  /// Collective. Ranks of one colour form a new group, ordered by key, then by rank. A negative colour: no
  /// group. Errors have the numbers of this group, also those of ranks of other colours, whose groups fail
  /// with this one's split.
  [[nodiscard]] std::optional<Group> split(int color, int key = 0);

  /// Ends every rank's current and later calls with Error{aborted} carrying this reason. Not collective;
  /// usable from any thread, also while another thread of this rank waits in a call.
  void abort(std::string_view reason) noexcept;
  /// Throws what a call would throw now: after an abort, a death, a fork. Returns when all is well.
  void check() const;
  /// Leaves the group; later calls throw. The destructor does the same. A rank on a GPU first waits for the
  /// device, at most for the group's timeout: when the device is still at work then, a warning is logged and
  /// the group's memory stays allocated.
  void leave() noexcept;

  /// Collectives of this rank per algorithm: completed ones, on GPUs queued ones. Replays of a graph do not
  /// count.
  [[nodiscard]] std::array<std::uint64_t, kAlgorithmCount> usage() const;

  class State;
  /// Internal, for the collective layer.
  [[nodiscard]] State& state() const;

 private:
  friend class IntraNodeComm;  // joins within what is left of its own deadline
  static Group join_until(const Deadline& deadline, std::shared_ptr<Store> store, JoinOptions options);
  explicit Group(std::shared_ptr<State> state);
  std::shared_ptr<State> state_;
};

/// Runs `body` for every group at the same time, each on a thread of its own, and throws the first error: for
/// one thread that holds several ranks.
ONEHOP_API void on_every_rank(std::vector<Group>& groups, const std::function<void(Group&)>& body);

}  // namespace onehop
