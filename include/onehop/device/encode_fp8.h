// SPDX-License-Identifier: Apache-2.0
// Conversion to FP8 for GPUs that have no instruction for it (element.cuh). For both compilers, so that tests without a
// GPU reach it.
#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define ONEHOP_HOST_DEVICE __host__ __device__
#else
#define ONEHOP_HOST_DEVICE
#endif

namespace onehop::device {

/// x as an 8-bit float with kMantissa fraction bits and exponent bias kBias, rounded to nearest even. Magnitudes above
/// kLargest (the bits of a float) are clamped to kLargest; NaN becomes 0x7f. As encode_small in
/// backend/host/reduce_kernels.h.
template <int kMantissa, int kBias, std::int32_t kLargest>
[[nodiscard]] ONEHOP_HOST_DEVICE constexpr std::uint32_t encode_fp8(float x) {
  const auto bits = __builtin_bit_cast(std::int32_t, x);
  const std::int32_t exact = bits & 0x7fffffff;
  const std::int32_t magnitude = exact > kLargest ? kLargest : exact;
  constexpr int kDropped = 23 - kMantissa;
  constexpr std::int32_t kRebias = (127 - kBias) << 23;
  const std::int32_t odd = (magnitude >> kDropped) & 1;
  const std::int32_t normal = (magnitude + odd + ((1 << (kDropped - 1)) - 1 - kRebias)) >> kDropped;
  // One unit in the last place of kAlign is the format's smallest subnormal, so adding kAlign rounds to subnormals.
  constexpr std::int32_t kAlign = kRebias + ((kDropped + 1) << 23);
  const std::int32_t subnormal = __builtin_bit_cast(std::int32_t, __builtin_bit_cast(float, magnitude) +
                                                                      __builtin_bit_cast(float, kAlign)) -
                                 kAlign;
  const std::int32_t number = magnitude < kRebias + (1 << 23) ? subnormal : normal;
  return static_cast<std::uint32_t>(exact > 0x7f800000 ? 0x7f : number | ((bits >> 24) & 0x80));
}

/// The format has no infinities: magnitudes beyond 448 become 448.
[[nodiscard]] ONEHOP_HOST_DEVICE constexpr std::uint32_t encode_e4m3(float x) {
  return encode_fp8<3, 7, 0x43e00000>(x);
}
/// 2^16 encodes as infinity, and so does anything that rounds beyond 57344.
[[nodiscard]] ONEHOP_HOST_DEVICE constexpr std::uint32_t encode_e5m2(float x) {
  return encode_fp8<2, 15, 0x47800000>(x);
}

}  // namespace onehop::device

#undef ONEHOP_HOST_DEVICE
