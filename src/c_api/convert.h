// SPDX-License-Identifier: Apache-2.0
// Checks numbers from C callers before they become enumerators.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "onehop/c_api.h"
#include "onehop/types.h"

#include "base/check.h"
#include "c_api/guard.h"

namespace onehop::c_api {

/// Used by calls that this rank refuses before any other rank takes part.
inline DType to_dtype(onehop_dtype_t dtype) {
  require(dtype >= 0 && dtype < kDTypeCount, "element type {} is not one of ONEHOP_DTYPE_* (0 to {})", dtype,
          kDTypeCount - 1);
  return static_cast<DType>(dtype);
}

inline ReduceOp to_op(onehop_op_t op) {
  require(op >= 0 && op < kReduceOpCount, "reduction {} is not one of ONEHOP_OP_* (0 to {})", op,
          kReduceOpCount - 1);
  return static_cast<ReduceOp>(op);
}

// Used by calls that the other ranks make too, and which must fail on all of them. A number that is no
// enumerator becomes a value that the call itself rejects.
inline constexpr int kNoEnumerator = 0xff;

inline DType as_dtype(onehop_dtype_t dtype) {
  return static_cast<DType>(dtype >= 0 && dtype < kDTypeCount ? static_cast<int>(dtype) : kNoEnumerator);
}

inline ReduceOp as_op(onehop_op_t op) {
  return static_cast<ReduceOp>(op >= 0 && op < kReduceOpCount ? static_cast<int>(op) : kNoEnumerator);
}

/// The name of a number that may be no enumerator. Every name is a literal, so it ends with a NUL.
template <class Enum>
const char* name_of(int number, Enum last) {
  return number >= 0 && number <= static_cast<int>(last) ? to_string(static_cast<Enum>(number)).data()
                                                         : "unknown";
}

/// Used by calls that concern no other rank.
template <class Enum>
Enum to_enumerator(int number, Enum last, std::string_view name) {
  require(number >= 0 && number <= static_cast<int>(last), "{} {} is not within 0 to {}", name, number,
          static_cast<int>(last));
  return static_cast<Enum>(number);
}

inline std::vector<DeviceId> to_devices(const int* devices, std::size_t count) {
  require_array(devices, count, "devices", "count");
  std::vector<DeviceId> out;
  for (std::size_t i = 0; i < count; ++i) out.emplace_back(devices[i]);
  return out;
}

/// Entry `index` of a list that a handle holds.
template <class T>
const T& entry(const std::vector<T>& all, std::size_t index, std::string_view what) {
  require(index < all.size(), "{} {} does not exist: there are {}", what, index, all.size());
  return all[index];
}

inline Duration as_timeout(std::int64_t milliseconds, Duration fallback) {
  return milliseconds == ONEHOP_TIMEOUT_DEFAULT ? fallback : Duration{milliseconds};
}

}  // namespace onehop::c_api
