// SPDX-License-Identifier: Apache-2.0
// The part of the DLPack ABI (version 0.x, capsules named "dltensor") that onehop reads and writes.
#pragma once

#include <cstdint>
#include <string>

namespace onehop_python {

enum DLDeviceType : std::int32_t { kDLCPU = 1, kDLCUDA = 2, kDLCUDAHost = 3, kDLCUDAManaged = 13 };

struct DLDevice {
  std::int32_t device_type;
  std::int32_t device_id;
};

enum DLDataTypeCode : std::uint8_t {
  kDLInt = 0,
  kDLUInt = 1,
  kDLFloat = 2,
  kDLBfloat = 4,
  kDLBool = 6,
  kDLFloat8_e4m3fn = 10,
  kDLFloat8_e5m2 = 12,
};

/// The name that frameworks have for a type is made of these parts, with its bits between them: "float8_e4m3fn".
struct DLTypeName {
  DLDataTypeCode code;
  const char* before;
  const char* after = "";
  [[nodiscard]] std::string with(int bits) const { return before + std::to_string(bits) + after; }
};
/// Without kDLBool, whose name has no bits.
inline constexpr DLTypeName kDLTypeNames[] = {
    {kDLInt, "int"},
    {kDLUInt, "uint"},
    {kDLFloat, "float"},
    {kDLBfloat, "bfloat"},
    {kDLFloat8_e4m3fn, "float", "_e4m3fn"},
    {kDLFloat8_e5m2, "float", "_e5m2"},
};

struct DLDataType {
  std::uint8_t code;
  std::uint8_t bits;
  std::uint16_t lanes;
};

struct DLTensor {
  void* data;
  DLDevice device;
  std::int32_t ndim;
  DLDataType dtype;
  std::int64_t* shape;
  std::int64_t* strides;  ///< in elements; may be null: C order
  std::uint64_t byte_offset;
};

struct DLManagedTensor {
  DLTensor dl_tensor;
  void* manager_ctx;
  void (*deleter)(DLManagedTensor* self);
};

}  // namespace onehop_python
