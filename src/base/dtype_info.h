// SPDX-License-Identifier: Apache-2.0
// The table of element types, inline, since every call looks into it many times.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>

#include "onehop/types.h"

#include "base/numeric.h"

namespace onehop {

/// The properties of an element type.
struct DTypeInfo {
  DType type;
  std::string_view name;
  std::string_view alias;
  std::size_t bytes;
  std::optional<FloatFormat> format;  ///< of floats
  bool is_signed = false;             ///< of integers
};

/// By number.
inline constexpr std::array<DTypeInfo, kDTypeCount> kDTypes{{
    {DType::f16, "f16", "float16", 2, kF16},
    {DType::bf16, "bf16", "bfloat16", 2, kBF16},
    {DType::f32, "f32", "float32", 4, kF32},
    {DType::f64, "f64", "float64", 8, kF64},
    {DType::e4m3, "e4m3", "float8_e4m3fn", 1, kE4M3},
    {DType::e5m2, "e5m2", "float8_e5m2", 1, kE5M2},
    {DType::i8, "i8", "int8", 1, {}, true},
    {DType::u8, "u8", "uint8", 1, {}},
    {DType::i32, "i32", "int32", 4, {}, true},
    {DType::u32, "u32", "uint32", 4, {}},
    {DType::i64, "i64", "int64", 8, {}, true},
    {DType::u64, "u64", "uint64", 8, {}},
}};

/// Null for numbers that are no type.
[[nodiscard]] constexpr const DTypeInfo* info_of(DType type) {
  const auto index = static_cast<std::size_t>(type);
  return index < kDTypes.size() ? &kDTypes[index] : nullptr;
}

/// Like size_of(), but inline for known types.
[[nodiscard]] inline std::size_t inline_size_of(DType type) {
  const DTypeInfo* const info = info_of(type);
  return info != nullptr ? info->bytes : size_of(type);  // throws
}

}  // namespace onehop
