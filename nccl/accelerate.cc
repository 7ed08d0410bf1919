// SPDX-License-Identifier: Apache-2.0
#include "accelerate.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "onehop/store.h"

#include "base/env.h"
#include "base/log.h"
#include "dispatch.h"
#include "group_queue.h"
#include "guard.h"
#include "members.h"
#include "set_up.h"
#include "unique_id.h"

namespace onehop::nccl::accelerate {
namespace {

/// For the store, which its maker started before any rank had the id.
constexpr auto kStoreTimeout = std::chrono::seconds{10};
constexpr auto kLookTimeout = std::chrono::seconds{1};
/// For the ranks, which NCCL's set-up has brought together. A rank that fails in between holds up the others.
constexpr auto kJoinLimit = std::chrono::seconds{60};

constexpr std::string_view kCan = "can";
constexpr std::string_view kCannot = "cannot";

/// Says in the store, while it exists, that this rank can have a group beside NCCL's communicator. Each rank erases its own
/// key, so that none remains, and none is erased while another attempt under the same name uses it.
class Arrival {
 public:
  Arrival(const Address& address, int rank) : store_(open_store(address, kStoreTimeout)), rank_(rank) {
    store_->set(key(rank), kCan, kStoreTimeout);
  }
  ~Arrival() { end(); }
  Arrival(const Arrival&) = delete;
  Arrival& operator=(const Arrival&) = delete;

  [[nodiscard]] const std::shared_ptr<Store>& store() const { return store_; }
  /// How many of the ranks can.
  [[nodiscard]] int count(int size, Duration timeout) const {
    int count = 0;
    for (int rank = 0; rank < size; ++rank) {
      // Nothing is exchanged. This tells a missing key from a store that does not answer in time.
      if (store_->compare_set(key(rank), kCannot, kCannot, timeout) == kCan) ++count;
    }
    return count;
  }
  void end() noexcept {
    if (std::exchange(ended_, true)) return;
    try {
      (void)store_->delete_key(key(rank_), kStoreTimeout);
    } catch (const std::exception& error) {
      log::debug("NCCL: rank {}: {}", rank_, error.what());  // the process of the store has ended
    }
  }

 private:
  [[nodiscard]] static std::string key(int rank) { return fmt::format("arrived/{}", rank); }

  std::shared_ptr<Store> store_;
  int rank_;
  bool ended_ = false;
};

/// A rank that could have a group beside NCCL's communicator.
struct Candidate {
  std::shared_ptr<Arrival> arrival;
  std::string name;
  DeviceId device;
};

bool is_nonblocking(const Config* config) {
  if (config != nullptr && config->blocking == 0) return true;
  return env::get("NCCL_COMM_BLOCKING") == "0";
}

/// Says that this rank could join a group. All ranks say it before NCCL's set-up has ended on any of them, since that waits
/// for all. So afterwards each of them finds all if and only if all ranks are on this machine, reach the store and can wait for
/// the set-up here.
std::optional<Candidate> arrive(const std::optional<Address>& address, int rank, int size,
                                const Config* config) {
  if (!address || size < 1 || size > kMaxDevices || is_nonblocking(config)) return std::nullopt;
  try {
    const DeviceId device = current_device();
    return Candidate{std::make_shared<Arrival>(*address, rank), address->name, device};
  } catch (const Error& error) {
    log::info("NCCL: a communicator of {} ranks is forwarded: {}", size, error.message());
    return std::nullopt;
  }
}

void inform_carried(int rank, int size) {
  inform(fmt::format("NCCL: rank {} of {}: the communicator is carried", rank, size));
}

void inform_forwarded(int rank, int size, std::string_view why) {
  inform(fmt::format("NCCL: rank {} of {}: the communicator is forwarded: {}", rank, size, why));
}

/// Joins a group beside NCCL's communicator. If that is refused, it is on all ranks, and the communicator is forwarded.
void join_beside(Comm handle, const std::shared_ptr<Communicator>& communicator, std::shared_ptr<Store> store,
                 std::string name, const std::function<bool()>& given_up) {
  try {
    communicator->join(std::move(store), std::move(name), kJoinLimit, given_up);
    if (add_joined(handle, communicator)) inform_carried(communicator->rank(), communicator->size());
  } catch (const std::exception& error) {
    (void)remove_joining(handle, *communicator);
    inform_forwarded(communicator->rank(), communicator->size(), error.what());
  }
}

void join_arrived(Comm handle, const std::shared_ptr<Communicator>& communicator,
                  const Candidate& candidate) {
  const int size = communicator->size();
  const Arrival& arrival = *candidate.arrival;
  std::string why;
  try {
    const int count = arrival.count(size, kStoreTimeout);
    if (count != size) why = fmt::format("{} of its ranks can be carried", count);
  } catch (const Error& error) {
    why = error.message();
  }
  if (!why.empty()) {
    (void)remove_joining(handle, *communicator);
    return inform_forwarded(communicator->rank(), size, why);
  }
  // A rank's key vanishes when it gives up, else when all ranks have joined.
  const auto given_up = [&arrival, size] {
    try {
      return arrival.count(size, kLookTimeout) != size;
    } catch (const Error&) {
      return false;  // joining needs the store, too, and says so
    }
  };
  join_beside(handle, communicator, arrival.store(), candidate.name, given_up);
}

/// NCCL has set up the communicator `*comm`, or will at the end of the thread's group: joins a group beside it then. `kept`
/// lives until that is done.
void set_up_beside(Comm* comm, int rank, int size, const std::optional<Candidate>& candidate,
                   std::shared_ptr<const void> kept = nullptr) {
  if (!candidate) return inform_forwarded(rank, size, "not all of its ranks can be carried");
  auto communicator =
      std::make_shared<Communicator>(rank, size, candidate->device, std::max(candidate->device.value, 0));
  // Another thread may abort or revoke it as soon as the program has the handle, which NCCL need not give before the end.
  Comm early = *comm;
  if (early != nullptr) add_joining(early, communicator);
  set_up_or_queue({{.run =
                        [comm, early, communicator, candidate, kept] {
                          Comm handle = *comm;
                          if (handle != early) add_joining(handle, communicator);
                          join_arrived(handle, communicator, *candidate);
                          candidate->arrival->end();
                        },
                    .undo =
                        [handle = early, communicator, candidate] {
                          (void)remove_joining(handle, *communicator);
                          candidate->arrival->end();
                        }}});
}

/// Splits the group of a carried communicator as NCCL has split the communicator. All its ranks do, or none.
void split_beside(Communicator& parent, int color, int key, const Comm* part, bool can) {
  const std::vector<std::string> answers = parent.group().all_gather(can ? kCan : kCannot);
  if (!std::ranges::all_of(answers, [](const std::string& each) { return each == kCan; })) {
    inform(fmt::format("NCCL: rank {} of {}: the parts of the communicator are forwarded", parent.rank(),
                       parent.size()));
    return;
  }
  std::optional<Group> group = parent.group().split(color, key);
  if (!group) return;
  auto communicator = std::make_shared<Communicator>(parent, *std::move(group));
  const int rank = communicator->rank();
  const int size = communicator->size();
  keep_members(*part, communicator->shared_members());
  add(*part, std::move(communicator));
  inform_carried(rank, size);
}

/// Whatever fails here fails on all ranks, and NCCL's parts are there.
void try_split_beside(Communicator& parent, int color, int key, const Comm* part, bool can) noexcept {
  try {
    split_beside(parent, color, key, part, can);
  } catch (const std::exception& error) {
    log::warn("NCCL: rank {} of {}: the parts of the communicator are forwarded: {}", parent.rank(),
              parent.size(), error.what());
  }
}

/// Ends the calls that are carried. What remains of the communicator is NCCL's, and so is its state.
void stop_carrying(Comm comm, std::string_view function) noexcept {
  (void)guarded(function, [&] {
    if (const auto joining = remove_joining(comm)) joining->abort(function);
    if (is_carried(comm)) release_aborted(comm, function);
    return Result::success;
  });
}

/// `real` makes NCCL's communicator.
template <class Real>
Result init_rank(const char* function, Comm* comm, int size, const UniqueId* id, int rank,
                 const Config* config, const Real& real) noexcept {
  return note_for_group(guarded(function, [&] {
    std::optional<Candidate> candidate;
    if (id != nullptr) candidate = arrive(find_address(*id), rank, size, config);
    const Result result = real();
    if (result != Result::success) return result;
    set_up_beside(comm, rank, size, candidate);
    return Result::success;
  }));
}

}  // namespace

Result get_unique_id(UniqueId* id) noexcept {
  if (id != nullptr) *id = {};
  const Result result = forward<"ncclGetUniqueId">(id);
  // With NCCL_COMM_ID every rank may make the id for itself, and all must be the same.
  if (result != Result::success || env::get("NCCL_COMM_ID")) return result;
  try {
    if (!append_address(*id, new_address()))
      log::info("NCCL: its unique id leaves no room: communicators are forwarded");
  } catch (const Error& error) {
    log::warn("NCCL: communicators are forwarded: {}", error.message());
  }
  return result;
}

Result comm_init_rank(Comm* comm, int size, UniqueId id, int rank) noexcept {
  return init_rank("ncclCommInitRank", comm, size, &id, rank, nullptr,
                   [&] { return forward<"ncclCommInitRank">(comm, size, id, rank); });
}

Result comm_init_rank_config(Comm* comm, int size, UniqueId id, int rank, const Config* config) noexcept {
  return init_rank("ncclCommInitRankConfig", comm, size, &id, rank, config,
                   [&] { return forward<"ncclCommInitRankConfig">(comm, size, id, rank, config); });
}

Result comm_init_rank_scalable(Comm* comm, int size, int rank, int count, const UniqueId* ids,
                               const Config* config) noexcept {
  // All ranks pass the same ids; so one of them is enough to meet. Where NCCL lacks the function, the program may make the
  // communicator in another way, with the same id.
  static const bool exists = library().function("ncclCommInitRankScalable") != nullptr;
  return init_rank("ncclCommInitRankScalable", comm, size, exists && count >= 1 ? ids : nullptr, rank, config,
                   [&] { return forward<"ncclCommInitRankScalable">(comm, size, rank, count, ids, config); });
}

Result comm_init_all(Comm* comms, int size, const int* devices) noexcept {
  const Result result = forward<"ncclCommInitAll">(comms, size, devices);
  if (result != Result::success || size > kMaxDevices || is_nonblocking(nullptr))
    return note_for_group(result);
  return note_for_group(guarded("ncclCommInitAll", [&] {
    const std::shared_ptr<Store> store = memory_store();
    const auto ranks = std::make_shared<std::vector<std::shared_ptr<Communicator>>>();
    const auto given_up = [ranks] {
      return std::ranges::any_of(*ranks, [](const auto& each) { return each->aborted(); });
    };
    std::vector<SetUp> jobs;
    for (int rank = 0; rank < size; ++rank) {
      const DeviceId device = device_of(devices != nullptr ? devices[rank] : rank);
      auto communicator = std::make_shared<Communicator>(rank, size, device, std::max(device.value, 0));
      ranks->push_back(communicator);
      add_joining(comms[rank], communicator);
      jobs.push_back(
          {.run = [=] { join_beside(comms[rank], communicator, store, "ncclCommInitAll", given_up); },
           .undo = [=, handle = comms[rank]] { (void)remove_joining(handle, *communicator); }});
    }
    set_up_or_queue(std::move(jobs));
    return Result::success;
  }));
}

Result comm_destroy(Comm comm) noexcept {
  if (is_carried(comm)) (void)nccl::comm_destroy(comm);
  forget_members(comm);
  return forward<"ncclCommDestroy">(comm);
}

Result comm_abort(Comm comm) noexcept {
  stop_carrying(comm, "ncclCommAbort");
  forget_members(comm);
  return forward<"ncclCommAbort">(comm);
}

Result comm_revoke(Comm comm, int flags) noexcept {
  static const bool exists = library().function("ncclCommRevoke") != nullptr;
  // NCCL refuses other flags, and then the communicator goes on.
  if (exists && flags == kRevokeDefault) stop_carrying(comm, "ncclCommRevoke");
  return forward<"ncclCommRevoke">(comm, flags);
}

Result comm_shrink(Comm comm, int* excluded, int count, Comm* rest, const Config* config,
                   int flags) noexcept {
  static const bool exists = library().function("ncclCommShrink") != nullptr;
  // Also of a communicator that was revoked, or shrunk like this before.
  const std::shared_ptr<Members> members = members_of(comm);
  return note_for_group(guarded("ncclCommShrink", [&] {
    std::optional<Members::Rest> remaining;
    std::optional<Candidate> candidate;
    bool refused = rest == nullptr;
    if (exists && members != nullptr && !refused) {
      try {
        remaining = members->without(excluded, count);
      } catch (const Error& error) {
        refused = error.code() == ErrorCode::invalid_argument;
        inform(fmt::format("NCCL: a communicator that is shrunk is forwarded: {}", error.message()));
      }
    }
    // NCCL refuses such arguments, and then the communicator goes on.
    if (exists && !refused && (flags & kShrinkAbort) != 0) stop_carrying(comm, "ncclCommShrink");
    if (remaining) candidate = arrive(remaining->address, remaining->rank, remaining->size, config);
    const Result result = forward<"ncclCommShrink">(comm, excluded, count, rest, config, flags);
    if (result != Result::success || !remaining) return result;
    if (candidate) candidate->device = members->device();
    set_up_beside(rest, remaining->rank, remaining->size, candidate, remaining->call);
    return result;
  }));
}

Result comm_split(Comm comm, int color, int key, Comm* part, const Config* config) noexcept {
  const Result result = forward<"ncclCommSplit">(comm, color, key, part, config);
  const bool failed = result != Result::success && result != Result::in_progress;
  if (failed || !is_carried(comm)) return note_for_group(result);
  return note_for_group(guarded("ncclCommSplit", [&] {
    const bool can = result == Result::success && !is_nonblocking(config);
    set_up_or_queue({{.run = [=, parent = find(comm)] { try_split_beside(*parent, color, key, part, can); },
                      .parent = comm}});
    return result;
  }));
}

Result comm_get_async_error(Comm comm, Result* async_error) noexcept {
  const Result result = forward<"ncclCommGetAsyncError">(comm, async_error);
  if (result != Result::success || *async_error != Result::success || !is_carried(comm)) return result;
  return nccl::comm_get_async_error(comm, async_error);
}

Result group_start() noexcept {
  const Result result = forward<"ncclGroupStart">();
  return result == Result::success ? nccl::group_start() : result;
}

Result group_end() noexcept {
  // First NCCL's: what is set up here needs NCCL's communicators.
  const Result result = forward<"ncclGroupEnd">();
  const Result own = group_end_after(result);
  return own == Result::success ? result : own;
}

Result group_simulate_end(void* info) noexcept {
  // Where NCCL lacks it, the group stays open in both.
  static const bool exists = library().function("ncclGroupSimulateEnd") != nullptr;
  const Result result = forward<"ncclGroupSimulateEnd">(info);
  const Result own = exists ? group_drop() : Result::success;
  return result == Result::success ? own : result;
}

}  // namespace onehop::nccl::accelerate
