// SPDX-License-Identifier: Apache-2.0
// How some ranks of a communicator meet again, to form one without the others.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "onehop/group.h"

#include "abi.h"
#include "unique_id.h"

namespace onehop::nccl {

/// What a rank knows of the others of its communicator. It needs neither their help nor the group, which may have failed or
/// been left; so it also serves when some have died or take no part. Thread-safe.
class Members {
 public:
  /// Tells the other ranks how to reach the store of this process. Collective.
  [[nodiscard]] static std::shared_ptr<Members> exchange(Group& group);
  /// Those of a group that was split off.
  [[nodiscard]] std::shared_ptr<Members> part(const Group& part) const;

  Members(const Group& group, std::vector<std::string> ids);
  Members(const Members&) = delete;
  Members& operator=(const Members&) = delete;

  [[nodiscard]] DeviceId device() const { return device_; }

  /// This rank among those that remain, in their order.
  struct Rest {
    int rank;
    int size;
    /// Where they meet: in the store of the first of them, under a name that only they use, for one call at a time.
    Address address;
    std::shared_ptr<const void> call;  ///< to be kept until the call has ended
  };
  /// The communicator without `count` ranks. Those that remain make the same calls, and get the same address. Throws
  /// Error{invalid_argument} if the ranks make no sense, and Error{unsupported} on all that remain if the first one has no
  /// store.
  [[nodiscard]] Rest without(const int* excluded, int count);

 private:
  /// The calls of this rank that exclude a set of ranks, as bits, and have not ended: several in one ncclGroupStart. Each
  /// has the smallest number that is free, so a call that has ended, however it did, leaves nothing on which the ranks could
  /// differ afterwards.
  struct Calls {
    std::mutex mutex;
    std::map<std::uint64_t, std::set<int>> numbers;
  };
  [[nodiscard]] static std::shared_ptr<const int> take_number(std::shared_ptr<Calls> calls,
                                                              std::uint64_t gone);

  int rank_;
  DeviceId device_;
  std::string group_id_;
  std::vector<std::string> ids_;  ///< by rank: a unique id of its process; empty if that could start no store
  std::shared_ptr<Calls> calls_ = std::make_shared<Calls>();
};

/// Where there is an NCCL: what is known of the ranks behind this handle, from when they were carried until it is destroyed.
void keep_members(Comm handle, std::shared_ptr<Members> members);
/// nullptr if there is none.
[[nodiscard]] std::shared_ptr<Members> members_of(Comm handle) noexcept;
void forget_members(Comm handle) noexcept;

}  // namespace onehop::nccl
