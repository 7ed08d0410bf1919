// SPDX-License-Identifier: Apache-2.0
// Kernels of a user, with nothing but the public device headers.
#include "onehop/device/channel.cuh"
#include "onehop/device/tile.cuh"

#include "channel_kernels.h"

namespace {

using onehop::testing::ExchangeParams;
using onehop::testing::ReduceParams;
using onehop::testing::TileParams;

__device__ std::uint32_t mix(std::uint32_t z) {
  z = (z ^ z >> 16) * 0x7feb352du;
  z = (z ^ z >> 15) * 0x846ca68bu;
  return z ^ z >> 16;
}

/// One word in eight has bits that could be mistaken for something else.
__device__ std::uint32_t word_of(int from, int to, std::uint32_t round, std::uint32_t i) {
  const std::uint32_t drawn = mix(i + mix(round * 64 + static_cast<std::uint32_t>(from * 8 + to)));
  if (drawn % 8 != 0) return drawn;
  switch (drawn / 8 % 8) {
    case 0:
      return 0;
    case 1:
      return 0xffffffff;
    case 2:
      return 0x80000000;
    case 3:
      return 0x7f800001;  // a signalling NaN
    case 4:
      return 0x0000ffff;
    case 5:
      return 0xffff0000;
    case 6:
      return 0x7fff7fff;
    default:
      return round;  // looks like a flag
  }
}

struct KeepsBits {
  using Use = onehop::device::LLPackets;
  static __device__ std::uint32_t received(std::uint32_t word) { return word; }
};
struct ChangesOneNan {
  using Use = onehop::device::LamportBuffers;
  static __device__ std::uint32_t received(std::uint32_t word) {
    return word == 0xffffffff ? 0x7fff7fff : word;
  }
};

template <int kWidth>
struct alignas(4 * kWidth) Unit {
  std::uint32_t at[kWidth];
};
template <int kWidth>
__device__ Unit<kWidth> unit_of(int from, int to, std::uint32_t round, std::uint32_t i) {
  Unit<kWidth> unit;
#pragma unroll
  for (int k = 0; k < kWidth; ++k) unit.at[k] = word_of(from, to, round, i * kWidth + k);
  return unit;
}

/// Words [begin, end), in units of kWidth.
template <class Kind, int kWidth>
class Exchange {
 public:
  __device__ Exchange(const typename Kind::Use& use, const onehop::ChannelSlots& slots,
                      const ExchangeParams& p)
      : use_(use), slots_(slots), p_(p), round_(*p.round * 16 + p.salt) {}

  __device__ void put(std::uint32_t begin, std::uint32_t end) const {
    for (std::uint32_t i = begin / kWidth + thread(); i < end / kWidth; i += threads()) {
      for (int to = 0; to < slots_.size; ++to) {
        if (to == slots_.rank && p_.together) continue;
        use_.put(to, i, unit_of<kWidth>(slots_.rank, to, round_, i));
      }
    }
  }
  __device__ bool take(std::uint32_t begin, std::uint32_t end) const {
    for (std::uint32_t i = begin / kWidth + thread(); i < end / kWidth; i += threads()) {
      for (int from = 0; from < slots_.size; ++from) {
        Unit<kWidth> got;
        if (!use_.take(from, i, got)) return false;
        compare(from, i, got);
      }
    }
    return true;
  }
  __device__ bool take_together(std::uint32_t begin, std::uint32_t end) const {
    for (std::uint32_t i = begin / kWidth + thread(); i < end / kWidth; i += threads()) {
      Unit<kWidth> own;
      for (int k = 0; k < kWidth; ++k) own.at[k] = 12345;
      Unit<kWidth> got[onehop::kMaxDevices];
      if (!use_.take_all(i, own, got)) return false;
#pragma unroll
      for (int from = 0; from < onehop::kMaxDevices; ++from) {
        if (from < slots_.size && from != slots_.rank) compare(from, i, got[from]);
        if (from == slots_.rank && got[from].at[0] != 12345) atomicAdd(p_.wrong, 1u);
      }
    }
    return true;
  }

 private:
  static __device__ std::uint32_t thread() {
    return blockIdx.x * blockDim.x + threadIdx.x;
  }
  static __device__ std::uint32_t threads() {
    return gridDim.x * blockDim.x;
  }
  __device__ void compare(int from, std::uint32_t i, const Unit<kWidth>& got) const {
    const Unit<kWidth> sent = unit_of<kWidth>(from, slots_.rank, round_, i);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      if (got.at[k] != Kind::received(sent.at[k])) atomicAdd(p_.wrong, 1u);
    }
  }

  const typename Kind::Use& use_;
  const onehop::ChannelSlots& slots_;
  const ExchangeParams& p_;
  const std::uint32_t round_;
};

template <class Kind, int kWidth>
__device__ void exchange(const typename Kind::Use::Channel& channel, const ExchangeParams& p) {
  const typename Kind::Use use(channel);
  const Exchange<Kind, kWidth> units(use, channel.slots, p);
  const Exchange<Kind, 1> single(use, channel.slots, p);
  const std::uint32_t whole = p.words / kWidth * kWidth;
  units.put(0, whole);
  single.put(whole, p.words);
  use.advance(p.words);
  const bool came = p.together ? units.take_together(0, whole) && single.take_together(whole, p.words)
                               : single.take(0, p.words);
  if (!came) atomicAdd(p.gave_up, 1u);
}

template <class Kind>
__device__ void exchange(const typename Kind::Use::Channel& channel, const ExchangeParams& p) {
  switch (p.width) {
    case 1:
      return exchange<Kind, 1>(channel, p);
    case 2:
      return exchange<Kind, 2>(channel, p);
    default:
      return exchange<Kind, 4>(channel, p);
  }
}

template <class T>
__device__ void reduce(const ReduceParams& p) {
  const auto channel = static_cast<int>(blockIdx.x);
  const std::uint32_t begin = blockIdx.x * p.bytes;
  if (!onehop::device::barrier(p.view, channel)) {
    if (threadIdx.x == 0) atomicAdd(p.gave_up, 1u);
    return;
  }
  constexpr int kCount = onehop::device::kPerVector<T>;
  onehop::device::reduce_tile<T>(
      p.view, p.offset + begin, p.bytes, [&](std::size_t i, const float(&sums)[kCount]) {
        const std::size_t vector = begin / 16 + i;
        for (int e = 0; e < kCount; ++e) p.sums[vector * kCount + e] = sums[e];
        reinterpret_cast<uint4*>(p.rounded)[vector] = onehop::device::narrow<T>(sums);
      });
  (void)onehop::device::barrier(p.view, channel);
}

}  // namespace

extern "C" __global__ void exchange_packets(const __grid_constant__ ExchangeParams p) {
  exchange<KeepsBits>(p.packets, p);
}
extern "C" __global__ void exchange_lamport(const __grid_constant__ ExchangeParams p) {
  exchange<ChangesOneNan>(p.lamport, p);
}

extern "C" __global__ void pass_tiles(const __grid_constant__ TileParams p) {
  const int right = (p.view.rank + 1) % p.view.size;
  const int left = (p.view.rank + p.view.size - 1) % p.view.size;
  const int written = 2 * static_cast<int>(blockIdx.x);
  const int read = written + 1;
  const std::uint32_t words = p.bytes / 4;
  // In each part, this block has two tiles: the one that it puts, and the one that it receives.
  const std::size_t mine = std::size_t{2} * blockIdx.x * p.bytes;
  const std::size_t theirs = mine + p.bytes;
  auto* const source = reinterpret_cast<std::uint32_t*>(p.view.peers[p.view.rank] + mine);
  const auto* const target = reinterpret_cast<const std::uint32_t*>(p.view.peers[p.view.rank] + theirs);
  bool there = true;
  for (std::uint32_t round = 0; there && round < p.rounds; ++round) {
    for (std::uint32_t i = threadIdx.x; i < words; i += blockDim.x)
      source[i] = word_of(p.view.rank, right, round, i);
    __syncthreads();
    onehop::device::put_tile(p.view, right, written, theirs, source, p.bytes);
    there = onehop::device::wait_tile(p.view, left, written);
    if (!there) break;
    for (std::uint32_t i = threadIdx.x; i < words; i += blockDim.x) {
      if (target[i] != word_of(left, p.view.rank, round, i)) atomicAdd(p.wrong, 1u);
    }
    // A tile of no bytes: "I have read it".
    onehop::device::put_tile(p.view, left, read, 0, nullptr, 0);
    there = onehop::device::wait_tile(p.view, right, read);
  }
  if (!there && threadIdx.x == 0) atomicAdd(p.gave_up, 1u);
}

extern "C" __global__ void reduce_f32(const __grid_constant__ ReduceParams p) {
  reduce<float>(p);
}
extern "C" __global__ void reduce_f16(const __grid_constant__ ReduceParams p) {
  reduce<__half>(p);
}
extern "C" __global__ void reduce_bf16(const __grid_constant__ ReduceParams p) {
  reduce<__nv_bfloat16>(p);
}
