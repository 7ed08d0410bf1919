// SPDX-License-Identifier: Apache-2.0
#include "memory/gpu_pointer.h"

#include <dlfcn.h>
#include <link.h>

namespace onehop::gpu_pointer {
namespace {

// Of cuda.h, which builds without CUDA do not have.
using PointerGetAttribute = int (*)(void* value, int attribute, unsigned long long pointer);
constexpr int kMemoryType = 2;
constexpr int kIsManaged = 8;
constexpr unsigned kDevice = 2;

unsigned long long libraries_loaded() {
  unsigned long long count = 0;
  const auto read = [](dl_phdr_info* info, std::size_t, void* into) {
    *static_cast<unsigned long long*>(into) = info->dlpi_adds;
    return 1;
  };
  (void)::dl_iterate_phdr(read, &count);
  return count;
}

/// The function of the driver that the program has loaded, perhaps since the last call; else nullptr. The driver's table
/// (driver/cuda_driver.h) would load it.
PointerGetAttribute find() {
  static std::atomic<PointerGetAttribute> found{nullptr};
  static std::atomic<unsigned long long> searched{0};
  if (const PointerGetAttribute known = found.load(std::memory_order_relaxed)) return known;
  // Without a loaded driver, dlopen searches the file system.
  const unsigned long long loaded = libraries_loaded();
  if (searched.load(std::memory_order_relaxed) == loaded) return nullptr;
  void* const library = ::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);  // never closed
  if (library != nullptr)
    found.store(reinterpret_cast<PointerGetAttribute>(::dlsym(library, "cuPointerGetAttribute")),
                std::memory_order_relaxed);
  searched.store(loaded, std::memory_order_relaxed);
  return found.load(std::memory_order_relaxed);
}

}  // namespace

std::array<std::atomic<std::uintptr_t>, 256> host_units{};

bool ask(const void* data) noexcept {
  const PointerGetAttribute get = find();
  if (get == nullptr) return false;
  const auto pointer = reinterpret_cast<std::uintptr_t>(data);
  unsigned type = 0;
  if (get(&type, kMemoryType, pointer) != 0 || type != kDevice) return false;
  unsigned managed = 0;
  return get(&managed, kIsManaged, pointer) == 0 && managed == 0;
}

}  // namespace onehop::gpu_pointer
