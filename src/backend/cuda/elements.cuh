// SPDX-License-Identifier: Apache-2.0
// Reductions of elements on the device, and the scaling of sums. They give the same bits as the host code
// (backend/host/reduce_kernels.h, base/numeric.h).
#pragma once

#include <cstdint>

#include "onehop/device/element.cuh"

#include "call/scale.h"

namespace onehop::cuda {

namespace element = device::element;
using device::is_nan;
using device::kIsFloat;

/// Numbered like ReduceOp. weighted_sum: kWeightedSum as kernel_op() numbers it.
enum class Op { sum, prod, min, max, weighted_sum };

/// The reductions of a kernel. Sums, by far the most common, have kernels of their own; a kernel of the others is told
/// which one it computes.
enum class Ops { sum, other };

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

template <Op kOp, class T>
__device__ __forceinline__ T combine(T a, T b) {
  if constexpr (kOp == Op::min) {
    return lesser(a, b);
  } else if constexpr (kOp == Op::max) {
    return greater(a, b);
  } else if constexpr (kIsFloat<T>) {
    return kOp == Op::prod ? a * b : a + b;
  } else {  // unsigned, so that overflow wraps
    using U = typename UnsignedOf<T>::type;
    const U x = static_cast<U>(a);
    const U y = static_cast<U>(b);
    return static_cast<T>(kOp == Op::prod ? x * y : x + y);
  }
}

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
static __device__ __noinline__ device::Elements<E, kBytes> scaled_rarely(device::Elements<E, kBytes> sums,
                                                                         typename E::Wide number,
                                                                         unsigned divides) {
#pragma unroll
  for (auto& sum : sums.at)
    sum = divides != 0 ? static_cast<typename E::Wide>(sum / number) : combine<Op::prod>(sum, number);
  return sums;
}

/// kRanks: as in the kernel's name. Floats of 2 and 4 ranks are never divided (scale_of()).
template <int kRanks, class E, int kBytes>
__device__ __forceinline__ void apply(const Scale& scale, device::Elements<E, kBytes>& sums) {
  const auto number = number_of<typename E::Wide>(scale);
  if (kIsFloat<typename E::Wide> && (kRanks == 2 || kRanks == 4 || !scale.divides)) {
#pragma unroll
    for (auto& sum : sums.at) sum = scale.applies ? sum * number : sum;
  } else if (scale.applies) {
    sums = scaled_rarely(sums, number, scale.divides ? 1u : 0u);
  }
}

}  // namespace onehop::cuda
