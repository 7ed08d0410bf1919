// SPDX-License-Identifier: Apache-2.0
// Checks whether kernels of a GPU can access memory that a caller passed. An invalid access would destroy the
// context.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "onehop/types.h"

namespace onehop {

enum class PointerError : std::uint8_t {
  none,
  not_gpu_memory,  ///< unknown to CUDA: host memory, or freed
  other_gpu,
  too_short,  ///< its allocation ends before the last byte
};

/// Returns the reason why kernels and copies of `device` cannot access [data, data + bytes); an empty range
/// is checked by its first byte. They can access memory of that GPU, managed memory and page-locked host
/// memory, in any number of adjacent allocations. While `stream` is being captured, pointers unknown to CUDA
/// are accepted, because they may be memory of the graph.
///
/// Queries the driver once per allocation on every call: 50 to 100 ns (H200, driver 580;
/// bench/results/gpu-kernels.md). That is as fast as validating a cached result, and freed memory is never
/// mistaken for its predecessor. If the driver fails, returns none: the launch will report why. Thread-safe.
[[nodiscard]] PointerError check_pointer(const void* data, std::size_t bytes, DeviceId device, Stream stream);

/// Describes the error of the pointer, its kind of memory and what is required: "0x5581 is host memory or
/// was freed; memory of GPU 0 is needed". Empty if there is no error.
[[nodiscard]] std::string describe_wrong_pointer(const void* data, std::size_t bytes, DeviceId device,
                                                 Stream stream);

}  // namespace onehop
