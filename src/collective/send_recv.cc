#include "onehop/collectives.h"

#include "base/check.h"
#include "collective/arguments.h"
#include "collective/group_call.h"
#include "collective/transfers.h"

namespace onehop {
namespace {

/// Makes or queues the one transfer that `call` describes. It concerns no third rank, and what is wrong with
/// it not even the second: nothing has happened yet.
Algorithm transfer(Group& group, const Arguments& call, Rank peer, Stream stream) {
  Group::State& state = group.state();
  const char* const name = to_text(call.kind);
  require(peer.value >= 0 && peer.value < state.size(), "{}: rank {} is not in a group of {}", name,
          peer.value, state.size());
  const CallDefect defect = find_defect(call, state.size());
  require(defect == CallDefect::none, "{} of rank {} was rejected: {}", describe(describe_call(call, defect)),
          state.rank().value, to_text(defect));
  const Duration timeout = call.options.timeout.value_or(state.options().timeout);
  require(timeout.count() >= 0, "{}: a timeout must not be negative, got {} ms", name, timeout.count());

  const Transfer checked{.kind = call.kind,
                         .peer = peer,
                         .in = call.in,
                         .out = call.out,
                         .count = call.count,
                         .type = call.type};
  if (auto* const queue = GroupCall::Queue::open()) return queue->add(group, checked, timeout, stream);
  require(peer != state.rank(),
          "{}: rank {} reaches itself only in a GroupCall, where it both sends and receives", name,
          peer.value);
  make_transfers(state, {checked}, timeout, stream);
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
                   .options = options},
                  src, stream);
}

}  // namespace onehop
