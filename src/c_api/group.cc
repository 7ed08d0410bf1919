// SPDX-License-Identifier: Apache-2.0
#include "onehop/group.h"

#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "c_api/convert.h"
#include "c_api/guard.h"
#include "c_api/handles.h"
#include "c_api/payloads.h"
#include "collective/refuse.h"

using namespace onehop;
using namespace onehop::c_api;

static_assert(ONEHOP_MAX_DEVICES == kMaxDevices);
static_assert(ONEHOP_MAX_HOST_RANKS == kMaxHostRanks);

namespace {

onehop_join_options_t join_defaults() {
  const JoinOptions from;
  onehop_join_options_t defaults{};
  defaults.timeout_ms = ONEHOP_TIMEOUT_DEFAULT;
  defaults.scratch_bytes = from.scratch_bytes;
  defaults.rank = -1;
  defaults.device = ONEHOP_DEVICE_HOST;
  return defaults;
}

/// Joining refuses invalid options.
JoinOptions to_join_options(const onehop_join_options_t* options) {
  const onehop_join_options_t given = read_options(options, "options", join_defaults());
  JoinOptions out;
  if (given.name != nullptr) out.name = given.name;
  out.rank = Rank{given.rank};
  out.size = given.world_size;
  out.device = DeviceId{given.device};
  out.timeout = as_timeout(given.timeout_ms, out.timeout);
  out.scratch_bytes = given.scratch_bytes;
  out.allow_overlapping_devices = given.allow_overlapping_devices != 0;
  if (given.tuning != nullptr) out.tuning = given.tuning;
  out.require_verified_peers = given.require_verified_peers != 0;
  const bool known_share = given.share_by >= 0 && given.share_by < kShareByCount;
  out.share_by = static_cast<ShareBy>(known_share ? given.share_by : kNoEnumerator);
  return out;
}

onehop_buffer_options_t buffer_defaults() {
  onehop_buffer_options_t defaults{};
  defaults.channels = SymmetricBuffer::kDefaultChannels;
  return defaults;
}

BufferOptions to_buffer_options(const onehop_buffer_options_t* options) {
  if (options == nullptr) return {};
  return {.channels = read_options(options, "options", buffer_defaults()).channels};
}

Group& in(onehop_group_t* group) {
  return deref(group, "group").group;
}

/// The result of a body that `onehop_run_groups` runs.
struct Outcome {
  onehop_status_t status = ONEHOP_OK;
  int rank = -1;
  std::string message;
};

/// Runs the body on a thread that has had no error yet. Throws only when memory for the message is short.
Outcome run_body(onehop_group_t* group, std::size_t index,
                 onehop_status_t (*body)(onehop_group_t* group, void* context), void* context) {
  Outcome outcome;
  try {
    outcome.status = body(group, context);
  } catch (...) {  // from a C++ body
    outcome.status = record_current_exception();
  }
  if (outcome.status == ONEHOP_OK) return outcome;
  if (outcome.status == last_error_status()) {
    outcome.rank = onehop_last_error_rank();
    outcome.message = onehop_last_error();
  } else {
    outcome.message = fmt::format("the body of groups[{}] returned status {} ({})", index, outcome.status,
                                  onehop_status_name(outcome.status));
  }
  return outcome;
}

/// `make(group, bytes, options)` creates the buffer. The other ranks make the same call. A size that this
/// rank cannot request becomes 0 bytes, which all ranks refuse.
template <class Make>
onehop_status_t make_buffer(onehop_group_t* group, const onehop_buffer_options_t* options,
                            onehop_buffer_t** buffer, size_t bytes, Make&& make) {
  return guard([&] {
    Group& target = in(group);
    BufferOptions given;
    try {
      (void)deref(buffer, "buffer");
      given = to_buffer_options(options);
    } catch (const Error& unusable) {
      try {
        (void)make(target, 0, given);
      } catch (const Error& refused) {
        if (refused.code() != ErrorCode::invalid_argument) throw;
      }
      throw Error(unusable.code(), unusable.message(), target.rank());
    }
    *buffer = new onehop_buffer{make(target, bytes, given), target.device()};
  });
}

}  // namespace

extern "C" {

onehop_status_t onehop_host_id(char** id) {
  return produce(id, "id", [] { return copy_out(host_id()); });
}

void onehop_join_options_init(onehop_join_options_t* options, size_t size) {
  init_options(options, size, join_defaults());
}

onehop_status_t onehop_group_join(onehop_store_t* store, const onehop_join_options_t* options,
                                  onehop_group_t** group) {
  return produce(group, "group", [&] {
    const std::shared_ptr<Store>& shared = deref(store, "store").store;
    return new onehop_group{Group::join(shared, to_join_options(options))};
  });
}

onehop_status_t onehop_group_from_env(const onehop_join_options_t* options, onehop_group_t** group) {
  return produce(group, "group", [&] {
    return new onehop_group{Group::from_env(options == nullptr ? JoinOptions{} : to_join_options(options))};
  });
}

onehop_status_t onehop_group_join_local(const int* devices, size_t count,
                                        const onehop_join_options_t* options, onehop_group_t** groups) {
  return guard([&] {
    require_array(groups, count, "groups", "count");
    const std::vector<DeviceId> ids = to_devices(devices, count);
    std::vector<Group> joined =
        Group::join_local(ids, options == nullptr ? JoinOptions{} : to_join_options(options));
    std::vector<std::unique_ptr<onehop_group>> handles;
    for (Group& each : joined) handles.emplace_back(new onehop_group{std::move(each)});
    for (std::size_t r = 0; r < count; ++r) groups[r] = handles[r].release();
  });
}

onehop_status_t onehop_groups_run(onehop_group_t* const* groups, size_t count,
                                  onehop_status_t (*body)(onehop_group_t* group, void* context),
                                  void* context) {
  return guard([&] {
    require(body != nullptr, "body must not be NULL");
    require_array(groups, count, "groups", "count");
    for (std::size_t r = 0; r < count; ++r) (void)deref(groups[r], "an entry of groups");
    std::vector<Outcome> outcomes(count);
    {
      std::vector<std::jthread> threads;
      for (std::size_t r = 0; r < count; ++r) {
        const auto run = [&, r] {
          try {
            outcomes[r] = run_body(groups[r], r, body, context);
          } catch (...) {
            outcomes[r].status = record_current_exception();
          }
        };
        try {
          threads.emplace_back(run);
        } catch (const std::system_error& error) {
          // The threads that already run wait for the missing ones no longer than their deadlines.
          fail(ErrorCode::out_of_resources, "starting the thread of groups[{}]: {}", r, error.what());
        }
      }
    }
    for (const Outcome& each : outcomes) {
      if (each.status != ONEHOP_OK) throw Error(to_error_code(each.status), each.message, Rank{each.rank});
    }
  });
}

void onehop_group_destroy(onehop_group_t* group) {
  delete group;
}

int onehop_group_rank(const onehop_group_t* group) {
  if (group == nullptr) return -1;
  return guard_or(-1, [&] { return group->group.rank().value; });
}

int onehop_group_size(const onehop_group_t* group) {
  if (group == nullptr) return 0;
  return guard_or(0, [&] { return group->group.size(); });
}

const char* onehop_group_id(const onehop_group_t* group) {
  if (group == nullptr) return "";
  return guard_or("", [&] { return group->group.id().c_str(); });
}

int onehop_group_parent_rank(const onehop_group_t* group, int rank) {
  if (group == nullptr) return -1;
  const std::vector<Rank>& ranks = group->group.parent_ranks();
  return rank < 0 || static_cast<std::size_t>(rank) >= ranks.size()
             ? -1
             : ranks[static_cast<std::size_t>(rank)].value;
}

int onehop_group_device(const onehop_group_t* group) {
  if (group == nullptr) return ONEHOP_DEVICE_HOST;
  return guard_or(ONEHOP_DEVICE_HOST, [&] { return group->group.device().value; });
}

const char* onehop_group_name(const onehop_group_t* group) {
  if (group == nullptr) return "";
  return guard_or("", [&] { return group->group.name().c_str(); });
}

const char* onehop_group_tuning_file(const onehop_group_t* group) {
  if (group == nullptr) return "";
  return guard_or("", [&] { return group->group.tuning_file().c_str(); });
}

onehop_share_by_t onehop_group_share_by(const onehop_group_t* group) {
  if (group == nullptr) return ONEHOP_SHARE_BY_AUTOMATIC;
  return guard_or(onehop_share_by_t{ONEHOP_SHARE_BY_AUTOMATIC},
                  [&] { return static_cast<onehop_share_by_t>(group->group.share_by()); });
}

int64_t onehop_group_timeout(const onehop_group_t* group) {
  if (group == nullptr) return -1;
  return guard_or(std::int64_t{-1}, [&] { return std::int64_t{group->group.timeout().count()}; });
}

onehop_status_t onehop_group_usage(const onehop_group_t* group, uint64_t* counts, size_t count) {
  return guard([&] {
    require_array(counts, count, "counts", "count");
    const auto usage = deref(group, "group").group.usage();
    for (std::size_t i = 0; i < count; ++i) counts[i] = i < usage.size() ? usage[i] : 0;
  });
}

onehop_status_t onehop_group_synchronize(onehop_group_t* group, void* stream, int64_t timeout_ms) {
  return guard([&] {
    Group& target = in(group);
    target.synchronize(Stream{stream}, timeout(timeout_ms, target.timeout()));
  });
}

onehop_status_t onehop_group_all_gather_bytes(onehop_group_t* group, const void* payload, size_t bytes,
                                              onehop_payloads_t** payloads) {
  return guard([&] {
    Group& target = in(group);
    std::string_view own;
    try {
      own = c_api::bytes(payload, bytes, "payload");
      (void)deref(payloads, "payloads");
    } catch (const Error& reason) {
      refuse_all_gather(target, reason);
    }
    make_payloads(*payloads, [&] { return target.all_gather(own); });
  });
}

onehop_status_t onehop_group_barrier(onehop_group_t* group, int64_t timeout_ms) {
  return guard([&] {
    Group& target = in(group);
    target.barrier(as_timeout(timeout_ms, target.timeout()));
  });
}

onehop_status_t onehop_group_split(onehop_group_t* group, int color, int key, onehop_group_t** part) {
  return guard([&] {
    Group& parent = in(group);
    if (part == nullptr) refuse_split(parent, Error(ErrorCode::invalid_argument, "part must not be NULL"));
    onehop_group_t*& out = deref(part, "part");
    std::optional<Group> made = parent.split(color, key);
    out = made ? new onehop_group{*std::move(made)} : nullptr;
  });
}

onehop_status_t onehop_group_shrink(onehop_group_t* group, int64_t timeout_ms, onehop_group_t** survivors) {
  return guard([&] {
    Group& failed = in(group);
    onehop_group_t*& out = deref(survivors, "survivors");
    out = new onehop_group{failed.shrink(timeout(timeout_ms, failed.timeout()))};
  });
}

onehop_status_t onehop_group_check(const onehop_group_t* group) {
  return guard([&] { deref(group, "group").group.check(); });
}

onehop_status_t onehop_group_watch(onehop_group_t* group, int64_t grace_ms) {
  return guard([&] {
    deref(group, "group").group.watch(grace_ms < 0 ? std::optional<Duration>() : Duration{grace_ms});
  });
}

onehop_status_t onehop_group_unreported_failure(const onehop_group_t* group) {
  return guard([&] {
    if (const std::optional<Error> failure = deref(group, "group").group.unreported_failure())
      throw Error(*failure);
  });
}

void onehop_group_abort(onehop_group_t* group, const char* reason) {
  if (group != nullptr) group->group.abort(reason != nullptr ? reason : "aborted by the application");
}

void onehop_group_leave(onehop_group_t* group) {
  if (group != nullptr) group->group.leave();
}

onehop_status_t onehop_group_allocate(onehop_group_t* group, size_t bytes, onehop_buffer_t** buffer) {
  return onehop_group_allocate_with(group, bytes, nullptr, buffer);
}

onehop_status_t onehop_group_register_buffer(onehop_group_t* group, void* data, size_t bytes,
                                             onehop_buffer_t** buffer) {
  return onehop_group_register_buffer_with(group, data, bytes, nullptr, buffer);
}

void onehop_buffer_options_init(onehop_buffer_options_t* options, size_t size) {
  init_options(options, size, buffer_defaults());
}

onehop_status_t onehop_group_allocate_with(onehop_group_t* group, size_t bytes,
                                           const onehop_buffer_options_t* options, onehop_buffer_t** buffer) {
  return make_buffer(
      group, options, buffer, bytes,
      [](Group& target, size_t size, const BufferOptions& given) { return target.allocate(size, given); });
}

onehop_status_t onehop_group_register_buffer_with(onehop_group_t* group, void* data, size_t bytes,
                                                  const onehop_buffer_options_t* options,
                                                  onehop_buffer_t** buffer) {
  return make_buffer(group, options, buffer, bytes,
                     [data](Group& target, size_t size, const BufferOptions& given) {
                       return target.register_buffer(data, size, given);
                     });
}

}  // extern "C"
