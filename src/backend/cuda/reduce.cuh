// SPDX-License-Identifier: Apache-2.0
// What a rank computes from the packets of all ranks, and the scaling of sums. The results have the bits of the host code
// (backend/host/reduce_kernels.h, base/numeric.h).
#pragma once

#include <cstdint>

#include "onehop/device/reduce.cuh"
#include "onehop/types.h"

#include "backend/cuda/packet.cuh"
#include "call/scale.h"

namespace onehop::cuda {

namespace element = device::element;
using device::Elements;
using device::kIsFloat;

/// The reductions of a kernel. Sums, by far the most common, have kernels of their own; a kernel of the others is told
/// which one it computes.
enum class Ops { sum, other };

/// The Scale's number in this accumulation type.
template <class T>
__device__ __forceinline__ T number_of(const Scale& scale) {
  if constexpr (!kIsFloat<T>) {
    return static_cast<T>(scale.number);
  } else if constexpr (sizeof(T) == 4) {
    return __uint_as_float(static_cast<std::uint32_t>(scale.number));
  } else {
    return __longlong_as_double(static_cast<long long>(scale.number));
  }
}

/// Divides, or multiplies integers. Out of line, because few calls do, and what every call has to skip takes its time.
template <class E, int kBytes>
static __device__ __noinline__ Elements<E, kBytes> scaled_rarely(Elements<E, kBytes> sums,
                                                                 typename E::Wide number, unsigned divides) {
#pragma unroll
  for (auto& sum : sums.at)
    sum = divides != 0 ? static_cast<typename E::Wide>(sum / number)
                       : device::combine<ReduceOp::prod>(sum, number);
  return sums;
}

/// kRanks: as in the kernel's name. Floats of 2 and 4 ranks are never divided (scale_of()).
template <int kRanks, class E, int kBytes>
__device__ __forceinline__ void apply(const Scale& scale, Elements<E, kBytes>& sums) {
  const auto number = number_of<typename E::Wide>(scale);
  if (kIsFloat<typename E::Wide> && (kRanks == 2 || kRanks == 4 || !scale.divides)) {
#pragma unroll
    for (auto& sum : sums.at) sum = scale.applies ? sum * number : sum;
  } else if (scale.applies) {
    sums = scaled_rarely(sums, number, scale.divides ? 1u : 0u);
  }
}

/// A rank's packet, each element times the rank's factor (kWeightedSum) and rounded.
template <class E, int kBytes>
static __device__ __noinline__ Packet<kBytes> weighted(Packet<kBytes> packet, typename E::Stored factor) {
  Packet<kBytes> factors{};
#pragma unroll
  for (int i = 0; i < kBytes / static_cast<int>(sizeof factor); ++i) set(factors, i, factor);
  Elements<E, kBytes> product(packet);
  device::combine_into<ReduceOp::prod>(product, Elements<E, kBytes>(factors));
  return product.rounded();
}

/// Combines the packets of ranks 0 to `size` - 1 in this order, and rounds once. packet_of(r): that of rank r. `scale`: the
/// call's. kOps and kRanks: as in the kernel's name.
template <class E, Ops kOps, int kBytes, int kRanks, class PacketOf>
__device__ __forceinline__ Packet<kBytes> reduce(int size, const Scale& scale, const PacketOf& packet_of) {
  if constexpr (kOps == Ops::sum) {
    return device::reduce<E, ReduceOp::sum, kBytes, kRanks>(
        size, packet_of, [&](Elements<E, kBytes>& sums) { apply<kRanks>(scale, sums); });
  } else {
    // One decision for all ranks, not one for each: 64 MB of i32 between 2 H100s take 225 and 250 us.
    switch (static_cast<ReduceOp>(scale.op)) {
      case ReduceOp::prod:
        return device::accumulate<E, ReduceOp::prod, kBytes, kRanks>(size, packet_of).rounded();
      case ReduceOp::min:
        return device::accumulate<E, ReduceOp::min, kBytes, kRanks>(size, packet_of).rounded();
      case ReduceOp::max:
        return device::accumulate<E, ReduceOp::max, kBytes, kRanks>(size, packet_of).rounded();
      default: {  // kWeightedSum, which kernel_op() numbers after max
        const auto* const factors = reinterpret_cast<const typename E::Stored*>(scale.number);
        const auto product_of = [&](int r) { return weighted<E>(packet_of(r), factors[r]); };
        return device::accumulate<E, ReduceOp::sum, kBytes, kRanks>(size, product_of).rounded();
      }
    }
  }
}

}  // namespace onehop::cuda
