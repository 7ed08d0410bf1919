// SPDX-License-Identifier: Apache-2.0
#include "onehop/buffer.h"

#include <cstring>

#include "c_api/convert.h"
#include "c_api/guard.h"
#include "c_api/handles.h"

using namespace onehop;
using namespace onehop::c_api;

namespace {

const SymmetricBuffer& in(const onehop_buffer_t* buffer) {
  return deref(buffer, "buffer").buffer;
}

}  // namespace

extern "C" {

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
  return produce(part, "part", [&] {
    const onehop_buffer& whole = deref(buffer, "buffer");
    return new onehop_buffer{whole.buffer.sub(offset, bytes), whole.device};
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

int onehop_buffer_rank(const onehop_buffer_t* buffer) {
  if (buffer == nullptr) return -1;
  return guard_or(-1, [&] { return buffer->buffer.rank().value; });
}

int onehop_buffer_world_size(const onehop_buffer_t* buffer) {
  if (buffer == nullptr) return 0;
  return guard_or(0, [&] { return buffer->buffer.size(); });
}

void onehop_buffer_view_init(onehop_buffer_view_t* view, size_t size) {
  init_options(view, size, onehop_buffer_view_t{});
}

onehop_status_t onehop_buffer_view(const onehop_buffer_t* buffer, onehop_buffer_view_t* view) {
  return answer(view, "view", [&](onehop_buffer_view_t& out) {
    const PeerView found = in(buffer).view();
    out.rank = found.rank;
    out.world_size = found.size;
    out.bytes = found.bytes;
    out.offset = found.offset;
    out.peers = reinterpret_cast<void* const*>(found.peers);
    out.signal_pads = found.signal_pads;
    out.channels = found.channels;
  });
}

size_t onehop_device_view_bytes(void) {
  return sizeof(DeviceView);
}

onehop_status_t onehop_buffer_device_view(const onehop_buffer_t* buffer, int64_t timeout_ms, void* view,
                                          size_t bytes) {
  return guard([&] {
    const SymmetricBuffer& of = in(buffer);
    require(view != nullptr, "view must not be NULL");
    require(bytes == sizeof(DeviceView),
            "view has {} bytes, and onehop {} writes {}: build the kernel with this version's headers", bytes,
            ONEHOP_VERSION_STRING, sizeof(DeviceView));
    const DeviceView made = of.device_view(timeout(timeout_ms, kDefaultTimeout));
    std::memcpy(view, &made, sizeof made);
  });
}

onehop_status_t onehop_buffer_barrier_on_stream(const onehop_buffer_t* buffer, void* stream, int channel,
                                                int64_t timeout_ms) {
  return guard([&] { in(buffer).barrier(Stream{stream}, channel, as_timeout(timeout_ms, kDefaultTimeout)); });
}

onehop_status_t onehop_buffer_put_signal_on_stream(const onehop_buffer_t* buffer, void* stream, int rank,
                                                   int channel) {
  return guard([&] { in(buffer).put_signal(Stream{stream}, Rank{rank}, channel); });
}

onehop_status_t onehop_buffer_wait_signal_on_stream(const onehop_buffer_t* buffer, void* stream, int rank,
                                                    int channel, int64_t timeout_ms) {
  return guard([&] {
    in(buffer).wait_signal(Stream{stream}, Rank{rank}, channel, timeout(timeout_ms, kDefaultTimeout));
  });
}

}  // extern "C"
