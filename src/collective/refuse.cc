// SPDX-License-Identifier: Apache-2.0
#include "collective/refuse.h"

#include "collective/group_call.h"
#include "collective/run.h"

namespace onehop {
namespace {

constexpr const char* kAllGather = "all_gather";

/// The status that all ranks receive.
Status refusal(const char* call, Rank rank, const Error& reason) {
  return {.code = reason.code(),
          .origin = rank,
          .message = fmt::format("{}: rank {}: {}", call, rank.value, reason.message())};
}

/// Refuses a call that begins with an all-gather of bytes.
void refuse_exchange(Group& group, const char* call, const Error& reason) {
  Group::State& state = group.state();
  state.call(call, group.timeout(), [&](os::CallDeadline& deadline) {
    (void)state.mesh().all_gather("", deadline.arm(), call, refusal(call, state.rank(), reason));
  });
}

}  // namespace

void refuse_call(Group& group, Collective collective, const Error& reason, ArgumentError error) {
  const CollectiveCall call{{.collective = collective}, group.rank().value, group.size()};
  if (auto* const queue = GroupCall::Queue::open()) {
    (void)queue->add_refusal(group, call, error, reason);
    return;
  }
  refuse_now(group.state(), call, error, reason);
}

void refuse_now(Group::State& group, const CollectiveCall& call, ArgumentError error, const Error& reason) {
  // A transfer has no step in which its two ranks could compare calls, so a refusal fails the group.
  if (is_transfer(call)) group.fail_call(reason, call.traits().name);
  CollectiveCall refused = call;
  const bool by_caller = error == ArgumentError::refused_by_caller;
  if (by_caller) refused.refusal = &reason;
  try {
    if (call.collective == Collective::barrier) {
      run_barrier(group, refused);
    } else {
      run_now(group, {&refused, 1}, {&error, 1});
    }
  } catch (const Error& heard) {
    const ErrorCode told = by_caller ? reason.code() : ErrorCode::invalid_argument;
    if (heard.code() != told || heard.origin() != group.rank()) throw;
  }
  throw Error(reason.code(), reason.message(), group.rank());
}

void refuse(Group& group, Collective collective, const Error& reason) {
  refuse_call(group, collective, reason, ArgumentError::refused_by_caller);
}

void refuse_registration(Group& group, const Error& reason) {
  (void)group.state().local().register_buffer(nullptr, 0, {}, &reason);
}

void refuse_allocation(Group& group, const Error& reason) {
  refuse_exchange(group, "allocate", reason);
}

void refuse_all_gather(Group& group, const Error& reason) {
  refuse_exchange(group, kAllGather, reason);
}

void refuse_all_gather(IpcChannel& channel, const Error& reason) {
  (void)channel.mesh()->all_gather("", Deadline::after(kDefaultTimeout), kAllGather,
                                   refusal(kAllGather, channel.rank(), reason));
}

void refuse_channel_call(IpcChannel& channel, const char* call, const Error& reason) {
  channel.mesh()->fail_call(reason, call);
}

void refuse_split(Group& group, const Error& reason) {
  (void)group.state().split(-1, 0, refusal("split", group.rank(), reason));
}

}  // namespace onehop
