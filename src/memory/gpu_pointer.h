// SPDX-License-Identifier: Apache-2.0
// Recognizes GPU memory that a caller passes to host ranks. They would die of SIGSEGV when they read it.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace onehop {

namespace gpu_pointer {

// The driver reserves addresses for GPU memory in units of this size, so host memory never shares one with it.
inline constexpr unsigned kUnitBits = 21;
/// Units that held host memory when the driver was asked, by the last bits of their numbers. Relaxed, because each entry
/// stands for itself. Unit 0 has no memory.
extern std::array<std::atomic<std::uintptr_t>, 256> host_units;

/// Asks the driver, if this process has loaded it.
[[nodiscard]] bool ask(const void* data) noexcept;

}  // namespace gpu_pointer

/// Whether `data` is GPU memory that the CPU cannot access, as far as the driver tells. Takes a nanosecond where a pointer into
/// the same 2 MiB was checked before; so GPU memory that has since taken the place of freed host memory is not recognized.
/// Neither loads the driver nor initializes CUDA. Thread-safe.
[[nodiscard]] inline bool is_gpu_memory(const void* data) noexcept {
  const std::uintptr_t unit = reinterpret_cast<std::uintptr_t>(data) >> gpu_pointer::kUnitBits;
  std::atomic<std::uintptr_t>& known = gpu_pointer::host_units[unit % gpu_pointer::host_units.size()];
  if (known.load(std::memory_order_relaxed) == unit) [[likely]]
    return false;
  if (gpu_pointer::ask(data)) return true;
  known.store(unit, std::memory_order_relaxed);
  return false;
}

}  // namespace onehop
