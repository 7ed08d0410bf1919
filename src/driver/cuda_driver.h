// SPDX-License-Identifier: Apache-2.0
// The CUDA driver, found when the program runs. Nothing of onehop links libcuda or the CUDA runtime: one
// binary starts on machines without a driver and says so where a GPU is asked for.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <source_location>
#include <string>

#include "onehop/error.h"

namespace onehop {

/// The driver's functions, named as the driver names them without `cu`. Plain data, so that tests fill one
/// with fakes.
struct CudaDriver {
#define ONEHOP_CUDA_FUNCTION(name, version, necessity) \
  decltype(&cu##name) name = nullptr;  // NOLINT(bugprone-macro-parentheses): a name
#include "driver/cuda_functions.inc"
#undef ONEHOP_CUDA_FUNCTION
};

/// The driver, initialised, or nullptr; then `why` (if given) gets the reason in one line. Looks once per
/// process (and again in a forked child, where a driver that was initialised before cannot be used).
/// Thread-safe.
[[nodiscard]] const CudaDriver* find_cuda_driver(std::string* why = nullptr) noexcept;

/// The driver; Error{unsupported} with the reason and the remedy where there is none.
[[nodiscard]] const CudaDriver& cuda_driver();

/// Puts `fake` in the driver's place while it lives. For tests; not while other threads use the driver.
class ScopedCudaDriver {
 public:
  explicit ScopedCudaDriver(const CudaDriver* fake, std::string why = {});
  ~ScopedCudaDriver();
  ScopedCudaDriver(const ScopedCudaDriver&) = delete;
  ScopedCudaDriver& operator=(const ScopedCudaDriver&) = delete;
};

/// Changes whenever a test puts other tables in the place of the driver or of NVML. Answers that are kept for
/// the life of the process are kept together with it, so that no test hears another's.
[[nodiscard]] std::uint64_t driver_epoch() noexcept;
void advance_driver_epoch() noexcept;

/// "CUDA_ERROR_NOT_PERMITTED (800): operation not permitted". Thread-safe, needs no driver.
[[nodiscard]] std::string cuda_error_text(CUresult result);

/// Throws for a failed call: `what: <error text>`. Out of memory becomes out_of_resources, what the driver
/// does not support or permit becomes unsupported, bad values invalid_argument, everything else system.
[[noreturn]] void fail_cuda(CUresult result, const std::string& what);

/// Throws unless `result` is success. `what` is the function's name, with what it was about when that helps.
inline void check_cuda(CUresult result, const char* what) {
  if (result != CUDA_SUCCESS) [[unlikely]]
    fail_cuda(result, what);
}

/// The driver's device pointers are integers of the address.
template <class T = void>
[[nodiscard]] T* to_pointer(CUdeviceptr address) {
  return reinterpret_cast<T*>(address);  // NOLINT(performance-no-int-to-ptr)
}

}  // namespace onehop
