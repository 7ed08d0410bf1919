// SPDX-License-Identifier: Apache-2.0
// The public collectives. Each records its caller's arguments; run() does the rest.
#include "onehop/collectives.h"

#include "collective/run.h"

namespace onehop {
namespace {

CollectiveCall call_of(const Group& group, Collective collective, const void* in, void* out,
                       std::size_t count, DType type, Stream stream, const CallOptions& options) {
  return {.collective = collective,
          .in = static_cast<const std::byte*>(in),
          .out = static_cast<std::byte*>(out),
          .count = count,
          .type = type,
          .op = {},
          .root = {},
          .in_blocks = {},
          .out_blocks = {},
          .stream = stream,
          .algorithm = options.algorithm,
          .timeout = options.timeout,
          .symmetric = options.symmetric,
          .factor = options.factor,
          .rank = group.rank().value,
          .ranks = group.size()};
}

}  // namespace

Algorithm all_reduce(Group& group, const void* in, void* out, std::size_t count, DType type, ReduceOp op,
                     Stream stream, const CallOptions& options) {
  CollectiveCall call = call_of(group, Collective::all_reduce, in, out, count, type, stream, options);
  call.op = op;
  return run(group, call);
}

Algorithm all_gather(Group& group, const void* in, void* out, std::size_t count, DType type, Stream stream,
                     const CallOptions& options) {
  return run(group, call_of(group, Collective::all_gather, in, out, count, type, stream, options));
}

Algorithm reduce_scatter(Group& group, const void* in, void* out, std::size_t count, DType type, ReduceOp op,
                         Stream stream, const CallOptions& options) {
  CollectiveCall call = call_of(group, Collective::reduce_scatter, in, out, count, type, stream, options);
  call.op = op;
  return run(group, call);
}

Algorithm broadcast(Group& group, const void* in, void* out, std::size_t count, DType type, Rank root,
                    Stream stream, const CallOptions& options) {
  CollectiveCall call = call_of(group, Collective::broadcast, in, out, count, type, stream, options);
  call.root = root;
  return run(group, call);
}

Algorithm reduce(Group& group, const void* in, void* out, std::size_t count, DType type, ReduceOp op,
                 Rank root, Stream stream, const CallOptions& options) {
  CollectiveCall call = call_of(group, Collective::reduce, in, out, count, type, stream, options);
  call.op = op;
  call.root = root;
  return run(group, call);
}

Algorithm all_to_all(Group& group, const void* in, void* out, std::size_t count, DType type, Stream stream,
                     const CallOptions& options) {
  return run(group, call_of(group, Collective::all_to_all, in, out, count, type, stream, options));
}

Algorithm all_to_all_v(Group& group, const void* in, const Blocks& in_blocks, void* out,
                       const Blocks& out_blocks, DType type, Stream stream, const CallOptions& options) {
  CollectiveCall call = call_of(group, Collective::all_to_all_v, in, out, 0, type, stream, options);
  call.in_blocks = in_blocks;
  call.out_blocks = out_blocks;
  return run(group, call);
}

Algorithm gather(Group& group, const void* in, void* out, std::size_t count, DType type, Rank root,
                 Stream stream, const CallOptions& options) {
  CollectiveCall call = call_of(group, Collective::gather, in, out, count, type, stream, options);
  call.root = root;
  return run(group, call);
}

Algorithm scatter(Group& group, const void* in, void* out, std::size_t count, DType type, Rank root,
                  Stream stream, const CallOptions& options) {
  CollectiveCall call = call_of(group, Collective::scatter, in, out, count, type, stream, options);
  call.root = root;
  return run(group, call);
}

Algorithm send(Group& group, const void* in, std::size_t count, DType type, Rank dst, Stream stream,
               const CallOptions& options) {
  CollectiveCall call = call_of(group, Collective::send, in, nullptr, count, type, stream, options);
  call.root = dst;
  return run(group, call);
}

Algorithm recv(Group& group, void* out, std::size_t count, DType type, Rank src, Stream stream,
               const CallOptions& options) {
  CollectiveCall call = call_of(group, Collective::recv, nullptr, out, count, type, stream, options);
  call.root = src;
  return run(group, call);
}

void Group::barrier() {
  barrier(timeout());
}

void Group::barrier(Duration timeout) {
  CollectiveCall call = call_of(*this, Collective::barrier, nullptr, nullptr, 0, DType::u8, {}, {});
  call.timeout = timeout;
  run_barrier(state(), call);
}

}  // namespace onehop
