// SPDX-License-Identifier: Apache-2.0
#include "set_up.h"

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

#include "base/check.h"
#include "base/log.h"
#include "communicator.h"
#include "driver.h"
#include "group_queue.h"
#include "guard.h"
#include "unique_id.h"

namespace onehop::nccl {
namespace {

constexpr const char* kLocalName = "ncclCommInitAll";
constexpr const char* kAborted = "aborted";
constexpr int kNoColor = -1;  ///< NCCL_SPLIT_NOCOLOR

/// Ranks that shrink may try again under the same name, so they wait for the others whatever happens.
bool never() {
  return false;
}

/// For ranks that wait, or come later. Nobody can know when all have seen it, so it stays.
void tell_aborted(Store& store) noexcept {
  try {
    store.set(kAborted, "", std::chrono::seconds{1});
  } catch (const std::exception& error) {
    log::info("NCCL: the other ranks of a set-up that was aborted are not told: {}", error.what());
  }
}

bool is_aborted(Store& store) noexcept {
  try {
    return store.get_for(kAborted, Duration{0}).has_value();
  } catch (const Error&) {
    return false;  // joining needs the store, too, and says so
  }
}

/// Its process started it before any rank had the address: if it cannot be reached, it has ended.
std::shared_ptr<Store> open_store_within(Duration limit, const Address& address) {
  return open_store(address, std::min(limit, kDefaultTimeout));
}

/// A rank that is aborted meanwhile tells the others in the store.
void join_or_tell(Communicator& communicator, const std::shared_ptr<Store>& store, const std::string& name,
                  Duration limit) {
  try {
    communicator.join(store, name, limit, [store] { return is_aborted(*store); });
  } catch (const Error&) {
    if (communicator.aborted()) tell_aborted(*store);
    throw;
  }
}

/// The set-up of a communicator whose handle the program has already. After a failure it has NULL, unless it has destroyed
/// the communicator before.
template <class Join>
SetUp job(const std::shared_ptr<Communicator>& communicator, Comm* handle, const Join& join) {
  return {[communicator, join] { join(*communicator); },
          [communicator, handle] {
            if (forget(*communicator)) *handle = nullptr;
          }};
}

Result init_rank(std::string_view function, Comm* comm, int size, const UniqueId* id, int rank) noexcept {
  return note_for_group(guarded(function, [&] {
    require(comm != nullptr, "comm is NULL");
    require(size >= 1 && rank >= 0 && rank < size, "rank {} of {} ranks", rank, size);
    const Address address = parse_unique_id({id->bytes, UniqueId::kBytes});
    const DeviceId device = current_device();
    const Duration limit = call_timeout();
    auto communicator = std::make_shared<Communicator>(rank, size, device, std::max(device.value, 0));
    *comm = add(communicator);
    set_up_or_queue({job(communicator, comm, [address, limit](Communicator& each) {
      join_or_tell(each, open_store_within(limit, address), address.name, limit);
    })});
    return Result::success;
  }));
}

template <class Value>
Result tell(std::string_view function, Comm comm, Value* out, Value (Communicator::*value)() const) noexcept {
  return guarded(function, [&] {
    require(out != nullptr, "the result's pointer is NULL");
    *out = (find(comm).get()->*value)();
    return Result::success;
  });
}

}  // namespace

Result get_unique_id(UniqueId* id) noexcept {
  return guarded("ncclGetUniqueId", [&] {
    require(id != nullptr, "uniqueId is NULL");
    *id = to_unique_id(new_address());
    return Result::success;
  });
}

Result comm_init_rank(Comm* comm, int size, UniqueId id, int rank) noexcept {
  return init_rank("ncclCommInitRank", comm, size, &id, rank);
}

Result comm_init_rank_config(Comm* comm, int size, UniqueId id, int rank, const Config* /*config*/) noexcept {
  return init_rank("ncclCommInitRankConfig", comm, size, &id, rank);
}

Result comm_init_rank_scalable(Comm* comm, int size, int rank, int count, const UniqueId* ids,
                               const Config* /*config*/) noexcept {
  constexpr const char* kFunction = "ncclCommInitRankScalable";
  const Result checked = note_for_group(guarded(kFunction, [&] {
    require(ids != nullptr, "commIds is NULL");
    require(count >= 1 && count <= size, "{} unique ids for {} ranks", count, size);
    return Result::success;
  }));
  return checked == Result::success ? init_rank(kFunction, comm, size, ids, rank) : checked;
}

Result comm_init_all(Comm* comms, int size, const int* devices) noexcept {
  return note_for_group(guarded("ncclCommInitAll", [&] {
    require(comms != nullptr, "comms is NULL");
    require(size >= 1, "{} ranks", size);
    const std::shared_ptr<Store> store = memory_store();
    const Duration limit = call_timeout();
    std::vector<SetUp> jobs;
    for (int rank = 0; rank < size; ++rank) {
      const int device = devices != nullptr ? devices[rank] : rank;
      auto communicator = std::make_shared<Communicator>(rank, size, device_of(device), device);
      comms[rank] = add(communicator);
      jobs.push_back(job(communicator, &comms[rank], [store, limit](Communicator& each) {
        join_or_tell(each, store, kLocalName, limit);
      }));
    }
    set_up_or_queue(std::move(jobs));
    return Result::success;
  }));
}

Result comm_finalize(Comm comm) noexcept {
  return guarded("ncclCommFinalize", [&] {
    (void)find(comm);  // every call of a rank has been made, and leaving waits for them
    return Result::success;
  });
}

Result comm_destroy(Comm comm) noexcept {
  return guarded("ncclCommDestroy", [&] {
    const RelaxedCapture relaxed;
    if (comm != nullptr) (void)release(comm);
    return Result::success;
  });
}

Result comm_abort(Comm comm) noexcept {
  return guarded("ncclCommAbort", [&] {
    if (comm != nullptr) release_aborted(comm, "ncclCommAbort");
    return Result::success;
  });
}

Result comm_revoke(Comm comm, int flags) noexcept {
  return guarded("ncclCommRevoke", [&] {
    require(flags == kRevokeDefault, "revokeFlags {} is not NCCL_REVOKE_DEFAULT ({})", flags, kRevokeDefault);
    find(comm)->revoke();
    return Result::success;
  });
}

Result comm_split(Comm comm, int color, int key, Comm* part, const Config* /*config*/) noexcept {
  return note_for_group(guarded("ncclCommSplit", [&] {
    require(part != nullptr, "newcomm is NULL");
    require(color >= kNoColor, "color {} is neither 0 or more nor NCCL_SPLIT_NOCOLOR ({})", color, kNoColor);
    *part = nullptr;
    const auto split = [parent = find(comm), color, key, part] {
      std::optional<Group> group = parent->group().split(color, key);
      if (group) *part = add(std::make_shared<Communicator>(*parent, *std::move(group)));
    };
    const auto undo = [part] {
      if (*part != nullptr) (void)comm_destroy(std::exchange(*part, nullptr));
    };
    set_up_or_queue({{split, undo, comm}});
    return Result::success;
  }));
}

Result comm_shrink(Comm comm, const int* excluded, int count, Comm* rest, const Config* /*config*/,
                   int flags) noexcept {
  return note_for_group(guarded("ncclCommShrink", [&] {
    require(rest != nullptr, "newcomm is NULL");
    *rest = nullptr;
    const std::shared_ptr<Communicator> parent = find(comm);
    const Members::Rest remaining = parent->members().without(excluded, count);
    if ((flags & kShrinkAbort) != 0) parent->abort("ncclCommShrink");
    const Duration limit = call_timeout();
    auto communicator = std::make_shared<Communicator>(remaining.rank, remaining.size, parent->device(),
                                                       parent->cuda_device());
    *rest = add(communicator);
    set_up_or_queue({job(communicator, rest, [remaining, limit](Communicator& each) {
      each.join(open_store_within(limit, remaining.address), remaining.address.name, limit, never);
    })});
    return Result::success;
  }));
}

Result comm_get_async_error(Comm comm, Result* async_error) noexcept {
  return guarded("ncclCommGetAsyncError", [&] {
    require(async_error != nullptr, "asyncError is NULL");
    const std::shared_ptr<Communicator> communicator = find(comm);
    *async_error = Result::in_progress;
    if (!communicator->joined()) return Result::success;
    *async_error = Result::success;
    if (communicator->revoked()) return Result::success;
    try {
      communicator->group().check();
    } catch (const Error& error) {
      *async_error = result_of(error.code());
      remember(error.message());
    }
    return Result::success;
  });
}

Result comm_count(Comm comm, int* count) noexcept {
  return tell("ncclCommCount", comm, count, &Communicator::size);
}

Result comm_cuda_device(Comm comm, int* device) noexcept {
  return tell("ncclCommCuDevice", comm, device, &Communicator::cuda_device);
}

Result comm_user_rank(Comm comm, int* rank) noexcept {
  return tell("ncclCommUserRank", comm, rank, &Communicator::rank);
}

}  // namespace onehop::nccl
