// SPDX-License-Identifier: Apache-2.0
// Element types and reductions on the device. They give the same bits as the host code
// (backend/host/reduce_kernels.h, base/numeric.h). 8- and 16-bit floats are combined in f32 and rounded once.
// widen_pair() and round_pair(): two elements at a time, the first one in the lower half.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

#include "backend/cuda/encode_fp8.h"
#include "call/scale.h"

namespace onehop::cuda {

/// Numbered like ReduceOp. weighted_sum: kWeightedSum as kernel_op() numbers it.
enum class Op { sum, prod, min, max, weighted_sum };

/// The reductions of a kernel. Sums, by far the most common, have kernels of their own; a kernel of the others is told
/// which one it computes.
enum class Ops { sum, other };

inline constexpr std::uint32_t kOneNan32 = 0x7fc00000;

__device__ __forceinline__ bool is_nan(float x) {
  return x != x;
}
__device__ __forceinline__ bool is_nan(double x) {
  return x != x;
}

/// A type that is its own accumulator. Machines differ in which NaN an operation returns, so all NaNs are
/// replaced by one.
template <class T>
struct Native {
  using Stored = T;
  using Wide = T;
  static __device__ __forceinline__ T widen(T x) { return x; }
  static __device__ __forceinline__ T round(T x) { return x; }
};
struct F32 : Native<float> {
  /// A word of this format's usual NaN. Words have 4 bytes, or 8 for elements of 8 bytes (wire/lamport.cuh).
  static constexpr std::uint32_t kNanWord = kOneNan32;
  static __device__ __forceinline__ float round(float x) {
    return is_nan(x) ? __uint_as_float(kOneNan32) : x;
  }
};
struct F64 : Native<double> {
  static constexpr std::uint64_t kNanWord = 0x7ff8000000000000;
  static __device__ __forceinline__ double round(double x) {
    return is_nan(x) ? __longlong_as_double(kNanWord) : x;
  }
};

// Conversions to 16 bits turn every NaN into the one whose magnitude is all ones, 0x7fff.
struct F16 {
  static constexpr std::uint32_t kNanWord = 0x7fff7fff;
  using Stored = std::uint16_t;
  using Wide = float;
  static __device__ __forceinline__ float widen(Stored x) { return __half2float(__ushort_as_half(x)); }
  static __device__ __forceinline__ std::uint32_t round_pair(float low, float high) {
    std::uint32_t word;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    return word;
  }
};

struct BF16 {
  static constexpr std::uint32_t kNanWord = 0x7fff7fff;
  using Stored = std::uint16_t;
  using Wide = float;
  static __device__ __forceinline__ float widen(Stored x) {
    return __uint_as_float(static_cast<std::uint32_t>(x) << 16);
  }
  static __device__ __forceinline__ std::uint32_t round_pair(float low, float high) {
    std::uint32_t word;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    return word;
  }
};

// FP8. GPUs of compute capability 8.9 and later convert two at a time. Elsewhere conversions are out of line, because 16
// of them for each packet would be most of a kernel's code.
struct Fp8 {
  static constexpr std::uint32_t kNanWord = 0x7f7f7f7f;
  using Stored = std::uint8_t;
  using Wide = float;
  static __device__ __forceinline__ float2 widen_halves(std::uint32_t pair) {
    return {F16::widen(static_cast<std::uint16_t>(pair)), F16::widen(static_cast<std::uint16_t>(pair >> 16))};
  }
};

struct E4M3 : Fp8 {
#if __CUDA_ARCH__ >= 890
  static __device__ __forceinline__ float2 widen_pair(std::uint16_t pair) {
    std::uint32_t halves;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(pair));
    return widen_halves(halves);
  }
  static __device__ __forceinline__ std::uint32_t round_pair(float low, float high) {
    std::uint16_t pair;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
    return pair;
  }
#else
  static __device__ __forceinline__ float2 widen_pair(std::uint16_t pair) {
    // As an f16 of the same significand and exponent field a value is 2^8 too small.
    const float2 value = widen_halves((pair & 0x80u) << 8 | (pair & 0x7fu) << 7 | (pair & 0x8000u) << 16 |
                                      (pair & 0x7f00u) << 15);
    return {(pair & 0x7f) == 0x7f ? __uint_as_float(kOneNan32) : value.x * 256.0f,
            (pair & 0x7f00) == 0x7f00 ? __uint_as_float(kOneNan32) : value.y * 256.0f};
  }
  static __device__ __noinline__ std::uint32_t round_pair(float low, float high) {
    return encode_e4m3(low) | encode_e4m3(high) << 8;
  }
#endif
};

struct E5M2 : Fp8 {
  static __device__ __forceinline__ float2 widen_pair(std::uint16_t pair) {
    return widen_halves(__byte_perm(pair, 0, 0x1404));  // values are the upper bytes of an f16
  }
#if __CUDA_ARCH__ >= 890
  static __device__ __forceinline__ std::uint32_t round_pair(float low, float high) {
    std::uint16_t pair;
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
    // Instead of infinity, the instruction gives the largest finite number, the one below in encoding.
    return pair + (overflows(low) ? 1u : 0u) + (overflows(high) ? 0x100u : 0u);
  }
  /// What rounds beyond 57344. False for NaN.
  static __device__ __forceinline__ bool overflows(float x) {
    return fabsf(x) >= 61440.0f;
  }
#else
  static __device__ __noinline__ std::uint32_t round_pair(float low, float high) {
    return encode_e5m2(low) | encode_e5m2(high) << 8;
  }
#endif
};

/// The class of each DType's elements, in that order. src/backend/CMakeLists.txt reads these lines and compiles
/// the kernels of each type as a source of their own.
namespace element {
using f16 = F16;
using bf16 = BF16;
using f32 = F32;
using f64 = F64;
using e4m3 = E4M3;
using e5m2 = E5M2;
using i8 = Native<std::int8_t>;
using u8 = Native<std::uint8_t>;
using i32 = Native<std::int32_t>;
using u32 = Native<std::uint32_t>;
using i64 = Native<std::int64_t>;
using u64 = Native<std::uint64_t>;
}  // namespace element

template <class T>
inline constexpr bool kIsFloat = static_cast<T>(0.5) != T{};

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

template <class T, int kCount>
struct Totals {
  T at[kCount];
};

/// Divides, or multiplies integers. Out of line, because few calls do, and what every call has to skip takes its time.
template <class T, int kCount>
static __device__ __noinline__ Totals<T, kCount> scaled_rarely(Totals<T, kCount> sums, T number,
                                                               unsigned divides) {
#pragma unroll
  for (T& sum : sums.at) sum = divides != 0 ? static_cast<T>(sum / number) : combine<Op::prod>(sum, number);
  return sums;
}

/// kRanks: as in the kernel's name. Floats of 2 and 4 ranks are never divided (scale_of()).
template <int kRanks, class T, int kCount>
__device__ __forceinline__ void apply(const Scale& scale, Totals<T, kCount>& sums) {
  const T number = number_of<T>(scale);
  if (kIsFloat<T> && (kRanks == 2 || kRanks == 4 || !scale.divides)) {
#pragma unroll
    for (T& sum : sums.at) sum = scale.applies ? sum * number : sum;
  } else if (scale.applies) {
    sums = scaled_rarely(sums, number, scale.divides ? 1u : 0u);
  }
}

}  // namespace onehop::cuda
