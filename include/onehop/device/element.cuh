// SPDX-License-Identifier: Apache-2.0
// Elements in kernels: the format of every DType, packets of elements in registers, and their conversion to the type
// in which they are accumulated. The library's kernels use the same formats. All results have the same bits as on the
// host: 8- and 16-bit floats are accumulated in f32 and rounded once.
//
//   using Format = onehop::device::element::e4m3;
//   onehop::device::Elements<Format, 16> elements(packet);     // 16 elements, as floats
//   for (float& each : elements.at) each *= 2;
//   packet = elements.rounded();
//
// widen and narrow do the same for the 16 bytes of a uint4, with C++ types: float, __half and __nv_bfloat16.
//
// All functions work on registers of the calling thread only.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "onehop/device/encode_fp8.h"

namespace onehop::device {

// --- packets ---

/// kBytes (4, 8 or 16) bytes in registers.
template <int kBytes>
struct Packet {
  static constexpr int kWords = kBytes / 4;
  std::uint32_t words[kWords];
};

/// Element i of a packet of T. `i` must be a compile-time constant, so that packets stay in registers.
template <class T, int kBytes>
__device__ __forceinline__ T get(const Packet<kBytes>& packet, int i) {
  if constexpr (sizeof(T) == 8) {
    const std::uint64_t bits = packet.words[2 * i] | static_cast<std::uint64_t>(packet.words[2 * i + 1])
                                                         << 32;
    return reinterpret_cast<const T&>(bits);
  } else if constexpr (sizeof(T) == 4) {
    return reinterpret_cast<const T&>(packet.words[i]);
  } else {
    constexpr int kPerWord = 4 / sizeof(T);
    return static_cast<T>(packet.words[i / kPerWord] >> (i % kPerWord * 8 * sizeof(T)));
  }
}

template <class T, int kBytes>
__device__ __forceinline__ void set(Packet<kBytes>& packet, int i, T value) {
  if constexpr (sizeof(T) == 8) {
    const auto bits = reinterpret_cast<const std::uint64_t&>(value);
    packet.words[2 * i] = static_cast<std::uint32_t>(bits);
    packet.words[2 * i + 1] = static_cast<std::uint32_t>(bits >> 32);
  } else if constexpr (sizeof(T) == 4) {
    packet.words[i] = reinterpret_cast<const std::uint32_t&>(value);
  } else {
    constexpr int kPerWord = 4 / sizeof(T);
    constexpr std::uint32_t kMask = (1u << (8 * sizeof(T))) - 1;
    const int shift = static_cast<int>(i % kPerWord * 8 * sizeof(T));
    std::uint32_t& word = packet.words[i / kPerWord];
    word = (word & ~(kMask << shift)) | ((static_cast<std::uint32_t>(value) & kMask) << shift);
  }
}

// --- formats ---

inline constexpr std::uint32_t kOneNan32 = 0x7fc00000;

__device__ __forceinline__ bool is_nan(float x) {
  return x != x;
}
__device__ __forceinline__ bool is_nan(double x) {
  return x != x;
}

/// A format is a class with these members:
///   Stored                     the type of an element in memory
///   Wide                       the type in which elements are accumulated
///   widen() or widen_pair()    from Stored to Wide
///   round() or round_pair()    from Wide to Stored: to nearest, ties to even
/// widen_pair() and round_pair() take two elements at a time, the first one in the lower half. Elements calls either.
/// kNanWord of a floating-point format: a word of its usual NaN. Words have 4 bytes, or 8 for elements of 8 bytes
/// (wire/lamport.cuh).

/// A type that is its own accumulator. Machines differ in which NaN an operation returns, so rounding replaces all
/// NaNs by one.
template <class T>
struct Native {
  using Stored = T;
  using Wide = T;
  static __device__ __forceinline__ T widen(T x) { return x; }
  static __device__ __forceinline__ T round(T x) { return x; }
};
struct F32 : Native<float> {
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

/// The format of each DType, in that order. src/backend/CMakeLists.txt reads these lines and compiles the library's
/// kernels of each type as a source of their own.
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

// --- conversion ---

/// The elements of a packet, in the accumulation type. kBytes: 8 or 16.
template <class E, int kBytes>
struct Elements {
  using Stored = typename E::Stored;
  using Wide = typename E::Wide;
  static constexpr int kCount = kBytes / static_cast<int>(sizeof(Stored));

  Wide at[kCount];

  __device__ __forceinline__ explicit Elements(const Packet<kBytes>& packet) {
    if constexpr (requires { E::widen_pair(0); }) {
#pragma unroll
      for (int i = 0; i < kCount; i += 2) {
        const float2 pair = E::widen_pair(get<std::uint16_t>(packet, i / 2));
        at[i] = pair.x;
        at[i + 1] = pair.y;
      }
    } else {
#pragma unroll
      for (int i = 0; i < kCount; ++i) at[i] = E::widen(get<Stored>(packet, i));
    }
  }
  [[nodiscard]] __device__ __forceinline__ Packet<kBytes> rounded() const {
    Packet<kBytes> packet{};
    if constexpr (requires { E::round_pair(0.0f, 0.0f); }) {
      constexpr int kPerWord = 4 / static_cast<int>(sizeof(Stored));
#pragma unroll
      for (int i = 0; i < kCount; i += 2) {
        packet.words[i / kPerWord] |= E::round_pair(at[i], at[i + 1]) << i % kPerWord * 8 * sizeof(Stored);
      }
    } else {
#pragma unroll
      for (int i = 0; i < kCount; ++i) set<Stored>(packet, i, E::round(at[i]));
    }
    return packet;
  }
};

namespace detail {

template <class T>
struct FormatOf {
  static_assert(std::is_same_v<T, float>, "elements are float, __half or __nv_bfloat16");
  using type = F32;
};
template <>
struct FormatOf<__half> {
  using type = F16;
};
template <>
struct FormatOf<__nv_bfloat16> {
  using type = BF16;
};

}  // namespace detail

/// The format of a C++ type: float, __half or __nv_bfloat16.
template <class T>
using FormatOf = typename detail::FormatOf<T>::type;

/// Number of elements of T (f32, f16 or bf16) in 16 bytes.
template <class T>
inline constexpr int kPerVector = static_cast<int>(16 / sizeof(T));

__device__ __forceinline__ Packet<16> packet_of(const uint4& vector) {
  return {{vector.x, vector.y, vector.z, vector.w}};
}
__device__ __forceinline__ uint4 vector_of(const Packet<16>& packet) {
  return {packet.words[0], packet.words[1], packet.words[2], packet.words[3]};
}

/// The elements of T in 16 bytes, as floats.
template <class T>
__device__ __forceinline__ void widen(const uint4& vector, float (&elements)[kPerVector<T>]) {
  const Elements<FormatOf<T>, 16> wide(packet_of(vector));
#pragma unroll
  for (int i = 0; i < kPerVector<T>; ++i) elements[i] = wide.at[i];
}

/// Rounds to nearest, ties to even. Floats keep their bits, also those of NaN.
template <class T>
__device__ __forceinline__ uint4 narrow(const float (&elements)[kPerVector<T>]) {
  if constexpr (std::is_same_v<T, float>) {
    return {__float_as_uint(elements[0]), __float_as_uint(elements[1]), __float_as_uint(elements[2]),
            __float_as_uint(elements[3])};
  } else {
    Elements<FormatOf<T>, 16> wide(Packet<16>{});
#pragma unroll
    for (int i = 0; i < kPerVector<T>; ++i) wide.at[i] = elements[i];
    return vector_of(wide.rounded());
  }
}

}  // namespace onehop::device
