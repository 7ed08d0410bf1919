// SPDX-License-Identifier: Apache-2.0
#include "onehop/spans.h"

#include "base/check.h"
#include "collective/refuse.h"

namespace onehop::detail {
namespace {

Algorithm refuse(Group& group, Collective collective, const std::string& why) {
  refuse_call(group, collective,
              Error(ErrorCode::invalid_argument,
                    fmt::format("{} of rank {}: {}", traits_of(collective).name, group.rank().value, why)),
              ArgumentError::unfitting_spans);
  return Algorithm::none;
}

/// Refuses a call because `many` is not `one` times the number of ranks.
Algorithm refuse_blocks(Group& group, Collective collective, const char* many_name, std::size_t many,
                        const char* one_name, std::size_t one) {
  return refuse(group, collective,
                fmt::format("its {} has {} elements, which must be {} times the {} of its {}", many_name,
                            many, group.size(), one, one_name));
}

bool is_blocks(const Group& group, std::size_t many, std::size_t one) {
  const auto ranks = static_cast<std::size_t>(group.size());
  return many % ranks == 0 && many / ranks == one;
}

bool within(const Blocks& blocks, std::size_t elements) {
  for (std::size_t r = 0; r < blocks.counts.size() && r < blocks.offsets.size(); ++r) {
    if (blocks.counts[r] == 0) continue;
    if (blocks.offsets[r] > elements || blocks.counts[r] > elements - blocks.offsets[r]) return false;
  }
  return true;
}

Algorithm refuse_lengths(Group& group, Collective collective, const Spans& data) {
  return refuse(group, collective,
                fmt::format("its input has {} elements, its output {}; they must have as many", data.in_count,
                            data.out_count));
}

}  // namespace

Algorithm all_reduce(Group& group, const Spans& data, ReduceOp op, Stream stream,
                     const CallOptions& options) {
  if (data.in_count != data.out_count) return refuse_lengths(group, Collective::all_reduce, data);
  return onehop::all_reduce(group, data.in, data.out, data.in_count, data.type, op, stream, options);
}

Algorithm all_gather(Group& group, const Spans& data, Stream stream, const CallOptions& options) {
  if (!is_blocks(group, data.out_count, data.in_count))
    return refuse_blocks(group, Collective::all_gather, "output", data.out_count, "input", data.in_count);
  return onehop::all_gather(group, data.in, data.out, data.in_count, data.type, stream, options);
}

Algorithm reduce_scatter(Group& group, const Spans& data, ReduceOp op, Stream stream,
                         const CallOptions& options) {
  if (!is_blocks(group, data.in_count, data.out_count))
    return refuse_blocks(group, Collective::reduce_scatter, "input", data.in_count, "output", data.out_count);
  return onehop::reduce_scatter(group, data.in, data.out, data.out_count, data.type, op, stream, options);
}

Algorithm broadcast(Group& group, const Spans& data, Rank root, Stream stream, const CallOptions& options) {
  if (group.rank() == root && data.in_count != data.out_count)
    return refuse_lengths(group, Collective::broadcast, data);
  return onehop::broadcast(group, data.in, data.out, data.out_count, data.type, root, stream, options);
}

Algorithm reduce(Group& group, const Spans& data, ReduceOp op, Rank root, Stream stream,
                 const CallOptions& options) {
  if (group.rank() == root && data.in_count != data.out_count)
    return refuse_lengths(group, Collective::reduce, data);
  return onehop::reduce(group, data.in, data.out, data.in_count, data.type, op, root, stream, options);
}

Algorithm all_to_all(Group& group, const Spans& data, Stream stream, const CallOptions& options) {
  const auto ranks = static_cast<std::size_t>(group.size());
  if (data.in_count != data.out_count) return refuse_lengths(group, Collective::all_to_all, data);
  if (data.in_count % ranks != 0) {
    return refuse(group, Collective::all_to_all,
                  fmt::format("its {} elements are no multiple of the {} ranks", data.in_count, ranks));
  }
  return onehop::all_to_all(group, data.in, data.out, data.in_count / ranks, data.type, stream, options);
}

Algorithm all_to_all_v(Group& group, const Spans& data, const Blocks& in_blocks, const Blocks& out_blocks,
                       Stream stream, const CallOptions& options) {
  const bool reads_within = within(in_blocks, data.in_count);
  if (!reads_within || !within(out_blocks, data.out_count)) {
    return refuse(
        group, Collective::all_to_all_v,
        fmt::format("a block of its {} does not lie within the {} elements of that",
                    reads_within ? "output" : "input", reads_within ? data.out_count : data.in_count));
  }
  return onehop::all_to_all_v(group, data.in, in_blocks, data.out, out_blocks, data.type, stream, options);
}

Algorithm gather(Group& group, const Spans& data, Rank root, Stream stream, const CallOptions& options) {
  if (group.rank() == root && !is_blocks(group, data.out_count, data.in_count))
    return refuse_blocks(group, Collective::gather, "output", data.out_count, "input", data.in_count);
  return onehop::gather(group, data.in, data.out, data.in_count, data.type, root, stream, options);
}

Algorithm scatter(Group& group, const Spans& data, Rank root, Stream stream, const CallOptions& options) {
  if (group.rank() == root && !is_blocks(group, data.in_count, data.out_count))
    return refuse_blocks(group, Collective::scatter, "input", data.in_count, "output", data.out_count);
  return onehop::scatter(group, data.in, data.out, data.out_count, data.type, root, stream, options);
}

}  // namespace onehop::detail
