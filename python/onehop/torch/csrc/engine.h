// SPDX-License-Identifier: Apache-2.0
// What carries out the calls of a process group on one kind of device. The backend chooses an engine at the
// first call; all ranks choose alike.
#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/Device.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>
#include <vector>

#include "onehop/c_api.h"

#include "call.h"
#include "lists.h"
#include "shrink_vote.h"
#include "status.h"
#include "store.h"

namespace onehop_torch {

/// The settings of a group that all ranks pass alike.
struct JoinSettings {
  int64_t scratch_bytes = 0;  ///< 0: the library's default
  bool allow_overlapping_devices = false;
  std::string tuning;  ///< file; "": the library's default
  /// How long after a failure on a device the process ends if nothing has thrown it; negative: never.
  int64_t failure_grace_ms = -1;
};

class Engine {
 public:
  virtual ~Engine() = default;
  /// Host: returns when the call is complete. Devices: enqueues it on `stream`. Throws DistBackendError. Not
  /// responsible for Call::after.
  virtual void run(const Call& call, void* stream, int64_t timeout_ms) = 0;
  /// Tells the ranks that make a collective that this rank, which should make it too, does not, and why. Never throws.
  virtual void refuse(onehop_collective_t collective, onehop_status_t status, const char* reason) {}
  /// Makes the calls from begin() to end() of this thread start together at the end. drop() replaces end().
  virtual void begin() {}
  virtual void end() {}
  virtual void drop() {}
  /// Throws if the group has failed. Never waits.
  virtual void check() {}
  /// Throws if the group has failed and nothing has thrown that yet. Also after leave().
  virtual void check_unreported() {}
  /// Devices: waits on the host until the work on `stream` is complete.
  virtual void synchronize(void* stream, int64_t timeout_ms) = 0;
  /// Makes the current and later calls of all ranks fail. Callable while another thread is in a call.
  virtual void abort(const std::string& reason) {}
  /// Later calls of this rank fail.
  virtual void leave() {}
  /// The onehop group; nullptr if there is none.
  virtual onehop_group_t* group() { return nullptr; }
  /// Ends the group, and makes sure that the ranks that are left of it are `kept`, no more and no fewer. Throws otherwise;
  /// may be repeated then. Collective among the ranks that are left.
  virtual void find_survivors(const std::vector<int>& kept, int64_t timeout_ms);
  /// After find_survivors: the engine of the ranks that are left, which has their settings.
  virtual std::shared_ptr<Engine> take_survivors(const JoinSettings& settings, Membership members);
};

inline void Engine::find_survivors(const std::vector<int>& /*kept*/, int64_t /*timeout_ms*/) {
  TORCH_CHECK_VALUE(false, "onehop: a process group of one rank cannot shrink");
}

inline std::shared_ptr<Engine> Engine::take_survivors(const JoinSettings& /*settings*/,
                                                      Membership /*members*/) {
  return nullptr;
}

/// A process group of one rank: each result is a copy of this rank's own data. Any device, any type.
class LocalEngine final : public Engine {
 public:
  void run(const Call& call, void*, int64_t) override {
    const at::AutoDispatchBelowADInplaceOrView outside_autograd;  // see FlatOutputs
    TORCH_CHECK_VALUE(!point_to_point(call.collective), "onehop: a process group of one rank has no peer to ",
                      name(call.collective), " to");
    if (!call.out.defined() || !call.in.defined()) return;
    if (call.out.data_ptr() != call.in.data_ptr()) span({call.out}).copy_(span({call.in}));
    if (call.reduction.op == ONEHOP_OP_PREMUL_SUM) call.out.mul_(call.reduction.factor);
  }
  void synchronize(void*, int64_t) override {}
};

/// A group of the library.
class GroupEngine final : public Engine {
 public:
  /// Joins: returns when all `size` ranks have called it, or throws when `cancelled` becomes true. `name` is
  /// unique on `store`.
  GroupEngine(const c10::intrusive_ptr<c10d::Store>& store, const std::string& name, int rank, int size,
              int device, const JoinSettings& settings, int64_t timeout_ms, Membership members,
              const Cancellation& cancelled)
      : members_(std::move(members)) {
    std::unique_ptr<onehop_store_t, decltype(&onehop_store_destroy)> bridge(
        StoreBridge::open(store, std::chrono::milliseconds(timeout_ms), cancelled), &onehop_store_destroy);
    TORCH_CHECK_WITH(DistBackendError, !*cancelled, "onehop: process group '", members_.group,
                     "' was aborted");
    TORCH_CHECK_WITH(DistBackendError, bridge != nullptr, "onehop: forming the group in process group '",
                     members_.group, "': its store did not answer within ", timeout_ms, " ms");
    onehop_join_options_t options;
    onehop_join_options_init(&options, sizeof(options));
    options.name = name.c_str();
    options.rank = rank;
    options.world_size = size;
    options.device = device;
    options.timeout_ms = timeout_ms;
    if (settings.scratch_bytes > 0) options.scratch_bytes = static_cast<size_t>(settings.scratch_bytes);
    options.allow_overlapping_devices = settings.allow_overlapping_devices ? 1 : 0;
    if (!settings.tuning.empty()) options.tuning = settings.tuning.c_str();
    const onehop_status_t status = onehop_group_join(bridge.get(), &options, &group_);
    if (status != ONEHOP_OK) {
      raise(status, "forming the group", members_, advice(status));
    }
    watch(settings);
  }
  /// Takes over a group that `generation` calls of shrink_group have made, one after the other.
  GroupEngine(onehop_group_t* group, const JoinSettings& settings, Membership members, uint64_t generation)
      : members_(std::move(members)), group_(group), generation_(generation) {
    watch(settings);
  }
  ~GroupEngine() override {
    onehop_group_destroy(survivors_);
    onehop_group_destroy(group_);
  }
  GroupEngine(const GroupEngine&) = delete;
  GroupEngine& operator=(const GroupEngine&) = delete;

  void run(const Call& call, void* stream, int64_t timeout_ms) override {
    const onehop_call_t made = call.on(stream, timeout_ms);
    const onehop_status_t status = onehop_run(group_, &made, nullptr);
    if (status != ONEHOP_OK) raise(status, name(call.collective).c_str(), members_);
  }
  void refuse(onehop_collective_t collective, onehop_status_t status, const char* reason) override {
    (void)onehop_refuse_call(group_, collective, status, reason);
  }
  void begin() override { check_status(onehop_group_call_begin(), "group call"); }
  void end() override { check_status(onehop_group_call_end(), "group call"); }
  void drop() override { onehop_group_call_drop(); }
  void check() override { check_status(onehop_group_check(group_), "an earlier call"); }
  void check_unreported() override {
    check_status(onehop_group_unreported_failure(group_), "an earlier call");
  }
  void synchronize(void* stream, int64_t timeout_ms) override {
    check_status(onehop_group_synchronize(group_, stream, timeout_ms), "waiting for the stream");
  }
  void abort(const std::string& reason) override { onehop_group_abort(group_, reason.c_str()); }
  void leave() override {
    onehop_group_leave(group_);
    onehop_group_leave(survivors_);
  }
  onehop_group_t* group() override { return group_; }

  void find_survivors(const std::vector<int>& kept, int64_t timeout_ms) override {
    const auto deadline = Clock::now() + std::chrono::milliseconds(timeout_ms);
    // A group that an earlier call found stays as it is, unless ranks that are excluded have to go first.
    bool shrinks = survivors_ == nullptr || onehop_group_check(survivors_) != ONEHOP_OK ||
                   !difference(left_, kept).empty();
    while (true) {
      if (shrinks) shrink(kept, deadline);
      const std::optional<std::vector<ShrinkVote>> votes = exchange_votes(kept, deadline);
      shrinks = !votes;
      if (votes && conclude(*votes)) return;
    }
  }

  std::shared_ptr<Engine> take_survivors(const JoinSettings& settings, Membership members) override {
    return std::make_shared<GroupEngine>(std::exchange(survivors_, nullptr), settings, std::move(members),
                                         generation_ + 1);
  }

 private:
  /// How long an excluded rank may take to end. The others have the timeout of the process group, which may be
  /// half an hour.
  static constexpr std::chrono::milliseconds kLeaving{10'000};
  using Clock = std::chrono::steady_clock;

  [[noreturn]] void refuse_shrink(const std::string& reason) const {
    C10_THROW_ERROR(DistBackendError,
                    c10::str("onehop: shrink_group of process group '", members_.group, "': ", reason));
  }
  [[noreturn]] void refuse_to_wait_for(int rank) const {
    refuse_shrink(
        c10::str("rank ", rank,
                 " is excluded, but its process is alive and has not left the group. Repeat the call "
                 "after it has ended or called destroy_process_group; new_group makes a group "
                 "without a rank that stays"));
  }
  /// For an error of a call on `group`, which is group_ or survivors_.
  [[noreturn]] void raise_in(onehop_group_t* group, onehop_status_t status) const {
    Membership names{members_.group, {}};
    for (int r = 0; r < onehop_group_size(group); ++r) {
      names.global_ranks.push_back(members_.global(group == group_ ? r : left_[static_cast<size_t>(r)]));
    }
    raise(status, "shrink_group", names);
  }

  void watch(const JoinSettings& settings) {
    // Waiting for a stream or replaying a graph throws nothing. Host calls throw by themselves.
    if (onehop_group_device(group_) != ONEHOP_DEVICE_HOST) {
      check_status(onehop_group_watch(group_, settings.failure_grace_ms), "watching the group");
    }
  }

  static std::chrono::milliseconds until(Clock::time_point deadline) {
    const auto rest = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
    return std::max(rest, std::chrono::milliseconds(0));
  }

  /// Forms survivors_ of the ranks that call this.
  void shrink(const std::vector<int>& kept, Clock::time_point deadline) {
    onehop_group_t* const from = survivors_ != nullptr ? survivors_ : group_;
    const auto rank_in_group = [&](int rank) {
      return survivors_ != nullptr && rank >= 0 ? left_[static_cast<size_t>(rank)] : rank;
    };
    onehop_group_t* next = nullptr;
    // The call that times out may be repeated, and goes on where it stopped.
    while (true) {
      const auto slice = std::min(until(deadline), kLeaving);
      const onehop_status_t status = onehop_group_shrink(from, slice.count(), &next);
      if (status == ONEHOP_OK) break;
      const int awaited = rank_in_group(onehop_last_error_rank());
      if (status == ONEHOP_ERROR_TIMEOUT && awaited >= 0 && !contains(kept, awaited)) {
        refuse_to_wait_for(awaited);
      }
      if (status == ONEHOP_ERROR_TIMEOUT && Clock::now() < deadline) continue;
      raise_in(from, status);
    }
    std::vector<int> left;
    for (int r = 0; r < onehop_group_size(next); ++r) {
      left.push_back(rank_in_group(onehop_group_parent_rank(next, r)));
    }
    onehop_group_destroy(std::exchange(survivors_, next));
    left_ = std::move(left);
  }

  /// What each rank of survivors_ asks for; nullopt if that group has to shrink first.
  std::optional<std::vector<ShrinkVote>> exchange_votes(const std::vector<int>& kept,
                                                        Clock::time_point deadline) {
    ShrinkVote own{
        .generation = generation_, .concluded = concluded_, .kept = set_of(kept), .refusal = refusal_};
    // One that is here and excluded may have to be waited for until it has left.
    const auto limit =
        difference(left_, kept).empty() ? until(deadline) : std::min(until(deadline), kLeaving);
    const std::string payload = own.encode();
    onehop_ipc_channel_t* channel = nullptr;
    onehop_status_t status = onehop_group_channel(survivors_, &channel);
    if (status != ONEHOP_OK) raise_in(survivors_, status);
    const std::unique_ptr<onehop_ipc_channel_t, decltype(&onehop_ipc_channel_destroy)> channel_owner(
        channel, &onehop_ipc_channel_destroy);
    onehop_payloads_t* all = nullptr;
    status = onehop_ipc_channel_all_gather(channel, payload.data(), payload.size(), limit.count(), &all);
    // Nobody but shrink_group knows this group, so an abort means that another rank shrinks it.
    if (status == ONEHOP_ERROR_PEER_LOST || status == ONEHOP_ERROR_ABORTED) return std::nullopt;
    if (status == ONEHOP_ERROR_TIMEOUT) {
      const int awaited = onehop_last_error_rank();
      if (awaited >= 0 && !contains(kept, left_[static_cast<size_t>(awaited)])) {
        refuse_to_wait_for(left_[static_cast<size_t>(awaited)]);
      }
    }
    if (status != ONEHOP_OK) raise_in(survivors_, status);
    const std::unique_ptr<onehop_payloads_t, decltype(&onehop_payloads_destroy)> owner(
        all, &onehop_payloads_destroy);
    std::vector<ShrinkVote> votes;
    for (size_t r = 0; r < left_.size(); ++r) {
      votes.push_back(ShrinkVote::decode(
          {static_cast<const char*>(onehop_payloads_data(all, r)), onehop_payloads_bytes(all, r)}));
    }
    return votes;
  }

  /// Whether all ranks want the ranks that are left, and only them. Throws the same on all ranks if not. False: ask again,
  /// since a rank has yet to hear how the last vote ended.
  bool conclude(const std::vector<ShrinkVote>& votes) {
    std::vector<int> early;
    bool repeat = false;
    for (size_t r = 0; r < votes.size(); ++r) {
      if (votes[r].generation > generation_) early.push_back(left_[r]);
      if (votes[r].generation < generation_) repeat = true;
    }
    if (!early.empty()) {
      refuse_shrink(
          c10::str(name_ranks(early), early.size() == 1 ? " has" : " have",
                   " the new process group already, and it failed before this rank had it. Destroy the "
                   "process group on all ranks, and make a new one"));
    }
    if (repeat) {
      refuse_shrink(
          "another rank has not got this process group, because it failed at once. Destroy the process "
          "group on all ranks, and make a new one");
    }
    for (const ShrinkVote& vote : votes) {
      if (vote.concluded < concluded_) repeat = true;
      if (vote.concluded <= concluded_) continue;
      // That vote was complete on some ranks, whose next calls ended it on this one.
      concluded_ = vote.concluded;
      refusal_ = vote.refusal;
      if (refusal_.empty()) return true;
      refuse_shrink(refusal_);
    }
    if (repeat) return false;
    std::vector<uint64_t> kept;
    for (const ShrinkVote& vote : votes) kept.push_back(vote.kept);
    ++concluded_;
    refusal_ = find_objection(onehop_group_size(group_), left_, kept);
    if (!refusal_.empty()) refuse_shrink(refusal_);
    return true;
  }

  static const char* advice(onehop_status_t status) {
    if (status == ONEHOP_ERROR_REFUSED)
      return ". Process groups on several machines or of more than 8 GPUs need ONEHOP_FALLBACK=nccl or gloo";
    if (status == ONEHOP_ERROR_TIMEOUT) {
      return ". A process group forms at its first call: make the first calls on process groups in the same "
             "order on all ranks, or pass device_id to init_process_group";
    }
    return "";
  }
  void check_status(onehop_status_t status, const char* what) const {
    onehop_torch::check(status, what, members_);
  }

  Membership members_;
  onehop_group_t* group_ = nullptr;
  onehop_group_t* survivors_ = nullptr;  ///< that nobody has taken
  std::vector<int> left_;                ///< the ranks of survivors_, as group_ counts them
  uint64_t generation_ = 0;              ///< calls of shrink_group that led to group_
  uint64_t concluded_ = 0;               ///< votes on survivors_ that ended, in a refusal or not
  std::string refusal_;                  ///< how the last one ended; empty: all agreed
};

}  // namespace onehop_torch
