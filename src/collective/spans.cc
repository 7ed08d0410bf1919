// SPDX-License-Identifier: Apache-2.0
#include "onehop/spans.h"

#include "base/check.h"
#include "collective/refuse.h"

namespace onehop::detail {
namespace {

void refuse_lengths(Group& group, Collective collective, const std::string& why) {
  refuse_call(group, collective,
              Error(ErrorCode::invalid_argument,
                    fmt::format("{} of rank {}: {}", traits_of(collective).name, group.rank().value, why)),
              ArgumentError::unfitting_spans);
}

/// Why input and output of so many blocks do not match; empty if they do.
std::string mismatch(const Spans& data, std::size_t in_blocks, std::size_t out_blocks) {
  const auto times = [](const char* many_name, std::size_t many, std::size_t blocks, const char* one_name,
                        std::size_t one) {
    return many % blocks == 0 && many / blocks == one
               ? std::string()
               : fmt::format("its {} has {} elements, which must be {} times the {} of its {}", many_name,
                             many, blocks, one, one_name);
  };
  if (in_blocks < out_blocks) return times("output", data.out_count, out_blocks, "input", data.in_count);
  if (in_blocks > out_blocks) return times("input", data.in_count, in_blocks, "output", data.out_count);
  if (data.in_count != data.out_count) {
    return fmt::format("its input has {} elements, its output {}; they must have as many", data.in_count,
                       data.out_count);
  }
  if (data.in_count % in_blocks != 0)
    return fmt::format("its {} elements are no multiple of the {} ranks", data.in_count, in_blocks);
  return {};
}

bool within(const Blocks& blocks, std::size_t elements) {
  for (std::size_t r = 0; r < blocks.counts.size() && r < blocks.offsets.size(); ++r) {
    if (blocks.counts[r] == 0) continue;
    if (blocks.offsets[r] > elements || blocks.counts[r] > elements - blocks.offsets[r]) return false;
  }
  return true;
}

}  // namespace

std::optional<std::size_t> block_count(Group& group, Collective collective, const Spans& data, Rank root) {
  const CollectiveTraits& traits = traits_of(collective);
  const auto blocks = [&](Amount amount) {
    return amount == Amount::block_per_rank ? static_cast<std::size_t>(group.size()) : 1;
  };
  if (!traits.has_root() || group.rank() == root) {
    const std::string why = mismatch(data, blocks(traits.in), blocks(traits.out));
    if (!why.empty()) {
      refuse_lengths(group, collective, why);
      return std::nullopt;
    }
  }
  return traits.only_root_passes_in ? data.out_count / blocks(traits.out) : data.in_count / blocks(traits.in);
}

bool has_blocks(Group& group, const Spans& data, const Blocks& in_blocks, const Blocks& out_blocks) {
  const bool reads_within = within(in_blocks, data.in_count);
  if (reads_within && within(out_blocks, data.out_count)) return true;
  refuse_lengths(
      group, Collective::all_to_all_v,
      fmt::format("a block of its {} does not lie within the {} elements of that",
                  reads_within ? "output" : "input", reads_within ? data.out_count : data.in_count));
  return false;
}

}  // namespace onehop::detail
