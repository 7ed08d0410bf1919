// SPDX-License-Identifier: Apache-2.0
// The CUDA driver, loaded at run time. onehop links neither libcuda nor the CUDA runtime: the same binary
// starts on machines without a driver and reports its absence when a GPU is requested.
#pragma once

#include <cuda.h>
#include <cudaTypedefs.h>

#include <cstdint>
#include <source_location>
#include <string>

#include "onehop/error.h"

namespace onehop {

/// The driver's functions, under their names without `cu`. Plain data, so that tests can fill a table with
/// fakes.
struct CudaDriver {
#define ONEHOP_CUDA_FUNCTION(name, version, necessity) \
  decltype(&cu##name) name = nullptr;  // NOLINT(bugprone-macro-parentheses): a name
#define ONEHOP_CUDA_FUNCTION_OF(name, version, necessity) \
  PFN_cu##name##_v##version name = nullptr;  // NOLINT(bugprone-macro-parentheses): a name
#include "driver/cuda_functions.inc"
#undef ONEHOP_CUDA_FUNCTION
#undef ONEHOP_CUDA_FUNCTION_OF
};

/// Returns the initialized driver, or nullptr and the reason in one line in `why` (if given). Searches once
/// per process, and again in a forked child, which cannot use a driver that its parent initialized.
/// Thread-safe.
[[nodiscard]] const CudaDriver* find_cuda_driver(std::string* why = nullptr) noexcept;

/// Returns the driver. Throws Error{unsupported} with the reason and a remedy if there is none.
[[nodiscard]] const CudaDriver& cuda_driver();

/// Replaces the driver by `fake` for the lifetime of this object. For tests; not while other threads use the
/// driver.
class ScopedCudaDriver {
 public:
  explicit ScopedCudaDriver(const CudaDriver* fake, std::string why = {});
  ~ScopedCudaDriver();
  ScopedCudaDriver(const ScopedCudaDriver&) = delete;
  ScopedCudaDriver& operator=(const ScopedCudaDriver&) = delete;
};

/// A number that changes whenever a test replaces the tables of the driver or of NVML. Results that are
/// cached for the life of the process are keyed by it, so that no test sees those of another.
[[nodiscard]] std::uint64_t driver_epoch() noexcept;
void advance_driver_epoch() noexcept;

/// Returns, for example, "CUDA_ERROR_NOT_PERMITTED (800): operation not permitted". Thread-safe; works
/// without a driver.
[[nodiscard]] std::string cuda_error_text(CUresult result);

/// Throws the Error of a failed call, with the message `what: <error text>`. Out of memory becomes
/// out_of_resources; anything that the driver does not support or permit becomes unsupported; invalid values
/// become invalid_argument; all others become driver.
[[noreturn]] void fail_cuda(CUresult result, const std::string& what);

/// Throws unless `result` is CUDA_SUCCESS. `what` is the function's name, with details of its arguments where
/// useful.
inline void check_cuda(CUresult result, const char* what) {
  if (result != CUDA_SUCCESS) [[unlikely]]
    fail_cuda(result, what);
}

/// Converts between pointers and the driver's CUdeviceptr, an integer with the same value.
template <class T = void>
[[nodiscard]] T* to_pointer(CUdeviceptr address) {
  return reinterpret_cast<T*>(address);  // NOLINT(performance-no-int-to-ptr)
}

}  // namespace onehop
