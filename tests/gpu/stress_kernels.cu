// SPDX-License-Identifier: Apache-2.0
// The first inputs and the final checks of the chains of calls that the stress program queues.
#include "stress_ops.h"

namespace {

using onehop::testing::StressFindings;
using onehop::testing::StressOp;
using onehop::testing::StressParams;

/// This block's share of the elements of its operation's input or output.
struct Share {
  std::uint32_t begin;
  std::uint32_t end;
};
constexpr std::uint32_t kBlocks = onehop::testing::kStressBlocks;
__device__ std::uint32_t own_index() {
  return blockIdx.x / kBlocks;
}
__device__ Share share_of(std::uint64_t count) {
  const std::uint32_t part = blockIdx.x % kBlocks;
  return {static_cast<std::uint32_t>(count * part / kBlocks),
          static_cast<std::uint32_t>(count * (part + 1) / kBlocks)};
}

__device__ void store(std::byte* to, unsigned bytes, std::uint64_t bits) {
  switch (bytes) {
    case 1:
      *reinterpret_cast<std::uint8_t*>(to) = static_cast<std::uint8_t>(bits);
      break;
    case 2:
      *reinterpret_cast<std::uint16_t*>(to) = static_cast<std::uint16_t>(bits);
      break;
    case 4:
      *reinterpret_cast<std::uint32_t*>(to) = static_cast<std::uint32_t>(bits);
      break;
    default:
      *reinterpret_cast<std::uint64_t*>(to) = bits;
  }
}

__device__ std::uint64_t load(const std::byte* from, unsigned bytes) {
  switch (bytes) {
    case 1:
      return *reinterpret_cast<const std::uint8_t*>(from);
    case 2:
      return *reinterpret_cast<const std::uint16_t*>(from);
    case 4:
      return *reinterpret_cast<const std::uint32_t*>(from);
    default:
      return *reinterpret_cast<const std::uint64_t*>(from);
  }
}

}  // namespace

extern "C" __global__ void stress_fill(const __grid_constant__ StressParams p) {
  const StressOp op = p.ops[own_index()];
  if (op.depth != 1) return;
  const Share share = share_of(onehop::testing::input_count(op, p.rank, p.ranks));
  const auto round = static_cast<std::uint32_t>(p.findings->round);
  const unsigned bytes = onehop::testing::element_bytes(op.type);
  std::byte* const in = p.arena.at(op.in);
  for (std::uint32_t i = share.begin + threadIdx.x; i < share.end; i += blockDim.x) {
    store(in + std::size_t{i} * bytes, bytes, onehop::testing::input_bits(op, round, p.rank, p.ranks, i));
  }
}

extern "C" __global__ void stress_check(const __grid_constant__ StressParams p) {
  const StressOp op = p.ops[own_index()];
  if (!op.checked) return;
  const Share share = share_of(onehop::testing::output_count(op, p.rank, p.ranks));
  StressFindings& findings = *p.findings;
  const auto round = static_cast<std::uint32_t>(findings.round);
  const unsigned bytes = onehop::testing::element_bytes(op.type);
  const std::byte* const out = p.arena.at(op.out);
  for (std::uint32_t i = share.begin + threadIdx.x; i < share.end; i += blockDim.x) {
    const std::uint64_t wanted = onehop::testing::output_bits(op, round, p.rank, p.ranks, i);
    const std::uint64_t got = load(out + std::size_t{i} * bytes, bytes);
    if (got == wanted) continue;
    atomicAdd(reinterpret_cast<unsigned long long*>(&findings.wrong), 1ULL);
    if (atomicExch(&findings.claimed, 1u) != 0) continue;
    findings.got = got;
    findings.wanted = wanted;
    findings.at_round = round;
    findings.index = own_index();
    findings.element = i;
    findings.op = op;
  }
  if (threadIdx.x == 0)
    atomicAdd(reinterpret_cast<unsigned long long*>(&findings.checked),
              static_cast<unsigned long long>(share.end - share.begin));
}

extern "C" __global__ void stress_advance(const __grid_constant__ StressParams p) {
  ++p.findings->round;
}
