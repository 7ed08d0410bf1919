// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <vector>

#include "onehop/ipc.h"

#include "c_api/convert.h"
#include "c_api/guard.h"
#include "c_api/handles.h"
#include "c_api/payloads.h"
#include "collective/refuse.h"

using namespace onehop;
using namespace onehop::c_api;

struct onehop_ipc_channel {
  IpcChannel channel;
};

namespace {

IpcChannel& in(onehop_ipc_channel_t* channel) {
  return deref(channel, "channel").channel;
}

/// Checks arguments that every rank must pass; if one is missing, the call is refused on all ranks.
template <class Look>
void require_usable(IpcChannel& channel, const char* call, Look&& look) {
  try {
    look();
  } catch (const Error& reason) {
    refuse_channel_call(channel, call, reason);
  }
}

}  // namespace

extern "C" {

onehop_status_t onehop_ipc_channel_connect(onehop_store_t* store, const char* prefix, int rank,
                                           int world_size, int64_t timeout_ms,
                                           onehop_ipc_channel_t** channel) {
  return produce(channel, "channel", [&] {
    return new onehop_ipc_channel{IpcChannel::connect(deref(store, "store").store, text(prefix, "prefix"),
                                                      Rank{rank}, world_size,
                                                      as_timeout(timeout_ms, kDefaultTimeout))};
  });
}

onehop_status_t onehop_group_channel(onehop_group_t* group, onehop_ipc_channel_t** channel) {
  return produce(channel, "channel", [&] {
    return new onehop_ipc_channel{IpcChannel(deref(group, "group").group.channel().mesh())};
  });
}

void onehop_ipc_channel_destroy(onehop_ipc_channel_t* channel) {
  delete channel;
}

int onehop_ipc_channel_rank(const onehop_ipc_channel_t* channel) {
  if (channel == nullptr) return -1;
  return guard_or(-1, [&] { return channel->channel.rank().value; });
}

int onehop_ipc_channel_size(const onehop_ipc_channel_t* channel) {
  if (channel == nullptr) return 0;
  return guard_or(0, [&] { return channel->channel.size(); });
}

onehop_status_t onehop_ipc_channel_send_fd(onehop_ipc_channel_t* channel, int to, int fd,
                                           int64_t timeout_ms) {
  return guard([&] { in(channel).send_fd(Rank{to}, fd, as_timeout(timeout_ms, kDefaultTimeout)); });
}

onehop_status_t onehop_ipc_channel_recv_fd(onehop_ipc_channel_t* channel, int from, int64_t timeout_ms,
                                           int* fd) {
  return produce(fd, "fd",
                 [&] { return in(channel).recv_fd(Rank{from}, timeout(timeout_ms, kDefaultTimeout)); });
}

onehop_status_t onehop_ipc_channel_all_gather_fds(onehop_ipc_channel_t* channel, int fd, int64_t timeout_ms,
                                                  int* fds) {
  return guard([&] {
    IpcChannel& among = in(channel);
    require_usable(among, "all_gather_fds", [&] { (void)deref(fds, "fds"); });
    const std::vector<int> all = among.all_gather_fds(fd, as_timeout(timeout_ms, kDefaultTimeout));
    std::copy(all.begin(), all.end(), fds);
  });
}

onehop_status_t onehop_ipc_channel_broadcast_fd(onehop_ipc_channel_t* channel, int fd, int root,
                                                int64_t timeout_ms, int* received) {
  return guard([&] {
    IpcChannel& among = in(channel);
    require_usable(among, "broadcast_fds", [&] { (void)deref(received, "received"); });
    *received = among.broadcast_fds(fd, Rank{root}, as_timeout(timeout_ms, kDefaultTimeout));
  });
}

onehop_status_t onehop_ipc_channel_all_gather(onehop_ipc_channel_t* channel, const void* payload,
                                              size_t bytes, int64_t timeout_ms,
                                              onehop_payloads_t** payloads) {
  return guard([&] {
    IpcChannel& among = in(channel);
    std::string_view own;
    try {
      own = c_api::bytes(payload, bytes, "payload");
      (void)deref(payloads, "payloads");
    } catch (const Error& reason) {
      refuse_all_gather(among, reason);
    }
    make_payloads(*payloads, [&] { return among.all_gather(own, as_timeout(timeout_ms, kDefaultTimeout)); });
  });
}

onehop_status_t onehop_ipc_channel_barrier(onehop_ipc_channel_t* channel, int64_t timeout_ms) {
  return guard([&] { in(channel).barrier(as_timeout(timeout_ms, kDefaultTimeout)); });
}

}  // extern "C"
