// SPDX-License-Identifier: Apache-2.0
// Communicators that onehop carries.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "onehop/group.h"

#include "abi.h"
#include "members.h"
#include "reductions.h"
#include "windows.h"

namespace onehop::nccl {

/// A communicator: its group, once it has joined. An ncclComm_t points to it, and a table keeps it alive.
class Communicator {
 public:
  Communicator(int rank, int size, DeviceId device, int cuda_device)
      : rank_(rank), size_(size), device_(device), cuda_device_(cuda_device) {}
  /// A part of `parent`.
  Communicator(const Communicator& parent, Group part)
      : rank_(part.rank().value),
        size_(part.size()),
        device_(parent.device_),
        cuda_device_(parent.cuda_device_),
        group_(std::move(part)),
        members_(parent.members_->part(*group_)),
        formed_(true),
        joined_(true) {}

  /// ONEHOP_LOG=debug: says how many calls were carried, and how many were not.
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return size_; }
  [[nodiscard]] DeviceId device() const { return device_; }
  /// What ncclCommCuDevice answers: on the host, where there is no device, the number that the program passed, else 0.
  [[nodiscard]] int cuda_device() const { return cuda_device_; }
  /// Also while another thread joins.
  [[nodiscard]] bool joined() const { return joined_.load(std::memory_order_acquire); }
  /// Throws Error{invalid_argument} before the communicator has joined: between ncclGroupStart and ncclGroupEnd.
  [[nodiscard]] Group& group();
  /// As above.
  [[nodiscard]] Members& members();
  [[nodiscard]] std::shared_ptr<Members> shared_members() const { return members_; }

  [[nodiscard]] Reductions& reductions() { return reductions_; }
  [[nodiscard]] Windows& windows() { return windows_; }

  /// Joins the other ranks, and waits for them for at most `limit`. Collective. Throws Error{aborted} at once if another
  /// thread aborts the communicator meanwhile, or if `given_up` says that another rank will not come: it is asked about every
  /// 20 ms while this rank waits, and must not throw.
  void join(std::shared_ptr<Store> store, std::string name, Duration limit,
            const std::function<bool()>& given_up);
  /// Whether this rank called abort().
  [[nodiscard]] bool aborted() const { return aborted_.load(); }
  /// Ends the calls of all ranks, also that of another thread. Any rank may do it.
  void abort(std::string_view function) noexcept;
  /// The same for ncclCommRevoke, after which this rank's state is no error.
  void revoke() noexcept;
  [[nodiscard]] bool revoked() const { return revoked_.load(); }
  /// Leaves the group, which waits for the calls of this rank (Group::leave).
  void leave() noexcept;
  void count_carried() { carried_.fetch_add(1, std::memory_order_relaxed); }
  void count_forwarded() { forwarded_.fetch_add(1, std::memory_order_relaxed); }

 private:
  int rank_;
  int size_;
  DeviceId device_;
  int cuda_device_;
  std::optional<Group> group_;
  std::shared_ptr<Members> members_;
  Reductions reductions_;
  Windows windows_;  ///< of group_
  std::atomic<std::uint64_t> carried_{0};
  std::atomic<std::uint64_t> forwarded_{0};
  std::atomic<bool> formed_{false};   ///< set after group_: pairs with the loads in abort() and leave()
  std::atomic<bool> joined_{false};   ///< set after group_ and members_: pairs with the load in joined()
  std::atomic<bool> aborted_{false};  ///< pairs with formed_ (abort()); ends the waits of join()
  std::atomic<bool> revoked_{false};
};

/// Where there is no NCCL: returns the handle, which find() knows until release().
[[nodiscard]] Comm add(std::shared_ptr<Communicator> communicator);
/// Where there is one: from now on, this communicator carries the calls on NCCL's handle.
void add(Comm handle, std::shared_ptr<Communicator> communicator);
[[nodiscard]] bool is_carried(Comm handle) noexcept;
/// Whether the program has made this reduction for the communicator, and that is carried.
[[nodiscard]] bool has_reduction(Comm handle, RedOp op) noexcept;
/// Where there is one: the communicator joins, and will be carried unless remove_joining() takes it away before, which returns
/// it.
void add_joining(Comm handle, std::shared_ptr<Communicator> communicator);
/// It has joined: from now on it carries the calls. Returns false if it was taken away. At no time is it in neither place,
/// where another thread that aborts it would not find it.
bool add_joined(Comm handle, std::shared_ptr<Communicator> communicator);
std::shared_ptr<Communicator> remove_joining(Comm handle) noexcept;
/// Returns whether it still was to be carried. NCCL may have given the handle to another one since.
bool remove_joining(Comm handle, const Communicator& communicator) noexcept;
/// For a call that is forwarded: counts it if the communicator is carried.
void count_forwarded(Comm handle) noexcept;
/// Throws Error{invalid_argument} if there is no such communicator: it was destroyed, or never was one.
[[nodiscard]] std::shared_ptr<Communicator> find(Comm comm);
std::shared_ptr<Communicator> release(Comm comm);
/// Releases and aborts it. A thread leaves the group later: an abort waits for nothing.
void release_aborted(Comm comm, std::string_view function);
/// Where there is no NCCL: returns whether find() knew the communicator. It no longer does.
bool forget(const Communicator& communicator) noexcept;

/// How long a call waits for other ranks: ONEHOP_NCCL_TIMEOUT.
[[nodiscard]] Duration call_timeout();

/// The device of a communicator that this thread makes now: the host with ONEHOP_NCCL_DEVICE=cpu, else the current GPU.
[[nodiscard]] DeviceId current_device();
/// The device that a program names; as above.
[[nodiscard]] DeviceId device_of(int cuda_device);

}  // namespace onehop::nccl
