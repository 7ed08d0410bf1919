// SPDX-License-Identifier: Apache-2.0
// Reductions over ranks in kernels: packets of all ranks are accumulated in rank order, may be changed by an epilogue, and
// are rounded once. So every rank gets the same bits, those of the library's collectives, whose kernels use this header.
//
//   using Format = onehop::device::element::bf16;
//   onehop::device::Packet<16> packets[8];  // of all ranks, such as from channel.cuh
//   const auto sum = onehop::device::reduce<Format, onehop::ReduceOp::sum, 16, 8>(
//       ranks, [&](int r) { return packets[r]; },
//       [&](auto& sums) {  // the epilogue
//         for (float& each : sums.at) each *= scale;
//       });
//
// An epilogue is fused work that needs the result before it is rounded: scaling, a residual, an activation. All ranks must
// do the same where they need the same bits.
//
// These functions work on registers of the calling thread; only load_ahead calls what loads and stores.
#pragma once

#include <cstdint>

#include "onehop/device/element.cuh"
#include "onehop/types.h"

namespace onehop::device {

/// Orders -0 before +0 and propagates NaN.
__device__ __forceinline__ float lesser(float a, float b) {
  float result;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
}
__device__ __forceinline__ float greater(float a, float b) {
  float result;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
}
__device__ __forceinline__ double lesser(double a, double b) {
  if (is_nan(a) || is_nan(b)) return __longlong_as_double(0x7ff8000000000000);
  if (a == b) return __longlong_as_double(__double_as_longlong(a) | __double_as_longlong(b));
  return a < b ? a : b;
}
__device__ __forceinline__ double greater(double a, double b) {
  if (is_nan(a) || is_nan(b)) return __longlong_as_double(0x7ff8000000000000);
  if (a == b) return __longlong_as_double(__double_as_longlong(a) & __double_as_longlong(b));
  return a > b ? a : b;
}
template <class T>
__device__ __forceinline__ T lesser(T a, T b) {
  return a < b ? a : b;
}
template <class T>
__device__ __forceinline__ T greater(T a, T b) {
  return a > b ? a : b;
}

namespace detail {

template <class T>
struct UnsignedOf {
  using type = std::uint32_t;
};
template <>
struct UnsignedOf<std::int64_t> {
  using type = std::uint64_t;
};
template <>
struct UnsignedOf<std::uint64_t> {
  using type = std::uint64_t;
};

}  // namespace detail

/// sum, prod, min or max of two elements. Integers wrap.
template <ReduceOp kOp, class T>
__device__ __forceinline__ T combine(T a, T b) {
  if constexpr (kOp == ReduceOp::min) {
    return lesser(a, b);
  } else if constexpr (kOp == ReduceOp::max) {
    return greater(a, b);
  } else if constexpr (kIsFloat<T>) {
    return kOp == ReduceOp::prod ? a * b : a + b;
  } else {  // unsigned, so that overflow wraps
    using U = typename detail::UnsignedOf<T>::type;
    const U x = static_cast<U>(a);
    const U y = static_cast<U>(b);
    return static_cast<T>(kOp == ReduceOp::prod ? x * y : x + y);
  }
}

/// The same for all elements of two packets. The result is in `total`.
template <ReduceOp kOp, class E, int kBytes>
__device__ __forceinline__ void combine_into(Elements<E, kBytes>& total, const Elements<E, kBytes>& others) {
#pragma unroll
  for (int i = 0; i < Elements<E, kBytes>::kCount; ++i) total.at[i] = combine<kOp>(total.at[i], others.at[i]);
}

/// Combines the packets of ranks 0 to `size` - 1, in this order and in the accumulation type. packet_of(r): that of rank
/// r. kRanks: the number of ranks, whatever `size` says, or kMaxDevices for any number.
template <class E, ReduceOp kOp, int kBytes, int kRanks, class PacketOf>
[[nodiscard]] __device__ __forceinline__ Elements<E, kBytes> accumulate(int size, const PacketOf& packet_of) {
  Elements<E, kBytes> total(packet_of(0));
#pragma unroll
  for (int r = 1; r < kRanks; ++r) {
    if (kRanks < kMaxDevices || r < size) combine_into<kOp>(total, Elements<E, kBytes>(packet_of(r)));
  }
  return total;
}

/// The epilogue that changes nothing.
struct Identity {
  template <class Total>
  __device__ __forceinline__ void operator()(Total& /*total*/) const {}
};

/// The same, rounded once. epilogue(total) gets the result as Elements<E, kBytes>& and may change it before it is rounded.
template <class E, ReduceOp kOp, int kBytes, int kRanks, class PacketOf, class Epilogue = Identity>
[[nodiscard]] __device__ __forceinline__ Packet<kBytes> reduce(int size, const PacketOf& packet_of,
                                                               const Epilogue& epilogue = {}) {
  Elements<E, kBytes> total = accumulate<E, kOp, kBytes, kRanks>(size, packet_of);
  epilogue(total);
  return total.rounded();
}

/// Loads packets of 16 bytes of all ranks ahead of their use. For the positions first, first + stride, ... below `end`, in
/// groups of kAhead: load(r, at, packet) for every r below kRanks, then use(at, packets) with packets[r] of rank r.
/// `load` is also called for ranks that do not exist, if kRanks is kMaxDevices. It may then leave the packet as it is.
/// `end` is a reference, so that a kernel's parameter is read again in each round and occupies no register.
template <int kRanks, int kAhead, class Position, class Load, class Use>
__device__ __forceinline__ void load_ahead(Position first, const Position& end, Position stride,
                                           const Load& load, const Use& use) {
  for (Position at = first; at < end; at += kAhead * stride) {
    Packet<16> packets[kAhead][kRanks];
#pragma unroll
    for (unsigned i = 0; i < kAhead; ++i) {
      const Position here = at + i * stride;
      if (here >= end) continue;
#pragma unroll
      for (int r = 0; r < kRanks; ++r) load(r, here, packets[i][r]);
    }
#pragma unroll
    for (unsigned i = 0; i < kAhead; ++i) {
      const Position here = at + i * stride;
      if (here < end) use(here, packets[i]);
    }
  }
}

}  // namespace onehop::device
