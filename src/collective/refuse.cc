// SPDX-License-Identifier: Apache-2.0
#include "collective/refuse.h"

#include "collective/device_call.h"
#include "collective/group_call.h"
#include "collective/host_call.h"

namespace onehop {
namespace {

[[noreturn]] void refuse_now(Group::State& group, CallKind kind, const Error& reason, CallDefect defect) {
  // A transfer has no step in which its two ranks find out: it is the failure of the group.
  if (kind == CallKind::send || kind == CallKind::recv) group.fail_call(reason, to_text(kind));
  const CallOptions options;
  const Arguments call{.kind = kind, .options = options};
  const auto nothing = [](auto&&...) { return Algorithm::none; };
  try {
    if (group.device() != nullptr) {
      (void)make_device_call(group, call, defect, nothing);
    } else {
      (void)make_host_call(group, call, defect, nothing);
    }
  } catch (const Error& heard) {
    if (heard.code() != ErrorCode::invalid_argument || heard.origin() != group.rank()) throw;
  }
  throw Error(reason.code(), reason.message(), group.rank());
}

constexpr const char* kAllGather = "all_gather";

/// What all ranks hear of it.
Status refusal(Rank rank, const Error& reason) {
  return {.code = reason.code(),
          .origin = rank,
          .message = fmt::format("{}: rank {}: {}", kAllGather, rank.value, reason.message())};
}

}  // namespace

void refuse_call(Group& group, CallKind kind, const Error& reason, CallDefect defect) {
  if (auto* const queue = GroupCall::Queue::open()) {
    queue->add(group, [&group, kind, reason, defect] { refuse_now(group.state(), kind, reason, defect); });
    return;
  }
  refuse_now(group.state(), kind, reason, defect);
}

void refuse_all_gather(Group& group, const Error& reason) {
  Group::State& state = group.state();
  state.call(kAllGather, group.timeout(), [&](os::CallDeadline& deadline) {
    (void)state.mesh().all_gather("", deadline.arm(), kAllGather, refusal(state.rank(), reason));
  });
}

void refuse_all_gather(IpcChannel& channel, const Error& reason) {
  (void)channel.mesh()->all_gather("", Deadline::after(kDefaultTimeout), kAllGather,
                                   refusal(channel.rank(), reason));
}

void refuse_channel_call(IpcChannel& channel, const char* call, const Error& reason) {
  channel.mesh()->fail_call(reason, call);
}

void refuse_split(Group& group, const Error& reason) {
  (void)group.state().split(-1, 0, Status::of(reason, group.rank()));
}

}  // namespace onehop
