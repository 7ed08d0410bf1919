// SPDX-License-Identifier: Apache-2.0
// State shared by a Group and its buffers. Used by the group and collective layers only.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "onehop/group.h"

#include "backend/selector.h"
#include "base/check.h"
#include "base/range.h"
#include "group/failure_watch.h"
#include "group/group_tuning.h"
#include "group/local_rank.h"
#include "group/mesh.h"
#include "memory/user_memory.h"
#include "os/timed_mutex.h"

namespace onehop {

class Group::State : public WatchedGroup, public std::enable_shared_from_this<Group::State> {
 public:
  /// Collective: allocates and exchanges the communicator's segments.
  State(JoinOptions options, std::string id, std::shared_ptr<IpcChannel::Mesh> mesh,
        std::shared_ptr<const GroupTuning> tuning, bool checks_calls, const Deadline& deadline);
  ~State() override;
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  [[nodiscard]] const JoinOptions& options() const { return options_; }
  [[nodiscard]] const std::string& id() const { return id_; }
  /// The same on all ranks. Groups created by split inherit it.
  [[nodiscard]] const GroupTuning& tuning() const { return *tuning_; }
  [[nodiscard]] Rank rank() const { return options_.rank; }
  /// The name of this rank in errors (Mesh::named).
  [[nodiscard]] Rank own_name() const { return mesh_->named(rank()); }
  [[nodiscard]] int size() const { return options_.size; }
  [[nodiscard]] IpcChannel::Mesh& mesh() const { return *mesh_; }
  [[nodiscard]] IpcChannel& channel() { return channel_; }
  /// What differs between host and GPU ranks. HostRank::of and DeviceRank::of have the rest.
  [[nodiscard]] LocalRank& local() const { return *local_; }
  /// Selects the algorithms of calls.
  [[nodiscard]] const Selector& selector() const { return *selector_; }
  /// Whether GPU ranks compare their calls on the host before they queue them (ONEHOP_CHECK=1, the same on
  /// all ranks). This is for debugging, since it synchronizes all ranks on the host in every call.
  [[nodiscard]] bool checks_calls() const { return checks_calls_; }

  /// Runs one call of this group, excluding other calls. A failure becomes the failure of every rank, unless
  /// all ranks have it already. `body(deadline)` waits at most until the deadline, as does the wait for other
  /// threads' calls. The body refuses a negative `timeout`, because the other ranks must learn of it.
  template <class F>
  auto call(const char* phase, Duration timeout, F&& body) {
    const Range range(phase);
    // The fast check; slower ones run while waiting. It is made before taking the lock, which the child of a
    // fork may have inherited locked. It is repeated afterwards, since the previous call may have failed.
    if (!mesh_->usable()) mesh_->check(phase);
    os::CallDeadline deadline(timeout.count() < 0 ? options_.timeout : timeout);
    if (!call_mutex_.try_lock()) wait_for_turn(deadline.arm(), timeout, phase);
    const std::lock_guard turn(call_mutex_, std::adopt_lock);
    check_now(phase);
    const DataGuard guard(*this);
    try {
      return body(deadline);
    } catch (const Error& error) {
      if (found_by_all(error.code())) throw;
      fail_call(error, phase);
    } catch (const std::exception& other) {
      // Most likely out of memory. The other ranks must not take this rank's next call for the rest of this
      // call.
      fail_call(Error(ErrorCode::out_of_resources, other.what()), phase);
    }
  }

  /// Throws the group's failure. A failed wait of this rank's kernels is one from the moment at which the kernel
  /// reports it. Never waits for long: while ranks are asked who is to blame, at most 60 ms.
  void check_now(const char* phase) {
    local_->look_for_failure();
    if (!mesh_->usable()) mesh_->check(phase);
  }

  /// Group::unreported_failure.
  [[nodiscard]] std::optional<Error> unreported() override;

  /// Makes `error` the failure of the group and throws it in the form that the other ranks see.
  [[noreturn]] void fail_call(const Error& error, const char* phase) { mesh_->fail_call(error, phase); }

  /// Collective. If a rank passes a `refusal`, all ranks throw it.
  [[nodiscard]] std::optional<Group> split(int color, int key, Status refusal = {});
  /// Group::shrink.
  [[nodiscard]] Group shrink(Duration timeout);
  [[nodiscard]] const std::vector<Rank>& parent_ranks() const { return parent_ranks_; }
  [[nodiscard]] SymmetricBuffer allocate(std::size_t bytes, const BufferOptions& options);
  /// Creates the buffer and records its range for find_buffer.
  [[nodiscard]] SymmetricBuffer add_buffer(std::size_t bytes, const BufferOptions& options,
                                           BufferParts parts);
  /// The symmetric buffer that holds [data, data + bytes), or nullptr and number 0. Asks the driver whether
  /// registered user memory still exists: memory freed since then is in no buffer.
  [[nodiscard]] std::pair<std::shared_ptr<SymmetricBuffer::State>, std::uint64_t> find_buffer(
      const void* data, std::size_t bytes);

  void count_usage(Algorithm algorithm) {
    usage_[static_cast<std::size_t>(algorithm)].fetch_add(1, std::memory_order_relaxed);
  }
  [[nodiscard]] std::array<std::uint64_t, kAlgorithmCount> usage() const;
  void leave() noexcept;
  /// ONEHOP_LOG=info: logs a line about this rank's place in the group, and on rank 0 one for the group.
  /// `how` is for example "joined".
  void log_beginning(const char* how, std::chrono::steady_clock::time_point begin) const;

 private:
  [[nodiscard]] std::string title() const override;
  [[nodiscard]] bool ended() const override { return mesh_->left(); }
  /// Takes call_mutex_, which another thread's call holds. The other ranks make this call, too: they learn of
  /// it if this one cannot begin.
  void wait_for_turn(const Deadline& deadline, Duration timeout, const char* phase);
  /// Lives as long as a call. If the group has failed, the other ranks may still read the call's data, or come
  /// to the call later.
  class DataGuard {
   public:
    explicit DataGuard(State& group) : group_(group) {}
    ~DataGuard() {
      if (!group_.mesh_->usable()) group_.local_->withdraw();
    }
    DataGuard(const DataGuard&) = delete;
    DataGuard& operator=(const DataGuard&) = delete;

   private:
    State& group_;
  };

  /// What a call of `shrink` starts from: this group, or a successor that failed before it was a group.
  struct Failed {
    std::shared_ptr<IpcChannel::Mesh> mesh;
    std::vector<Rank> ranks;  ///< this group's numbers of its ranks
    bool succeeded = false;   ///< the survivors have a group
  };

  /// Collective among the survivors: their group, or the error that all of them learn.
  [[nodiscard]] std::shared_ptr<State> form_survivors(const IpcChannel::Mesh::Successor& next,
                                                      const Deadline& deadline);
  /// Collective among the members: creates the sub-group of these ranks. Returns the status that all of them
  /// learn.
  [[nodiscard]] Status form_part(JoinOptions options, const os::Id& id, std::vector<os::UniqueFd> sockets,
                                 const std::vector<Rank>& members, const Deadline& deadline,
                                 std::optional<Group>& part);
  /// Whether calls throw this error on all ranks, in the same step: each rank finds it by itself, or all
  /// agreed on it. The group stays usable after it. (If only one rank fails inside an exchange, Mesh
  /// makes that every rank's failure, whatever the code.)
  [[nodiscard]] static bool found_by_all(ErrorCode code) {
    return code == ErrorCode::mismatch || code == ErrorCode::invalid_argument || code == ErrorCode::refused ||
           code == ErrorCode::out_of_resources;
  }

  JoinOptions options_;
  std::string id_;
  std::shared_ptr<IpcChannel::Mesh> mesh_;
  std::shared_ptr<const GroupTuning> tuning_;
  IpcChannel channel_;
  std::unique_ptr<LocalRank> local_;
  std::optional<Selector> selector_;
  bool checks_calls_;
  os::TimedMutex call_mutex_;
  os::TimedMutex shrink_mutex_;
  Failed last_;  ///< guarded by shrink_mutex_
  std::vector<Rank> parent_ranks_;
  std::uint64_t buffers_made_ = 0;
  std::vector<BufferRange> buffers_;
  std::array<std::atomic<std::uint64_t>, kAlgorithmCount> usage_{};
};

class SymmetricBuffer::State {
 public:
  State(std::shared_ptr<Group::State> owner, std::size_t size_in_bytes, const BufferOptions& options,
        BufferParts parts);
  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  /// Throws an error if they are invalid.
  static void require_usable(const BufferOptions& options);
  /// Accepts options that have not been validated.
  [[nodiscard]] static std::size_t host_pad_bytes(int size, const BufferOptions& options);
  [[nodiscard]] static std::size_t device_pad_bytes(const BufferOptions& options);
  [[nodiscard]] DeviceView device_view(std::size_t offset, std::size_t length, Duration timeout) const;
  void require_channel(int channel) const;
  void require_rank(Rank rank) const;
  /// Validates the target of a signal. An invalid argument fails the group.
  void require_target(Rank dst, int channel) const;

  enum class Slot { barrier, signal };
  /// The word that rank `src` raises in the pad of rank `owner`.
  [[nodiscard]] std::atomic_ref<std::uint32_t> slot(Slot kind, int owner, int channel, int src) const;

  void barrier(int channel, Duration timeout);
  void put_signal(Rank dst, int channel);
  void wait_signal(Rank src, int channel, Duration timeout);

  /// Whether this rank's part still exists: the user may free registered memory.
  [[nodiscard]] bool still_there() const { return !registered_ || onehop::still_there(*registered_); }

  const std::shared_ptr<Group::State> group;
  const std::size_t bytes;
  const int channels;
  const std::vector<std::byte*> data;      ///< per rank
  const std::vector<std::uint32_t*> pads;  ///< per rank, on the host

 private:
  void raise(Slot kind, int dst, int channel, std::uint32_t value);
  /// Throws Error{timeout} at the deadline.
  void await(Slot kind, int src, int channel, std::uint32_t value, os::CallDeadline& deadline,
             const char* phase);

  const std::vector<std::uint32_t*> device_pads_;
  MappedBlocks owners_;
  const std::optional<UserMemory> registered_;
  // The value of each counter. Only the thread that uses a channel accesses its entries.
  std::vector<std::uint32_t> barriers_;  ///< [channel]
  std::vector<std::uint32_t> sent_;      ///< [channel][dst]
  std::vector<std::uint32_t> awaited_;   ///< [channel][src]
};

}  // namespace onehop
