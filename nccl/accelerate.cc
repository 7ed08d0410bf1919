// SPDX-License-Identifier: Apache-2.0
#include "accelerate.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <exception>
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

constexpr const char* kArrived = "arrived";
/// For the store, which its maker started before any rank had the id.
constexpr auto kStoreTimeout = std::chrono::seconds{10};
/// For the ranks, which NCCL's set-up has brought together. A rank that fails in between holds up the others.
constexpr auto kJoinLimit = std::chrono::seconds{60};

constexpr std::string_view kCan = "can";
constexpr std::string_view kCannot = "cannot";

/// A rank that could have a group beside NCCL's communicator.
struct Candidate {
  std::shared_ptr<Store> store;
  Address address;
  DeviceId device;
};

bool is_nonblocking(const Config* config) {
  if (config != nullptr && config->blocking == 0) return true;
  return env::get("NCCL_COMM_BLOCKING") == "0";
}

/// Counts this rank among those that could join a group. All ranks count before NCCL's set-up has ended on any of them,
/// since that waits for all. So afterwards each of them finds the same count: `size` if and only if all ranks are on this
/// machine, reach the store and can wait for the set-up here.
std::optional<Candidate> count_in(const std::optional<Address>& address, int size, const Config* config) {
  if (!address || size < 1 || size > kMaxDevices || is_nonblocking(config)) return std::nullopt;
  try {
    Candidate candidate{open_store(*address, kStoreTimeout), *address, current_device()};
    candidate.store->add(kArrived, 1, kStoreTimeout);
    return candidate;
  } catch (const Error& error) {
    log::info("NCCL: a communicator of {} ranks is forwarded: {}", size, error.message());
    return std::nullopt;
  }
}

/// From now on the communicator is carried.
void carry(Comm handle, std::shared_ptr<Communicator> communicator) {
  const std::string line = fmt::format("NCCL: rank {} of {}: the communicator is carried",
                                       communicator->rank(), communicator->size());
  keep_members(handle, communicator->shared_members());
  add(handle, std::move(communicator));
  inform(line);
}

/// Joins a group beside NCCL's communicator. If that is refused, it is on all ranks, and the communicator is forwarded.
void join_beside(Comm handle, int rank, int size, DeviceId device, std::shared_ptr<Store> store,
                 std::string name) {
  try {
    auto communicator = std::make_shared<Communicator>(rank, size, device, std::max(device.value, 0));
    add_joining(handle, communicator);
    communicator->join(std::move(store), std::move(name), kJoinLimit);
    if (remove_joining(handle) == communicator) carry(handle, std::move(communicator));
  } catch (const std::exception& error) {
    (void)remove_joining(handle);
    inform(fmt::format("NCCL: rank {} of {}: the communicator is forwarded: {}", rank, size, error.what()));
  }
}

void set_up_beside(Comm handle, int rank, int size, const std::optional<Candidate>& candidate) {
  std::string count;
  try {
    if (candidate) count = candidate->store->get(kArrived, kStoreTimeout);
  } catch (const Error& error) {
    log::warn("NCCL: rank {} of {}: {}", rank, size, error.message());
  }
  if (count != std::to_string(size)) {
    inform(fmt::format("NCCL: rank {} of {}: the communicator is forwarded: {} of its ranks can be carried",
                       rank, size, count.empty() ? "not all" : count));
    return;
  }
  join_beside(handle, rank, size, candidate->device, candidate->store, candidate->address.name);
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
  if (group) carry(*part, std::make_shared<Communicator>(parent, *std::move(group)));
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
    if (id != nullptr) candidate = count_in(find_address(*id), size, config);
    const Result result = real();
    if (result != Result::success) return result;
    set_up_or_queue({{.run = [=] { set_up_beside(*comm, rank, size, candidate); }}});
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
    std::vector<SetUp> jobs;
    for (int rank = 0; rank < size; ++rank) {
      const DeviceId device = device_of(devices != nullptr ? devices[rank] : rank);
      jobs.push_back(
          {.run = [=] { join_beside(comms[rank], rank, size, device, store, "ncclCommInitAll"); }});
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
  if (exists) stop_carrying(comm, "ncclCommRevoke");
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
    if (remaining) candidate = count_in(remaining->address, remaining->size, config);
    const Result result = forward<"ncclCommShrink">(comm, excluded, count, rest, config, flags);
    if (result != Result::success || !remaining) return result;
    if (candidate) candidate->device = members->device();
    set_up_or_queue({{.run = [=] { set_up_beside(*rest, remaining->rank, remaining->size, candidate); }}});
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
  const Result result = note_for_group(forward<"ncclGroupEnd">());
  const Result own = nccl::group_end();
  return own == Result::success ? result : own;
}

Result group_simulate_end(void* info) noexcept {
  // Where NCCL lacks it, the group stays open in both.
  static const bool exists = library().function("ncclGroupSimulateEnd") != nullptr;
  const Result result = forward<"ncclGroupSimulateEnd">(info);
  if (exists) group_drop();
  return result;
}

}  // namespace onehop::nccl::accelerate
