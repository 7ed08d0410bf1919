// SPDX-License-Identifier: Apache-2.0
// Source of the kernels. Every reduce_<isa>.cc includes this file once. Compiled with the flags of its
// instruction set, it defines that set's table, onehop::host::<isa>::kKernels.
//
// Rule for this file: nothing but the table has external linkage. Inline functions of other headers are
// allowed only if they are always inlined (intrinsics). Otherwise an out-of-line copy of a standard library
// function would be one of several definitions, of which the linker keeps any one. Start-up code on an older
// CPU might then call the copy compiled for AVX-512. Hence the anonymous namespace and __builtin_memcpy.
//
// Uses the compiler's vector extensions, which GCC and Clang share. Arithmetic has the same meaning on every
// instruction set and each operation is rounded separately, so all tables return the same bits.
#include <cstddef>
#include <cstdint>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include "backend/host/kernel_table.h"

namespace onehop::host::ONEHOP_ISA {
namespace {

#if defined(__AVX512F__)
constexpr int kVectorBytes = 64;
#elif defined(__AVX2__)
constexpr int kVectorBytes = 32;
#else
constexpr int kVectorBytes = 16;
#endif

#define ONEHOP_INLINE [[gnu::always_inline]] inline

template <class T, int kLanes>
struct VectorOf {
  using type __attribute__((vector_size(sizeof(T) * kLanes))) = T;
};
template <class T, int kLanes>
using Vec = typename VectorOf<T, kLanes>::type;

template <class T>
constexpr bool kIsFloat = static_cast<T>(0.5) != T{};

constexpr int kFloatLanes = kVectorBytes / 4;
using F32 = Vec<float, kFloatLanes>;
using I32 = Vec<std::int32_t, kFloatLanes>;
using U16 = Vec<std::uint16_t, kFloatLanes>;
using U8 = Vec<std::uint8_t, kFloatLanes>;

template <class To, class From>
ONEHOP_INLINE To bits_as(From from) {
  return __builtin_bit_cast(To, from);
}

ONEHOP_INLINE F32 f32_from_bits(I32 bits) {
  return bits_as<F32>(bits);
}
ONEHOP_INLINE I32 bits_of(F32 x) {
  return bits_as<I32>(x);
}

constexpr std::int32_t kSign = INT32_MIN;
constexpr std::int32_t kInfinity = 0x7f800000;

/// Replaces any NaN in x by the one quiet NaN. Instruction sets differ in which operand's payload survives,
/// and in the sign of a new NaN. The result also depends on the order in which the compiler puts operands.
ONEHOP_INLINE F32 one_nan(F32 x, std::int32_t nan = 0x7fc00000) {
  return x == x ? x : f32_from_bits(I32{} + nan);
}
ONEHOP_INLINE Vec<double, kVectorBytes / 8> one_nan(Vec<double, kVectorBytes / 8> x) {
  return x == x ? x : Vec<double, kVectorBytes / 8>{} + __builtin_nan("");
}

// ---- Conversions -----------------------------------------------------------------------------------------

// Replacements for those forms of __builtin_convertvector that GCC 12 splits into lanes although one
// instruction suffices.
#if defined(__AVX512F__)
constexpr __mmask16 kAll = 0xffff;  // the unmasked intrinsics draw a false warning from GCC 12 (PR 105593)
ONEHOP_INLINE I32 widen(U16 x) {
  return bits_as<I32>(_mm512_maskz_cvtepu16_epi32(kAll, bits_as<__m256i>(x)));
}
ONEHOP_INLINE I32 widen(U8 x) {
  return bits_as<I32>(_mm512_maskz_cvtepu8_epi32(kAll, bits_as<__m128i>(x)));
}
ONEHOP_INLINE U16 widen16(U8 x) {
  return bits_as<U16>(_mm256_cvtepu8_epi16(bits_as<__m128i>(x)));
}
ONEHOP_INLINE U16 narrow16(I32 x) {
  return bits_as<U16>(_mm512_maskz_cvtepi32_epi16(kAll, bits_as<__m512i>(x)));
}
ONEHOP_INLINE U8 narrow8(I32 x) {
  return bits_as<U8>(_mm512_maskz_cvtepi32_epi8(kAll, bits_as<__m512i>(x)));
}
#elif defined(__AVX2__)
ONEHOP_INLINE I32 widen(U16 x) {
  return bits_as<I32>(_mm256_cvtepu16_epi32(bits_as<__m128i>(x)));
}
ONEHOP_INLINE I32 widen(U8 x) {
  return bits_as<I32>(_mm256_cvtepu8_epi32(_mm_cvtsi64_si128(bits_as<long long>(x))));
}
ONEHOP_INLINE U16 widen16(U8 x) {
  return bits_as<U16>(_mm_cvtepu8_epi16(_mm_cvtsi64_si128(bits_as<long long>(x))));
}
ONEHOP_INLINE __m128i pack(I32 x) {
  const auto wide = bits_as<__m256i>(x);
  return _mm_packus_epi32(_mm256_castsi256_si128(wide), _mm256_extracti128_si256(wide, 1));
}
ONEHOP_INLINE U16 narrow16(I32 x) {
  return bits_as<U16>(pack(x));
}
ONEHOP_INLINE U8 narrow8(I32 x) {
  return bits_as<U8>(_mm_cvtsi128_si64(_mm_packus_epi16(pack(x), _mm_setzero_si128())));
}
#elif defined(__aarch64__)
ONEHOP_INLINE I32 widen(U16 x) {
  return bits_as<I32>(vmovl_u16(bits_as<uint16x4_t>(x)));
}
ONEHOP_INLINE U16 widen16(U8 x) {
  const auto bytes = vreinterpret_u8_u32(vdup_n_u32(bits_as<std::uint32_t>(x)));
  return bits_as<U16>(vget_low_u16(vmovl_u8(bytes)));
}
ONEHOP_INLINE I32 widen(U8 x) {
  return widen(widen16(x));
}
ONEHOP_INLINE U16 narrow16(I32 x) {
  return bits_as<U16>(vmovn_u32(bits_as<uint32x4_t>(x)));
}
ONEHOP_INLINE U8 narrow8(I32 x) {
  const auto half = bits_as<uint16x4_t>(narrow16(x));
  return bits_as<U8>(vget_lane_u32(vreinterpret_u32_u8(vmovn_u16(vcombine_u16(half, half))), 0));
}
#else
ONEHOP_INLINE I32 widen(U16 x) {
  return __builtin_convertvector(x, I32);
}
ONEHOP_INLINE I32 widen(U8 x) {
  return __builtin_convertvector(x, I32);
}
ONEHOP_INLINE U16 widen16(U8 x) {
  return __builtin_convertvector(x, U16);
}
ONEHOP_INLINE U16 narrow16(I32 x) {
  return __builtin_convertvector(x, U16);
}
ONEHOP_INLINE U8 narrow8(I32 x) {
  return __builtin_convertvector(x, U8);
}
#endif

ONEHOP_INLINE F32 decode_f16(U16 half) {
#if defined(__AVX512F__)
  // maskz with all lanes enabled is the plain instruction; GCC 12 gives a false warning for the plain
  // intrinsic (PR 105593).
  return bits_as<F32>(_mm512_maskz_cvtph_ps(kAll, bits_as<__m256i>(half)));
#elif defined(__F16C__)
  return bits_as<F32>(_mm256_cvtph_ps(bits_as<__m128i>(half)));
#elif defined(__aarch64__)
  return bits_as<F32>(vcvt_f32_f16(bits_as<float16x4_t>(half)));
#else
  const I32 wide = widen(half);
  const I32 magnitude = (wide & 0x7fff) << 13;
  const I32 exponent = magnitude & kInfinity;
  // Exponent bias 15 becomes 127, and the all-ones exponent stays all ones.
  const I32 normal = magnitude + (exponent == 0x7c00 << 13 ? I32{} + (224 << 23) : I32{} + (112 << 23));
  // 2^-14 * 1.m minus 2^-14 is exactly the subnormal 2^-14 * 0.m.
  const F32 subnormal = f32_from_bits(magnitude + (113 << 23)) - 0x1p-14f;
  const I32 result = exponent == 0 ? bits_of(subnormal) : normal;
  return f32_from_bits(result | ((wide & 0x8000) << 16));
#endif
}

/// The bits of x in a format with 1 sign bit, an exponent of at most 8 bits with bias kBias, and kMantissa
/// fraction bits. Rounds once, to nearest even. `sign_shift` moves the sign from bit 31 to its place.
/// Magnitudes above `largest` (the bits of a float) are clamped to `largest`. NaN becomes `nan`.
template <int kMantissa, int kBias>
ONEHOP_INLINE I32 encode_small(F32 x, std::int32_t largest, std::int32_t nan, int sign_shift) {
  const I32 bits = bits_of(x);
  const I32 exact = bits & ~kSign;
  const I32 magnitude = exact > largest ? I32{} + largest : exact;
  constexpr int kDropped = 23 - kMantissa;
  constexpr std::int32_t kRebias = (127 - kBias) << 23;
  const I32 odd = (magnitude >> kDropped) & 1;
  const I32 normal = (magnitude + odd + ((1 << (kDropped - 1)) - 1 - kRebias)) >> kDropped;
  // One unit in the last place of kAlign is the format's smallest subnormal, so adding kAlign rounds to
  // subnormals.
  constexpr std::int32_t kAlign = kRebias + ((kDropped + 1) << 23);
  const I32 subnormal = bits_of(f32_from_bits(magnitude) + f32_from_bits(I32{} + kAlign)) - kAlign;
  const I32 number = magnitude < kRebias + (1 << 23) ? subnormal : normal;
  const I32 sign = (bits >> sign_shift) & static_cast<std::int32_t>(0x80000000u >> sign_shift);
  return exact > kInfinity ? I32{} + nan : number | sign;
}

/// A type that is its own accumulator.
template <class T>
struct Native {
  using Stored = T;
  using Accumulator = T;
  static constexpr int kLanes = kVectorBytes / static_cast<int>(sizeof(T));
  using Packed = Vec<T, kLanes>;
  ONEHOP_INLINE static Packed decode(Packed x) { return x; }
  ONEHOP_INLINE static Packed encode(Packed x) {
    if constexpr (kIsFloat<T>) {
      return one_nan(x);
    } else {
      return x;
    }
  }
};

/// Common parts of the formats that are accumulated in f32.
template <class T>
struct Narrow {
  using Stored = T;
  using Accumulator = float;
  static constexpr int kLanes = kFloatLanes;
  using Packed = Vec<T, kLanes>;
};

struct F16 : Narrow<std::uint16_t> {
  static constexpr std::int32_t kNan = 0x7fffffff;  // the conversion truncates it to 0x7fff
  ONEHOP_INLINE static F32 decode(U16 x) { return decode_f16(x); }
  ONEHOP_INLINE static U16 encode(F32 x) {
#if defined(__AVX512F__)
    return bits_as<U16>(
        _mm512_maskz_cvtps_ph(kAll, bits_as<__m512>(one_nan(x, kNan)), _MM_FROUND_TO_NEAREST_INT));
#elif defined(__F16C__)
    return bits_as<U16>(_mm256_cvtps_ph(bits_as<__m256>(one_nan(x, kNan)), _MM_FROUND_TO_NEAREST_INT));
#elif defined(__aarch64__)
    return bits_as<U16>(vcvt_f16_f32(bits_as<float32x4_t>(one_nan(x, kNan))));
#else
    constexpr std::int32_t kOverflow = 0x47800000;  // 2^16, which encodes as infinity
    return narrow16(encode_small<10, 15>(x, kOverflow, 0x7fff, 16));
#endif
  }
};

struct BF16 : Narrow<std::uint16_t> {
  ONEHOP_INLINE static F32 decode(U16 x) { return f32_from_bits(widen(x) << 16); }
  static constexpr std::int32_t kNan = 0x7fff0000;  // the rounding does not change it
  // Does not use AVX512_BF16's instruction, which flushes subnormals to zero.
  ONEHOP_INLINE static U16 encode(F32 x) {
    using U32 = Vec<std::uint32_t, kFloatLanes>;
    const U32 bits = bits_as<U32>(one_nan(x, kNan));
    return narrow16(bits_as<I32>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16));
  }
};

struct E4M3 : Narrow<std::uint8_t> {
  ONEHOP_INLINE static F32 decode(U8 x) {
    const U16 wide = widen16(x);
    // As an f16 of the same significand and exponent field the value is 2^8 too small: the biases are 15
    // and 7.
    const F32 number = decode_f16(((wide & 0x80) << 8) | ((wide & 0x7f) << 7)) * 256.0f;
    return (widen(x) & 0x7f) == 0x7f ? F32{} + __builtin_nanf("") : number;
  }
  ONEHOP_INLINE static U8 encode(F32 x) {
    constexpr std::int32_t k448 = 0x43e00000;
    return narrow8(encode_small<3, 7>(x, k448, 0x7f, 24));
  }
};

struct E5M2 : Narrow<std::uint8_t> {
  // The value is the upper byte of an f16.
  ONEHOP_INLINE static F32 decode(U8 x) { return decode_f16(widen16(x) << 8); }
  ONEHOP_INLINE static U8 encode(F32 x) {
    constexpr std::int32_t kOverflow = 0x47800000;  // 2^16, which encodes as infinity
    return narrow8(encode_small<2, 15>(x, kOverflow, 0x7f, 24));
  }
};

// ---- Operations ------------------------------------------------------------------------------------------

enum class Op { sum, prod, min, max, scaled };  // numbered as in kernel_op()

template <std::size_t kBytes>
struct UnsignedOf;
template <>
struct UnsignedOf<1> {
  using type = std::uint8_t;
};
template <>
struct UnsignedOf<4> {
  using type = std::uint32_t;
};
template <>
struct UnsignedOf<8> {
  using type = std::uint64_t;
};

template <Op kOp, class C>
struct Combine {
  using T = typename C::Accumulator;
  using V = Vec<T, C::kLanes>;
  using U = Vec<typename UnsignedOf<sizeof(T)>::type, C::kLanes>;

  static constexpr bool kFloatOrder = kIsFloat<T> && (kOp == Op::min || kOp == Op::max);

  /// Transforms a source for `apply`: the maximum of floats is the negated minimum of the negated values.
  ONEHOP_INLINE static V take(V x) {
    if constexpr (kFloatOrder && kOp == Op::max) {
      return -x;
    } else {
      return x;
    }
  }

  ONEHOP_INLINE static V apply(V a, V b) {
    if constexpr (kFloatOrder) {
      // The two selections differ only where neither operand is less. For a pair of zeros the OR is -0 if
      // either operand is. If an operand is NaN, the OR is NaN too. Each selection is one instruction on x86.
      const V lesser_or_b = a < b ? a : b;
      const V lesser_or_a = b < a ? b : a;
      return bits_as<V>(bits_as<U>(lesser_or_b) | bits_as<U>(lesser_or_a));
    } else if constexpr (kOp == Op::min) {
      return a < b ? a : b;
    } else if constexpr (kOp == Op::max) {
      return a > b ? a : b;
    } else if constexpr (kIsFloat<T>) {
      return kOp == Op::prod ? a * b : a + b;
    } else {  // unsigned, so that overflow wraps
      return bits_as<V>(kOp == Op::prod ? bits_as<U>(a) * bits_as<U>(b) : bits_as<U>(a) + bits_as<U>(b));
    }
  }

  ONEHOP_INLINE static V finish(V acc, int n, Scale scale) {
    if constexpr (kOp != Op::scaled) {
      return take(acc);
    } else {
      // Divides by n, which equals scale.number but may be a compile-time constant.
      if (scale.divides) return acc / static_cast<T>(n);
      const auto number = static_cast<typename UnsignedOf<sizeof(T)>::type>(scale.number);
      if constexpr (kIsFloat<T>) {
        return acc * bits_as<T>(number);
      } else {  // unsigned, as above
        return bits_as<V>(bits_as<U>(acc) * number);
      }
    }
  }
};

// ---- Loops -----------------------------------------------------------------------------------------------

using Bytes = unsigned char;

template <class V>
ONEHOP_INLINE V load(const void* from) {
  V v;
  __builtin_memcpy(&v, from, sizeof v);
  return v;
}
template <class V>
ONEHOP_INLINE void store(void* to, V v) {
  __builtin_memcpy(to, &v, sizeof v);
}

/// An operand of a reduction: the vector at byte `at` of a source.
template <class C, Op kOp>
ONEHOP_INLINE auto fetch(const void* src, std::size_t at) {
  using Packed = typename C::Packed;
  return Combine<kOp, C>::take(C::decode(load<Packed>(static_cast<const Bytes*>(src) + at)));
}

/// Reduces kVectors vectors of every source, starting at byte `at`. Loads all of them before storing any,
/// because the outputs may be sources.
template <class C, Op kOp, int kVectors>
ONEHOP_INLINE void reduce_tile(Bytes* dst, Bytes* dst2, const void* const* src, int n, std::size_t at,
                               Scale scale) {
  using Step = Combine<kOp, C>;
  constexpr std::size_t kStride = sizeof(typename C::Packed);
  typename Step::V acc[kVectors];
  for (std::size_t v = 0; v < kVectors; ++v) acc[v] = fetch<C, kOp>(src[0], at + v * kStride);
  for (int k = 1; k < n; ++k) {
    const void* from = src[k];
    for (std::size_t v = 0; v < kVectors; ++v) {
      acc[v] = Step::apply(acc[v], fetch<C, kOp>(from, at + v * kStride));
    }
  }
  for (std::size_t v = 0; v < kVectors; ++v) {
    const auto result = C::encode(Step::finish(acc[v], n, scale));
    store(dst + at + v * kStride, result);
    if (dst2 != nullptr) store(dst2 + at + v * kStride, result);
  }
}

/// Reduces the last `bytes` of every source, less than a vector, through a padded copy.
template <class C, Op kOp>
ONEHOP_INLINE void reduce_rest(Bytes* dst, Bytes* dst2, const void* const* src, int n, std::size_t at,
                               std::size_t bytes, Scale scale) {
  using Step = Combine<kOp, C>;
  typename C::Packed padded{};
  __builtin_memcpy(&padded, static_cast<const Bytes*>(src[0]) + at, bytes);
  typename Step::V acc = fetch<C, kOp>(&padded, 0);
  for (int k = 1; k < n; ++k) {
    __builtin_memcpy(&padded, static_cast<const Bytes*>(src[k]) + at, bytes);
    acc = Step::apply(acc, fetch<C, kOp>(&padded, 0));
  }
  const auto result = C::encode(Step::finish(acc, n, scale));
  __builtin_memcpy(dst + at, &result, bytes);
  if (dst2 != nullptr) __builtin_memcpy(dst2 + at, &result, bytes);
}

template <class C, Op kOp>
ONEHOP_INLINE void reduce_all(Bytes* dst, Bytes* dst2, const void* const* src, int n, std::size_t bytes,
                              Scale scale) {
  constexpr std::size_t kVector = sizeof(typename C::Packed);
  constexpr int kUnroll = 4;
  std::size_t at = 0;
  for (; bytes - at >= kUnroll * kVector; at += kUnroll * kVector) {
    reduce_tile<C, kOp, kUnroll>(dst, dst2, src, n, at, scale);
  }
  for (; bytes - at >= kVector; at += kVector) reduce_tile<C, kOp, 1>(dst, dst2, src, n, at, scale);
  if (at < bytes) reduce_rest<C, kOp>(dst, dst2, src, n, at, bytes - at, scale);
}

/// dst2 may be null.
template <class C, Op kOp>
void reduce_two(void* dst, void* dst2, const void* const* src, int n, std::size_t count, Scale scale) {
  auto* to = static_cast<Bytes*>(dst);
  auto* to2 = static_cast<Bytes*>(dst2);
  const std::size_t bytes = count * sizeof(typename C::Stored);
  if (n == 2) {  // the commonest, and where overhead shows: with n and the pointers known the loop over
                 // sources unrolls
    const void* const pair[] = {src[0], src[1]};
    reduce_all<C, kOp>(to, to2, pair, 2, bytes, scale);
  } else {
    reduce_all<C, kOp>(to, to2, src, n, bytes, scale);
  }
}

template <class C, Op kOp>
void reduce_one(void* dst, const void* const* src, int n, std::size_t count, Scale scale) {
  reduce_two<C, kOp>(dst, nullptr, src, n, count, scale);
}

/// A copy is the sum of one source.
void copy_vectors(void* dst, const void* src, std::size_t bytes) {
  // Stores that cross cache lines are slower, loads hardly.
  constexpr std::size_t kLine = 64;
  const std::size_t ahead = (kLine - reinterpret_cast<std::uintptr_t>(dst) % kLine) % kLine;
  const std::size_t head = ahead < bytes ? ahead : bytes;
  __builtin_memcpy(dst, src, head);
  const void* const rest[] = {static_cast<const Bytes*>(src) + head};
  reduce_all<Native<std::uint8_t>, Op::sum>(static_cast<Bytes*>(dst) + head, nullptr, rest, 1, bytes - head,
                                            {});
}

template <class C>
void decode_all(float* dst, const void* src, std::size_t count) {
  using Packed = typename C::Packed;
  for (std::size_t i = 0; i < count; i += kFloatLanes) {
    const std::size_t lanes = count - i < kFloatLanes ? count - i : kFloatLanes;
    Packed packed{};
    __builtin_memcpy(&packed, static_cast<const typename C::Stored*>(src) + i,
                     lanes * sizeof(typename C::Stored));
    const F32 floats = C::decode(packed);
    __builtin_memcpy(dst + i, &floats, lanes * sizeof(float));
  }
}

template <class C>
void encode_all(void* dst, const float* src, std::size_t count) {
  for (std::size_t i = 0; i < count; i += kFloatLanes) {
    const std::size_t lanes = count - i < kFloatLanes ? count - i : kFloatLanes;
    F32 floats{};
    __builtin_memcpy(&floats, src + i, lanes * sizeof(float));
    const typename C::Packed packed = C::encode(floats);
    __builtin_memcpy(static_cast<typename C::Stored*>(dst) + i, &packed, lanes * sizeof(typename C::Stored));
  }
}

template <class C, Op kOp>
constexpr ReduceKernel kReduce = {reduce_one<C, kOp>, reduce_two<C, kOp>};

template <class C>
constexpr ConvertKernel kConvert = {decode_all<C>, encode_all<C>};
template <class T>
constexpr ConvertKernel kConvert<Native<T>> = {};

template <class C>
constexpr TypeKernels kOf = {{kReduce<C, Op::sum>, kReduce<C, Op::prod>, kReduce<C, Op::min>,
                              kReduce<C, Op::max>, kReduce<C, Op::scaled>},
                             kConvert<C>};

// In the order of DType, whose numbers are part of the C API.
constexpr TypeKernels kTypes[] = {
    kOf<F16>,
    kOf<BF16>,
    kOf<Native<float>>,
    kOf<Native<double>>,
    kOf<E4M3>,
    kOf<E5M2>,
    kOf<Native<std::int8_t>>,
    kOf<Native<std::uint8_t>>,
    kOf<Native<std::int32_t>>,
    kOf<Native<std::uint32_t>>,
    kOf<Native<std::int64_t>>,
    kOf<Native<std::uint64_t>>,
};

}  // namespace

constexpr KernelTable kKernels = {copy_vectors, kTypes, sizeof(kTypes) / sizeof(kTypes[0])};

}  // namespace onehop::host::ONEHOP_ISA
