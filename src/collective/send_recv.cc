// SPDX-License-Identifier: Apache-2.0
#include "onehop/collectives.h"

#include "base/check.h"
#include "collective/arguments.h"
#include "collective/group_call.h"
#include "collective/transfers.h"

namespace onehop {
namespace {

/// Throws what is wrong with a transfer.
void require_usable(const Group::State& state, const Arguments& call, Rank peer) {
  const char* const name = to_text(call.kind);
  require(peer.value >= 0 && peer.value < state.size(), "{}: rank {} is not in a group of {}", name,
          peer.value, state.size());
  const DeviceId device = state.options().device;
  CallDefect defect = find_defect(call, state.size());
  if (defect == CallDefect::none && state.device() != nullptr) defect = find_memory_defect(call, device);
  require(defect == CallDefect::none, "{} of rank {} was rejected: {}", describe(describe_call(call, defect)),
          state.rank().value, explain(call, defect, device));
  require(peer != state.rank() || GroupCall::Queue::open() != nullptr,
          "{}: rank {} reaches itself only in a GroupCall, where it both sends and receives", name,
          peer.value);
}

/// Makes or queues the one transfer that `call` describes. A transfer that is refused is the failure of the
/// group: the peer, which waits for it, must not take the next one for it.
Algorithm transfer(Group& group, const Arguments& call, Rank peer, Stream stream) {
  Group::State& state = group.state();
  const Duration timeout = call.timeout(state.options().timeout);
  const Transfer one{.kind = call.kind,
                     .peer = peer,
                     .in = call.in,
                     .out = call.out,
                     .count = call.count,
                     .type = call.type};
  try {
    require_usable(state, call, peer);
    if (auto* const queue = GroupCall::Queue::open()) return queue->add(group, one, timeout, stream);
  } catch (const Error& error) {
    state.fail_call(error, to_text(call.kind));
  }
  make_transfers(state, {one}, timeout, stream);
  return Algorithm::one_shot;
}

}  // namespace

Algorithm send(Group& group, const void* in, std::size_t count, DType type, Rank dst, Stream stream,
               const CallOptions& options) {
  return transfer(group,
                  {.kind = CallKind::send,
                   .in = as_bytes(in),
                   .count = count,
                   .type = type,
                   .out_blocks = 0,
                   .stream = stream,
                   .options = options},
                  dst, stream);
}

Algorithm recv(Group& group, void* out, std::size_t count, DType type, Rank src, Stream stream,
               const CallOptions& options) {
  return transfer(group,
                  {.kind = CallKind::recv,
                   .out = as_bytes(out),
                   .count = count,
                   .type = type,
                   .in_blocks = 0,
                   .stream = stream,
                   .options = options},
                  src, stream);
}

}  // namespace onehop
