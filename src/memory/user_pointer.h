// SPDX-License-Identifier: Apache-2.0
// Whether memory that a caller passed is what kernels of a GPU can use. A kernel that touches other memory is
// the end of its context.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "onehop/types.h"

namespace onehop {

enum class PointerDefect : std::uint8_t {
  none,
  not_gpu_memory,  ///< CUDA does not know it: host memory, or freed
  other_gpu,
  too_short,  ///< it begins well, but its allocation ends before its last byte
};

/// What keeps kernels and copies of `device` from using [data, data + bytes), of which the first byte counts
/// if there are none. They can use memory of that GPU, managed memory and page-locked host memory, in as many
/// adjacent allocations as there are. While `stream` is captured, what CUDA does not know may be memory of
/// the graph, and passes.
///
/// Asks the driver once per allocation, every time: 50 to 100 ns (H200, driver 580;
/// bench/results/gpu-kernels.md). That is as quick as confirming an answer that was kept, and memory that was
/// freed is never taken for what it was. Nothing is wrong where the driver fails: what is launched will say
/// why. Thread-safe.
[[nodiscard]] PointerDefect check_pointer(const void* data, std::size_t bytes, DeviceId device,
                                          Stream stream);

/// The same in words, which name the pointer, what it is and what is needed: "0x5581 is host memory or was
/// freed; memory of GPU 0 is needed". Empty when nothing is wrong.
[[nodiscard]] std::string describe_wrong_pointer(const void* data, std::size_t bytes, DeviceId device,
                                                 Stream stream);

}  // namespace onehop
