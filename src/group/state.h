// SPDX-License-Identifier: Apache-2.0
// What a Group and its buffers share. Used by the group and collective layers only.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "onehop/group.h"

#include "base/check.h"
#include "base/range.h"
#include "group/device_progress.h"
#include "group/device_watch.h"
#include "group/group_tuning.h"
#include "group/mesh.h"
#include "kernel/device_team.h"
#include "kernel/host/pairs.h"
#include "kernel/host/team.h"
#include "memory/backend.h"
#include "memory/user_memory.h"
#include "os/fork_guard.h"
#include "os/timed_mutex.h"

namespace onehop {

using MappedBlocks = std::vector<std::shared_ptr<Block>>;

/// For memory that a device still uses: it stays mapped until the process ends.
void keep_for_ever(MappedBlocks& blocks) noexcept;

/// Where a symmetric buffer lies, as this rank reaches it: an entry per rank in each.
struct BufferParts {
  std::vector<std::byte*> data;
  std::vector<std::uint32_t*> host_pads;    ///< see SymmetricBuffer::State::host_pad_bytes
  std::vector<std::uint32_t*> device_pads;  ///< SignalChannels; none in a group of host ranks
  MappedBlocks owners;                      ///< what keeps all of it mapped
  std::optional<UserMemory> registered{};   ///< this rank's data, where it is its user's memory
};

/// A symmetric buffer as collectives look pointers up: where this rank's part lies.
struct BufferRange {
  std::uint64_t number = 0;  ///< the same on all ranks: buffers are made collectively and counted
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  std::weak_ptr<SymmetricBuffer::State> state;
};

class Group::State : public std::enable_shared_from_this<Group::State> {
 public:
  /// Collective: allocates and exchanges the communicator's segments.
  State(JoinOptions options, std::string id, std::shared_ptr<IpcChannel::Mesh> mesh,
        std::shared_ptr<const GroupTuning> tuning, bool checks_calls, const Deadline& deadline);
  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  [[nodiscard]] const JoinOptions& options() const { return options_; }
  [[nodiscard]] const std::string& id() const { return id_; }
  /// The same on all ranks, and handed on to the groups split off.
  [[nodiscard]] const GroupTuning& tuning() const { return *tuning_; }
  [[nodiscard]] const std::shared_ptr<const GroupTuning>& shared_tuning() const { return tuning_; }
  /// How ranks reach each other's memory, for people: "memfd".
  [[nodiscard]] std::string_view sharing() const {
    if (one_process_) return "one mapping in one process";
    return options_.device.is_host() ? "memfd" : to_string(options_.share_by);
  }
  [[nodiscard]] Rank rank() const { return options_.rank; }
  /// What errors call this rank (Mesh::named).
  [[nodiscard]] Rank own_name() const { return mesh_->named(rank()); }
  [[nodiscard]] int size() const { return options_.size; }
  [[nodiscard]] IpcChannel::Mesh& mesh() const { return *mesh_; }
  [[nodiscard]] IpcChannel& channel() { return channel_; }
  [[nodiscard]] host::Team& team() { return team_; }
  /// Of host ranks only.
  [[nodiscard]] host::Pairs& pairs() { return pairs_; }
  /// nullptr in a group of host ranks.
  [[nodiscard]] DeviceTeam* device() const { return device_.get(); }
  /// nullptr in a group of host ranks.
  [[nodiscard]] DeviceProgress* progress() const { return progress_.get(); }
  /// Whether GPU ranks compare their calls on the host before they queue them (ONEHOP_CHECK=1, the
  /// same on all ranks): for debugging, since then all ranks arrive at every call on the host.
  [[nodiscard]] bool checks_calls() const { return checks_calls_; }
  [[nodiscard]] std::size_t staging_bytes() const { return options_.scratch_bytes; }
  [[nodiscard]] std::size_t copy_bytes() const { return options_.copy_scratch_bytes; }
  /// Blocks of a kernel that every rank's device can hold at once, beside those of ranks that share it.
  [[nodiscard]] int resident_blocks() const { return resident_blocks_; }

  /// Runs one call of this group: alone, and with its failure made every rank's, unless all ranks have it
  /// already. `body(deadline)` waits at most until the deadline, as does the wait for other threads' calls. A
  /// negative `timeout` is for the body to refuse: the other ranks must hear of it.
  template <class F>
  auto call(const char* phase, Duration timeout, F&& body) {
    const Range range(phase);
    // The fast look; everything slower is found out while waiting. Once before the lock, which the child of a
    // fork may have inherited locked, and once after it, since the call before this one may have failed.
    if (!mesh_->usable()) mesh_->check(phase);
    os::CallDeadline deadline(timeout.count() < 0 ? options_.timeout : timeout);
    if (!call_mutex_.try_lock() && !call_mutex_.try_lock_until(deadline.arm()))
      fail_call(mesh_->out_of_turn(timeout, phase), phase);
    const std::lock_guard turn(call_mutex_, std::adopt_lock);
    if (!mesh_->usable()) mesh_->check(phase);
    try {
      return body(deadline);
    } catch (const Error& error) {
      if (found_by_all(error.code())) throw;
      fail_call(error, phase);
    } catch (const std::exception& other) {
      // Out of memory, most likely: the other ranks must not take this one's next call for the rest of this
      // call.
      fail_call(Error(ErrorCode::out_of_resources, other.what()), phase);
    }
  }

  /// One step of the team's protocol: waits for every rank, naming in an error the one that did not come.
  void wait_for_all(os::CallDeadline& deadline, const char* phase) {
    for (int r = 0; r < size(); ++r) {
      if (r != rank().value) wait_for(r, deadline, phase);
    }
  }
  void wait_for(int r, os::CallDeadline& deadline, const char* phase) {
    IpcChannel::Mesh::Wait wait(*mesh_);
    const auto check = [&] {
      wait.look(set_of(Rank{r}), deadline.arm());
      mesh_->check_for(
          Rank{r}, [&] { return team_.arrived(r); }, phase);
    };
    if (!team_.wait(r, deadline, check)) throw_timeout(wait.blame(Rank{r}, phase), deadline.timeout(), phase);
  }
  [[noreturn]] void throw_timeout(const IpcChannel::Mesh::Blame& blame, Duration timeout,
                                  const char* phase) const;
  /// Makes `error` the group's failure and throws it as the other ranks see it.
  [[noreturn]] void fail_call(const Error& error, const char* phase) { mesh_->fail_call(error, phase); }

  /// Collective: everyone's status; throws the first failure, the same on all ranks.
  void agree(const Status& own, const Deadline& deadline, const char* phase);
  /// Runs what may fail on this rank alone; what became of it, for the others to hear.
  template <class Step>
  [[nodiscard]] Status attempt(const char* phase, Step&& step) const {
    try {
      step();
      return {};
    } catch (const Error& error) {
      Status status = Status::of(error, own_name());
      status.message = fmt::format("{}: rank {}: {}", phase, own_name().value, error.message());
      return status;
    } catch (const std::bad_alloc&) {
      return {.code = ErrorCode::out_of_resources,
              .origin = own_name(),
              .message = fmt::format("{}: rank {}: out of memory", phase, own_name().value)};
    }
  }
  /// Collective: `bytes` of memory on every rank, as the user asked for them, and `extra` of our own before
  /// them; mapped by every rank, in rank order.
  /// `options`, if any, must be the same on all ranks. `initialize`, if any, gets the own memory before
  /// another rank can map it.
  [[nodiscard]] MappedBlocks exchange_blocks(const MemoryBackend& backend, std::size_t bytes,
                                             std::size_t extra, const Deadline& deadline, const char* phase,
                                             const BufferOptions* options = nullptr,
                                             const std::function<void(std::byte*)>& initialize = {});
  /// Collective. All ranks throw what a rank passes as `refusal`.
  [[nodiscard]] std::optional<Group> split(int color, int key, Status refusal = {});
  [[nodiscard]] SymmetricBuffer allocate(std::size_t bytes, const BufferOptions& options);
  [[nodiscard]] SymmetricBuffer register_buffer(void* data, std::size_t bytes, const BufferOptions& options);
  /// The symmetric buffer that holds [data, data + bytes), or nullptr and number 0. Asks the driver whether
  /// memory that its user registered is still there: what was freed since is in no buffer.
  [[nodiscard]] std::pair<std::shared_ptr<SymmetricBuffer::State>, std::uint64_t> find_buffer(
      const void* data, std::size_t bytes);

  void count_usage(Algorithm algorithm) {
    usage_[static_cast<std::size_t>(algorithm)].fetch_add(1, std::memory_order_relaxed);
  }
  [[nodiscard]] std::array<std::uint64_t, kAlgorithmCount> usage() const;
  /// Waits for the device to be done, watching the peers meanwhile.
  void synchronize(Stream stream, Duration timeout);
  void leave() noexcept;
  /// ONEHOP_LOG=info: a line that says what this rank is part of, and on rank 0 one for the group. `how`:
  /// "joined".
  void log_beginning(const char* how, std::chrono::steady_clock::time_point begin) const;

  /// For the log: the device was still at work when `what` was to be given back.
  [[nodiscard]] std::string unended_work(const char* phase, const char* what) const;

 private:
  /// Waits for the device until the group's timeout, and a little longer after ending this rank's own waits.
  void end_device_work() noexcept;
  /// Collective among the members: makes the sub-group of these ranks. Returns what all of them can hear of.
  [[nodiscard]] Status form_part(JoinOptions options, const os::Id& id, std::vector<os::UniqueFd> sockets,
                                 const std::vector<Rank>& members, const Deadline& deadline,
                                 std::optional<Group>& part);
  /// Collective: memory that its user has on every rank, mapped by every rank. Without pads.
  [[nodiscard]] BufferParts exchange_user_memory(std::byte* data, std::size_t bytes,
                                                 const BufferOptions& options, const Deadline& deadline);
  /// Makes the buffer and notes where it is, for find_buffer.
  [[nodiscard]] SymmetricBuffer add_buffer(std::size_t bytes, const BufferOptions& options,
                                           BufferParts parts);
  void start_device(const Deadline& deadline);
  /// Collective. Returns whether no other rank uses this rank's device.
  bool share_out_devices(const Deadline& deadline);

  /// Errors that calls throw on all ranks alike, in the same step: because each finds it by itself, or since
  /// they agreed on it. The group stays usable after them. (What fails on one rank alone inside an exchange
  /// is made every rank's by Mesh, whatever its code.)
  [[nodiscard]] static bool found_by_all(ErrorCode code) {
    return code == ErrorCode::mismatch || code == ErrorCode::invalid_argument || code == ErrorCode::refused ||
           code == ErrorCode::out_of_resources;
  }

  const std::uint32_t generation_ = os::fork_generation();
  JoinOptions options_;
  std::string id_;
  std::shared_ptr<IpcChannel::Mesh> mesh_;
  std::shared_ptr<const GroupTuning> tuning_;
  IpcChannel channel_;
  std::unique_ptr<MemoryBackend> host_memory_;
  std::unique_ptr<MemoryBackend> device_memory_;  ///< GPU groups only, as what follows
  MappedBlocks segments_;
  MappedBlocks device_segments_;
  host::Team team_;
  host::Pairs pairs_;
  std::unique_ptr<DeviceTeam> device_;
  std::unique_ptr<DeviceProgress> progress_;
  std::unique_ptr<DeviceWatch> watch_;
  bool device_ended_ = true;  ///< false: its work goes on, in memory that must stay
  bool one_process_ = false;
  bool checks_calls_;
  int resident_blocks_ = 0;
  os::TimedMutex call_mutex_;
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

  /// Throws what is wrong with them.
  static void require_usable(const BufferOptions& options);
  /// Of options that may be unusable still.
  [[nodiscard]] static std::size_t host_pad_bytes(int size, const BufferOptions& options);
  [[nodiscard]] static std::size_t device_pad_bytes(const BufferOptions& options);
  [[nodiscard]] DeviceTeam& device(const char* what) const;
  [[nodiscard]] DeviceView device_view(std::size_t offset, std::size_t length, Duration timeout) const;
  void require_channel(int channel) const;
  void require_rank(Rank rank) const;
  /// For a signal to `dst`; a bad argument is the failure of the group.
  void require_target(Rank dst, int channel) const;

  enum class Slot { barrier, signal };
  /// The word that rank `src` raises in the pad of rank `owner`.
  [[nodiscard]] std::atomic_ref<std::uint32_t> slot(Slot kind, int owner, int channel, int src) const;

  void barrier(int channel, Duration timeout);
  void put_signal(Rank dst, int channel);
  void wait_signal(Rank src, int channel, Duration timeout);

  /// Whether this rank's part is still what it was: memory that was registered is its user's to free.
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
  // How far each counter is. Only the thread that uses a channel touches its entries.
  std::vector<std::uint32_t> barriers_;  ///< [channel]
  std::vector<std::uint32_t> sent_;      ///< [channel][dst]
  std::vector<std::uint32_t> awaited_;   ///< [channel][src]
};

}  // namespace onehop
