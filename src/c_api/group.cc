#include "onehop/group.h"

#include <memory>
#include <optional>
#include <utility>

#include "c_api/convert.h"
#include "c_api/guard.h"
#include "c_api/handles.h"
#include "collective/refuse.h"

using namespace onehop;
using namespace onehop::c_api;

static_assert(ONEHOP_POLICY_TUNED == static_cast<int>(AlgorithmPolicy::tuned));
static_assert(ONEHOP_POLICY_LEGACY == static_cast<int>(AlgorithmPolicy::legacy));

namespace {

onehop_join_options_t join_defaults() {
  const JoinOptions from;
  onehop_join_options_t defaults{};
  defaults.timeout_ms = ONEHOP_TIMEOUT_DEFAULT;
  defaults.scratch_bytes = from.scratch_bytes;
  defaults.rank = -1;
  defaults.device = ONEHOP_DEVICE_HOST;
  defaults.policy = ONEHOP_POLICY_TUNED;
  return defaults;
}

JoinOptions to_join_options(const onehop_join_options_t* options) {
  const onehop_join_options_t given = read_options(options, "options", join_defaults());
  // What is wrong with these, all ranks hear: joining refuses it.
  const bool known_policy = given.policy == ONEHOP_POLICY_TUNED || given.policy == ONEHOP_POLICY_LEGACY;
  JoinOptions out;
  if (given.name != nullptr) out.name = given.name;
  out.rank = Rank{given.rank};
  out.size = given.world_size;
  out.device = DeviceId{given.device};
  out.timeout = as_timeout(given.timeout_ms, out.timeout);
  out.scratch_bytes = given.scratch_bytes;
  out.copy_scratch_bytes = given.copy_scratch_bytes;
  out.policy = static_cast<AlgorithmPolicy>(known_policy ? given.policy : kNoEnumerator);
  out.allow_overlapping_devices = given.allow_overlapping_devices != 0;
  if (given.tuning != nullptr) out.tuning = given.tuning;
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

onehop_group_t* new_handle(Group&& group) {
  return std::make_unique<onehop_group>(onehop_group{std::move(group)}).release();
}

onehop_buffer_t* new_handle(SymmetricBuffer&& buffer) {
  return std::make_unique<onehop_buffer>(onehop_buffer{std::move(buffer)}).release();
}

Group& in(onehop_group_t* group) {
  return deref(group, "group").group;
}
const SymmetricBuffer& in(const onehop_buffer_t* buffer) {
  return deref(buffer, "buffer").buffer;
}

/// `make(group, bytes, options)` makes the buffer. The other ranks make it too: what this one cannot ask for
/// becomes 0 bytes, which all of them refuse.
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
    *buffer = new_handle(make(target, bytes, given));
  });
}

}  // namespace

extern "C" {

void onehop_join_options_init(onehop_join_options_t* options, size_t size) {
  init_options(options, size, join_defaults());
}

onehop_status_t onehop_group_join(onehop_store_t* store, const onehop_join_options_t* options,
                                  onehop_group_t** group) {
  return guard([&] {
    onehop_group_t*& out = deref(group, "group");
    out = new_handle(Group::join(deref(store, "store").store, to_join_options(options)));
  });
}

onehop_status_t onehop_group_from_env(const onehop_join_options_t* options, onehop_group_t** group) {
  return guard([&] {
    onehop_group_t*& out = deref(group, "group");
    out = new_handle(Group::from_env(options == nullptr ? JoinOptions{} : to_join_options(options)));
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
    out = made ? new_handle(*std::move(made)) : nullptr;
  });
}

onehop_status_t onehop_group_check(const onehop_group_t* group) {
  return guard([&] { deref(group, "group").group.check(); });
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

void onehop_buffer_destroy(onehop_buffer_t* buffer) {
  delete buffer;
}

void* onehop_buffer_local(const onehop_buffer_t* buffer) {
  if (buffer == nullptr) return nullptr;
  return guard_or<void*>(nullptr, [&] { return buffer->buffer.local(); });
}

size_t onehop_buffer_bytes(const onehop_buffer_t* buffer) {
  if (buffer == nullptr) return 0;
  return guard_or(std::size_t{0}, [&] { return buffer->buffer.bytes(); });
}

int onehop_buffer_channels(const onehop_buffer_t* buffer) {
  if (buffer == nullptr) return 0;
  return guard_or(0, [&] { return buffer->buffer.channels(); });
}

onehop_status_t onehop_buffer_peer(const onehop_buffer_t* buffer, int rank, void** peer) {
  return guard([&] { deref(peer, "peer") = in(buffer).peer(Rank{rank}); });
}

onehop_status_t onehop_buffer_sub(const onehop_buffer_t* buffer, size_t offset, size_t bytes,
                                  onehop_buffer_t** part) {
  return guard([&] {
    onehop_buffer_t*& out = deref(part, "part");
    out = new_handle(in(buffer).sub(offset, bytes));
  });
}

onehop_status_t onehop_buffer_barrier(const onehop_buffer_t* buffer, int channel, int64_t timeout_ms) {
  return guard([&] { in(buffer).barrier(channel, as_timeout(timeout_ms, kDefaultTimeout)); });
}

onehop_status_t onehop_buffer_put_signal(const onehop_buffer_t* buffer, int rank, int channel) {
  return guard([&] { in(buffer).put_signal(Rank{rank}, channel); });
}

onehop_status_t onehop_buffer_wait_signal(const onehop_buffer_t* buffer, int rank, int channel,
                                          int64_t timeout_ms) {
  return guard([&] { in(buffer).wait_signal(Rank{rank}, channel, timeout(timeout_ms, kDefaultTimeout)); });
}

}  // extern "C"
