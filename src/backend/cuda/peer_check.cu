// SPDX-License-Identifier: Apache-2.0
// Kernels of the peer check: data movement, verification, atomics and ping-pong. See peer_check_params.h.
#include "backend/cuda/peer_check_params.h"

namespace {

using namespace onehop::peer_check;

// 16-byte accesses that a thread has in flight. With 132 blocks of 512 threads that is 4 MB, several times
// the bandwidth-delay product of a link (370 GB/s x 1.5 us).
constexpr int kInFlight = 4;
constexpr std::uint64_t kTile = static_cast<std::uint64_t>(kInFlight) * kBlock;

__device__ std::uint64_t mix(std::uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ull;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebull;
  return value ^ (value >> 31);
}

/// The expected data at position `unit`.
__device__ uint4 pattern(std::uint64_t key, std::uint64_t unit) {
  const std::uint64_t low = mix(key + unit * 0x9e3779b97f4a7c15ull);
  const std::uint64_t high = (low ^ key) * 0xd6e8feb86659fd93ull;
  return make_uint4(static_cast<unsigned>(low), static_cast<unsigned>(low >> 32), static_cast<unsigned>(high),
                    static_cast<unsigned>(high >> 32));
}

__device__ uint4 load(const uint4* from) {
  uint4 value;
  // Each line is read once, so caching a peer's line in this multiprocessor has no benefit.
  asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(from)
               : "memory");
  return value;
}

__device__ void store(uint4* to, uint4 value) {
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(value.x), "r"(value.y), "r"(value.z),
               "r"(value.w)
               : "memory");
}

__device__ std::uint32_t load_flag(const std::uint32_t* flag) {
  std::uint32_t value;
  asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(flag) : "memory");
  return value;
}

__device__ void store_flag(std::uint32_t* flag, std::uint32_t value) {
  asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(flag), "r"(value) : "memory");
}

__device__ std::uint64_t now_ns() {
  std::uint64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)::"memory");
  return now;
}

/// Calls `full(first unit of this thread)` for every whole tile of this block; a thread has kInFlight units
/// per tile, kBlock apart. Calls `single(unit)` for the units behind the last whole tile.
template <class Full, class Single>
__device__ void for_each_tile(std::uint64_t units, Full full, Single single) {
  const std::uint64_t whole = units / kTile * kTile;
  for (std::uint64_t at = blockIdx.x * kTile; at < whole; at += gridDim.x * kTile) full(at + threadIdx.x);
  const std::uint64_t threads = static_cast<std::uint64_t>(gridDim.x) * kBlock;
  for (std::uint64_t at = whole + blockIdx.x * kBlock + threadIdx.x; at < units; at += threads) single(at);
}

/// Waits until `flag` is `wanted`. Returns false if `end_ns` passes first.
__device__ bool await(const std::uint32_t* flag, std::uint32_t wanted, std::uint64_t end_ns) {
  while (true) {
    // Reading the clock is slower than reading the flag.
#pragma unroll 1
    for (int i = 0; i < 64; ++i) {
      if (load_flag(flag) == wanted) return true;
    }
    if (now_ns() >= end_ns) return false;
  }
}

}  // namespace

extern "C" __global__ void __launch_bounds__(kBlock)
    onehop_peer_store(const __grid_constant__ StoreParams p) {
  uint4* const to = static_cast<uint4*>(p.to);
  for_each_tile(
      p.units,
      [&](std::uint64_t unit) {
#pragma unroll
        for (int i = 0; i < kInFlight; ++i) store(to + unit + i * kBlock, pattern(p.key, unit + i * kBlock));
      },
      [&](std::uint64_t unit) { store(to + unit, pattern(p.key, unit)); });
}

extern "C" __global__ void __launch_bounds__(kBlock) onehop_peer_load(const __grid_constant__ LoadParams p) {
  const uint4* const from = static_cast<const uint4*>(p.from);
  uint4* const to = static_cast<uint4*>(p.to);
  for_each_tile(
      p.units,
      [&](std::uint64_t unit) {
        uint4 values[kInFlight];
#pragma unroll
        for (int i = 0; i < kInFlight; ++i) values[i] = load(from + unit + i * kBlock);
#pragma unroll
        for (int i = 0; i < kInFlight; ++i) store(to + unit + i * kBlock, values[i]);
      },
      [&](std::uint64_t unit) { store(to + unit, load(from + unit)); });
}

extern "C" __global__ void __launch_bounds__(kBlock)
    onehop_peer_verify(const __grid_constant__ VerifyParams p) {
  const uint4* const data = static_cast<const uint4*>(p.data);
  std::uint64_t wrong = 0;
  std::uint64_t from_end = 0;
  const auto compare = [&](std::uint64_t unit, uint4 value) {
    const uint4 expected = pattern(p.key, unit);
    if (value.x == expected.x && value.y == expected.y && value.z == expected.z && value.w == expected.w) {
      return;
    }
    ++wrong;
    if (from_end < p.units - unit) from_end = p.units - unit;
  };
  for_each_tile(
      p.units,
      [&](std::uint64_t unit) {
        uint4 values[kInFlight];
#pragma unroll
        for (int i = 0; i < kInFlight; ++i) values[i] = load(data + unit + i * kBlock);
#pragma unroll
        for (int i = 0; i < kInFlight; ++i) compare(unit + i * kBlock, values[i]);
      },
      [&](std::uint64_t unit) { compare(unit, load(data + unit)); });
  if (wrong == 0) return;
  // CUDA's 64-bit atomics take unsigned long long.
  atomicAdd(reinterpret_cast<unsigned long long*>(&p.verdict->wrong), static_cast<unsigned long long>(wrong));
  atomicMax(reinterpret_cast<unsigned long long*>(&p.verdict->from_end),
            static_cast<unsigned long long>(from_end));
}

extern "C" __global__ void __launch_bounds__(kAtomicBlock)
    onehop_peer_atomics(const __grid_constant__ AtomicsParams p) {
  const unsigned thread = blockIdx.x * kAtomicBlock + threadIdx.x;
  unsigned long long tickets = 0;
  for (unsigned round = 0; round < kAtomicRounds; ++round) {
    const unsigned counter = (thread + round) % kCounters;
    atomicAdd_system(p.counters32 + counter, counter + 1);
    tickets += atomicAdd_system(reinterpret_cast<unsigned long long*>(p.counters64 + counter), 1ull);
  }
  atomicAdd(reinterpret_cast<unsigned long long*>(p.ticket_sum), tickets);
}

extern "C" __global__ void __launch_bounds__(1) onehop_peer_ping(const __grid_constant__ PingParams p) {
  std::uint64_t begin = now_ns();
  const std::uint64_t end = begin + p.limit_ns;
  const std::uint32_t rounds = p.warmup + p.rounds;
  std::uint32_t done = 0;
  while (done < rounds) {
    const std::uint32_t round = done + 1;
    if (p.starts != 0) store_flag(p.theirs, round);
    if (!await(p.mine, round, end)) break;
    if (p.starts == 0) store_flag(p.theirs, round);
    done = round;
    if (round == p.warmup) begin = now_ns();
  }
  p.result->elapsed_ns = now_ns() - begin;
  p.result->rounds_done = done;
  p.result->gave_up = done < rounds ? 1 : 0;
}
