// SPDX-License-Identifier: Apache-2.0
#include "call/call.h"

#include <algorithm>

namespace onehop {
namespace {

/// The span from the first byte of any block to the last. If all blocks are empty, `data` may be null.
template <class Byte>
std::span<Byte> span_of(Byte* data, const Blocks& blocks, std::size_t element) {
  std::size_t first = SIZE_MAX;
  std::size_t last = 0;
  for (std::size_t r = 0; r < blocks.counts.size(); ++r) {
    if (blocks.counts[r] == 0) continue;
    first = std::min(first, blocks.offsets[r] * element);
    last = std::max(last, (blocks.offsets[r] + blocks.counts[r]) * element);
  }
  if (last == 0) return {};
  return {data + first, last - first};
}

template <class Byte>
std::span<Byte> block_of(Byte* data, const Blocks& blocks, int r, std::size_t element) {
  const auto i = static_cast<std::size_t>(r);
  if (blocks.counts[i] == 0) return {};
  return {data + blocks.offsets[i] * element, blocks.counts[i] * element};
}

}  // namespace

std::span<const std::byte> CollectiveCall::counted_input() const {
  return span_of(in_at(), in_blocks, element_bytes());
}

std::span<std::byte> CollectiveCall::counted_output() const {
  return span_of(out_at(), out_blocks, element_bytes());
}

std::span<const std::byte> CollectiveCall::counted_block_to(int r) const {
  return block_of(in_at(), in_blocks, r, element_bytes());
}

std::span<std::byte> CollectiveCall::counted_block_from(int r) const {
  return block_of(out_at(), out_blocks, r, element_bytes());
}

std::optional<int> CollectiveCall::in_place_offset() const {
  if (traits().in == Amount::block) return traits().out == Amount::block_per_rank ? rank : 0;
  if (traits().out == Amount::block) return -rank;
  return std::nullopt;
}

CollectiveCall CollectiveCall::first(std::size_t bytes) const {
  CollectiveCall part = *this;
  part.count = bytes / element_bytes();
  return part;
}

CollectiveCall CollectiveCall::from(std::size_t bytes) const {
  CollectiveCall part = *this;
  part.in = in_at(bytes);
  part.out = out_at(bytes);
  part.count -= bytes / element_bytes();
  return part;
}

Transfers transfers_of(const CollectiveCall& call) {
  Transfers transfers{};
  for (int r = 0; r < call.ranks; ++r) {
    const std::span<const std::byte> sent = call.block_to(r);
    const std::span<std::byte> received = call.block_from(r);
    transfers[static_cast<std::size_t>(r)] = {.in = sent.data(),
                                              .sent = sent.size(),
                                              .out = received.data(),
                                              .received = received.size(),
                                              .type = call.type};
  }
  return transfers;
}

}  // namespace onehop
