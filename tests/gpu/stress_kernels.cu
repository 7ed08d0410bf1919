// The ends of the chains of all-reduces that the stress program queues.
#include "stress_ops.h"

namespace {

using onehop::testing::StressFindings;
using onehop::testing::StressOp;
using onehop::testing::StressParams;

/// This block's operation, and its share of that one's elements.
struct Share {
  std::uint32_t index;
  std::uint32_t begin;
  std::uint32_t end;
};
__device__ Share share_of(const StressParams& p) {
  constexpr std::uint32_t kBlocks = onehop::testing::kStressBlocks;
  const std::uint32_t index = blockIdx.x / kBlocks;
  const std::uint64_t count = p.ops[index].count;
  const std::uint32_t part = blockIdx.x % kBlocks;
  return {index, static_cast<std::uint32_t>(count * part / kBlocks),
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
  const Share share = share_of(p);
  const StressOp op = p.ops[share.index];
  if (op.depth != 1) return;
  const auto round = static_cast<std::uint32_t>(p.findings->round);
  const unsigned bytes = onehop::testing::element_bytes(op.type);
  for (std::uint32_t i = share.begin + threadIdx.x; i < share.end; i += blockDim.x) {
    const std::int64_t value = onehop::testing::stress_input(op, round, p.rank, p.ranks, i);
    store(p.arena + op.in + std::size_t{i} * bytes, bytes, onehop::testing::stored_bits(op.type, value));
  }
}

extern "C" __global__ void stress_check(const __grid_constant__ StressParams p) {
  const Share share = share_of(p);
  const StressOp op = p.ops[share.index];
  if (!op.checked) return;
  StressFindings& findings = *p.findings;
  const auto round = static_cast<std::uint32_t>(findings.round);
  const unsigned bytes = onehop::testing::element_bytes(op.type);
  for (std::uint32_t i = share.begin + threadIdx.x; i < share.end; i += blockDim.x) {
    const std::int64_t value = onehop::testing::stress_result(op, round, p.ranks, i);
    const std::uint64_t wanted = onehop::testing::stored_bits(op.type, value);
    const std::uint64_t got = load(p.arena + op.out + std::size_t{i} * bytes, bytes);
    if (got == wanted) continue;
    atomicAdd(reinterpret_cast<unsigned long long*>(&findings.wrong), 1ULL);
    if (atomicExch(&findings.claimed, 1u) != 0) continue;
    findings.got = got;
    findings.wanted = wanted;
    findings.at_round = round;
    findings.index = share.index;
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
