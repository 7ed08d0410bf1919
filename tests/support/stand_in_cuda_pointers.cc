// SPDX-License-Identifier: Apache-2.0
// A libcuda.so.1 that a program loads by itself. It has one allocation of GPU memory, where the test has put it.
#include <cstdint>

#define ONEHOP_EXPORT __attribute__((visibility("default")))

// NOLINTBEGIN(readability-identifier-naming): the names are the library's.
extern "C" {

ONEHOP_EXPORT const char* onehop_stand_in_begin = nullptr;
ONEHOP_EXPORT const char* onehop_stand_in_end = nullptr;

ONEHOP_EXPORT int cuPointerGetAttribute(unsigned* value, int attribute, unsigned long long pointer) {
  if (pointer < reinterpret_cast<std::uintptr_t>(onehop_stand_in_begin) ||
      pointer >= reinterpret_cast<std::uintptr_t>(onehop_stand_in_end))
    return 1;                       // CUDA_ERROR_INVALID_VALUE
  *value = attribute == 2 ? 2 : 0;  // CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_MEMORYTYPE_DEVICE
  return 0;
}
}
// NOLINTEND(readability-identifier-naming)
