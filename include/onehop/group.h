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

/// Identifies this machine until it reboots: only ranks with equal ids can form a group. For programs that decide
/// before they join. Throws Error{unsupported} if the kernel does not tell.
[[nodiscard]] ONEHOP_API std::string host_id();

struct JoinOptions {
  Rank rank{};  // or GCC warns where {.device = ...} leaves it out
  int size = 0;
  DeviceId device = DeviceId::host;
  /// For joining; also the default of the group's calls. Calls on buffers have a default of their own.
  Duration timeout = kDefaultTimeout;
  /// Groups that use one store at the same time need different names; consecutive groups may share one.
  std::string name = "world";
  /// Bytes that each rank can stage at a time; 0 selects 10 MiB for host ranks (the field's default) and 16
  /// MiB for GPUs. A GPU allocates about five times as much for it, and four times what exceeds 16 MiB (between
  /// 2 ranks three and a half and two and a half times), plus 13 MiB, plus 1 MiB per rank: Lamport buffers and
  /// slots for data in flight exist for two parities. A host rank allocates up to a quarter more, for sends.
  std::size_t scratch_bytes = 0;
  /// File with a tuning table (onehop/tuning.h). If empty, the environment variable ONEHOP_TUNING names the file.
  /// Calls that no row of it matches use the library's own table. Rank 0's file applies to all ranks, and only
  /// rank 0 reads it.
  std::string tuning{};
  /// Allows several ranks on one GPU, for tests (also ONEHOP_ALLOW_OVERLAPPING_DEVICES=1). Host ranks are
  /// always allowed to share. Ranks that are threads then share a context. While one rank waits for another
  /// on the GPU, no rank may call functions that make the driver wait for the whole GPU (cudaMalloc,
  /// cudaFree, copies without a stream).
  bool allow_overlapping_devices = false;
  /// The handle type with which the ranks' processes share the GPUs' symmetric memory. `automatic` takes the
  /// type that the environment variable ONEHOP_SHARE names (auto, fd, fabric or ipc); otherwise the first of
  /// fabric handles, descriptors and CUDA IPC that works on all ranks. One rank's explicit choice applies to
  /// all ranks that leave it open. Joining fails with Error{refused} if another rank names a different type
  /// or cannot use this one. Host ranks accept `automatic` and `posix_fd`. With `ipc`, allocating and freeing
  /// symmetric memory waits for all work on the GPU.
  ShareBy share_by = ShareBy::automatic;
  /// GPUs: joining fails with Error{refused} unless, since the machine booted, the latest check of every pair
  /// of its devices passed (`onehop p2p-check`, check_peers, peers_verified). Also
  /// ONEHOP_REQUIRE_VERIFIED_PEERS=1. It suffices that one rank sets it; rank 0 reads its user's record of
  /// the checks. Joining itself checks no device.
  bool require_verified_peers = false;
};

/// One rank's handle of a group. Joining is collective: either every rank gets a group, or every rank gets
/// the same Error. Thread-safe. Collectives of one group are serialized; those of different groups are
/// independent.
///
/// If `JoinOptions::device` is a GPU, symmetric memory is that GPU's memory, and collectives are enqueued on
/// a stream and return at once; `synchronize` and `check` report whether they succeeded. Make the calls on
/// one group in the same order on all ranks. Calls on different streams execute one after the other, also
/// in CUDA graphs.
///
/// When a rank dies, times out or aborts, the current and later calls of every other rank throw an Error that
/// names it. Leave the group (destroy it) and form a new one; the process need not restart. After fork(), the
/// child's copy is unusable: its calls throw, and its destructor does not affect the parent's group.
class ONEHOP_API Group {
 public:
  /// Joins the group `options.name` as one of `options.size` ranks. Returns when all ranks have joined.
  /// Collective.
  ///
  /// Throws Error{refused} with the same reason on all ranks if the group cannot be formed:
  /// - more than kMaxDevices ranks (host: kMaxHostRanks), or several hosts;
  /// - two ranks on one device;
  /// - different onehop versions or values of ONEHOP_CHECK;
  /// - no common handle type for sharing memory;
  /// - peers that are not verified although a rank requires it.
  ///
  /// A group of one rank is allowed: its collectives copy this rank's own data.
  [[nodiscard]] static Group join(std::shared_ptr<Store> store, JoinOptions options);
  /// Creates all ranks of a group of this process's GPUs from one thread: rank r uses devices[r]. The fields
  /// of `defaults` other than rank, size and device apply to every rank. One thread may then make calls that
  /// only enqueue work (all_reduce and all others that take a stream) for one rank after another. Calls that
  /// synchronize with the other ranks on the host (allocate, register_buffer, barrier, split, ...) need one
  /// thread per rank: see `on_every_rank`.
  [[nodiscard]] static std::vector<Group> join_local(const std::vector<DeviceId>& devices,
                                                     JoinOptions defaults = {});
  /// Joins with the rank, size and store that the environment of `onehop launch`, torchrun, mpirun or srun
  /// provides. The other fields of `defaults` are kept. docs/guide/groups.md lists the variables.
  [[nodiscard]] static Group from_env(JoinOptions defaults = {});

  Group(Group&&) noexcept;
  Group& operator=(Group&&) noexcept;
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  ~Group();  ///< leaves the group

  [[nodiscard]] Rank rank() const;
  [[nodiscard]] int size() const;
  [[nodiscard]] DeviceId device() const;
  /// Random identity of this group instance, 32 hex digits, unique on the host and the same on all ranks.
  [[nodiscard]] const std::string& id() const;
  [[nodiscard]] const std::string& name() const;
  [[nodiscard]] Duration timeout() const;
  /// By rank: its number in the group that this one was made from by `split` or `shrink`. Empty after joining.
  [[nodiscard]] const std::vector<Rank>& parent_ranks() const;
  /// The tuning file that the group follows, as named on rank 0; empty if none was named.
  [[nodiscard]] const std::string& tuning_file() const;
  /// The handle type with which the ranks' processes share symmetric memory. The same on all ranks; never
  /// ShareBy::automatic. Host groups: ShareBy::posix_fd.
  [[nodiscard]] ShareBy share_by() const;

  /// Allocates `bytes` bytes of zeroed symmetric memory on every rank. Collective. Throws Error{mismatch} on
  /// all ranks, naming the values, if sizes or options differ, and Error{invalid_argument} on all ranks if
  /// those of one rank are out of range.
  [[nodiscard]] SymmetricBuffer allocate(std::size_t bytes, const BufferOptions& options = {});
  /// Makes existing memory of every rank symmetric, without copying it: `bytes` bytes at `data`, which may
  /// lie anywhere in an allocation on this rank's GPU. Accepts memory of cudaMalloc, and of cuMemCreate if it
  /// can be exported as a descriptor. Collective.
  ///
  /// Throws on all ranks, and the group stays usable:
  /// - Error{mismatch}, naming the values, if sizes or options differ;
  /// - Error{invalid_argument} if the memory of one rank cannot be shared, naming its kind and an
  ///   alternative;
  /// - Error{unsupported} in a group of host ranks.
  ///
  /// The memory stays the caller's: it is neither zeroed nor freed, and must stay allocated while any rank
  /// holds the buffer. To free it: wait for your streams, destroy the buffer on all ranks, make a barrier,
  /// then free it. If the memory is freed too early, the library never mistakes new memory at the same
  /// address for the buffer, but the peers' pointers to it become invalid.
  ///
  /// Registering memory repeatedly is cheap, but each call synchronizes all ranks and takes 2 MiB for
  /// signals: keep the buffer.
  [[nodiscard]] SymmetricBuffer register_buffer(void* data, std::size_t bytes,
                                                const BufferOptions& options = {});
  /// Waits until all ranks have called it. Collective.
  void barrier();
  void barrier(Duration timeout);
  /// GPU groups: waits until all work enqueued on `stream` has completed, and throws if a collective of this
  /// group failed there. If you wait by other means (cudaStreamSynchronize, for example), call `check()` to
  /// learn whether the results are valid. Host groups: equivalent to `check()`.
  ///
  /// Throws Error{timeout} if the stream has not completed in time; the group has then failed on all ranks.
  /// The error names the rank that delays the stream: one that the device waits for, one whose process does
  /// not answer, or one that has begun fewer collectives; if there is none, this rank.
  void synchronize(Stream stream);
  void synchronize(Stream stream, Duration timeout);
  /// Returns the payloads of all ranks in rank order, at most 64 KiB each. Collective.
  [[nodiscard]] std::vector<std::string> all_gather(std::string_view payload);
  /// The channel that passes file descriptors between the ranks of this group.
  [[nodiscard]] IpcChannel& channel();

  /// Splits the group: ranks with the same color form a new group, ordered by key, then by rank. A rank with
  /// a negative color gets nullopt. Collective. Errors name ranks by their numbers in this group. A failure
  /// of any rank fails the split on all ranks, whatever their colors.
  [[nodiscard]] std::optional<Group> split(int color, int key = 0);

  /// Forms a new group of the ranks that are left, in the same order, after ranks have died or left, or after any
  /// other failure. Every rank that is alive and has not left must call it; those that are gone are found without
  /// being named, however many, also if they die in this call. If the group has not failed yet, this call fails it:
  /// the calls of the other ranks throw Error{aborted}.
  ///
  /// The new group has this one's options, name and tuning; `parent_ranks` tells which ranks it has. Buffers and
  /// graphs belong to the old group, which stays failed: destroy it.
  ///
  /// Throws Error{timeout} that names a rank which is alive but has not called it; call it again to go on. (A
  /// stopped process is alive: end it to go on without it.) Throws Error{invalid_argument} after it has succeeded,
  /// or if this rank has left. Throws Error{aborted} if a rank that has the new group calls `abort` on it before this
  /// rank has it; if that rank calls `shrink` on it, this call goes on and returns the later group. Uses the sockets of
  /// the group, not its store.
  [[nodiscard]] Group shrink();
  [[nodiscard]] Group shrink(Duration timeout);

  /// Makes every rank's current and later calls throw Error{aborted} with this reason. Not collective. May be
  /// called from any thread, even while another thread of this rank waits in a call.
  void abort(std::string_view reason) noexcept;
  /// Throws the error that any call would throw now, such as after an abort, the death of a rank, or a fork.
  /// Returns if the group is usable.
  void check() const;
  /// Has a thread of the process watch the group, for programs that replay graphs or wait for streams by other
  /// means and so make no calls that could throw. When the group has failed, the thread logs the error at once.
  /// If after `grace` no call of this rank has thrown the failure, and the rank has not left, the process ends
  /// with exit code 1, without destructors. Without a `grace` it only logs. Repeated calls replace the grace.
  /// Thread-safe.
  void watch(std::optional<Duration> grace = std::nullopt);
  /// The group's failure if no call of this rank has thrown it yet, also after `leave`. Does not count as a call
  /// that throws it. Never waits for long (see check). Thread-safe.
  [[nodiscard]] std::optional<Error> unreported_failure() const;
  /// Leaves the group; later calls throw. The destructor calls it. A rank on a GPU first waits for its calls
  /// (for all work on the GPU if calls were captured, or kernels of the user got views of buffers), at most for the
  /// longest timeout of the group and its calls. If they have not completed then, leave logs a warning and the group's memory stays allocated. Otherwise the memory is freed, as far as no buffer of the group exists:
  /// graphs that contain calls of the group must not be replayed any more.
  void leave() noexcept;

  /// Number of collectives of this rank per algorithm: completed ones on host ranks, enqueued ones on GPUs.
  /// Replays of a CUDA graph do not count.
  [[nodiscard]] std::array<std::uint64_t, kAlgorithmCount> usage() const;

  class State;
  /// Internal, for the collective layer.
  [[nodiscard]] State& state() const;

 private:
  friend class IntraNodeComm;  // joins within the rest of its own deadline
  static Group join_until(const Deadline& deadline, std::shared_ptr<Store> store, JoinOptions options);
  explicit Group(std::shared_ptr<State> state);
  std::shared_ptr<State> state_;
};

/// Runs `body` for every group concurrently, each on its own thread, and waits for all of them. Then throws
/// the first error, if any. For a process in which one thread owns several ranks.
ONEHOP_API void on_every_rank(std::vector<Group>& groups, const std::function<void(Group&)>& body);

}  // namespace onehop
