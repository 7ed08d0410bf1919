// SPDX-License-Identifier: Apache-2.0
// Windows (ncclCommWindowRegister): memory that all ranks have registered, each with the same size, and that calls use at
// the same offset on all ranks. Copy engines write long results directly into it, without a kernel.
#pragma once

#include <atomic>
#include <cstddef>
#include <map>
#include <mutex>

#include "onehop/buffer.h"
#include "onehop/call.h"

#include "abi.h"

namespace onehop::nccl {

/// Those of a communicator. Thread-safe.
class Windows {
 public:
  void add(void* handle, SymmetricBuffer buffer);
  /// Returns whether there was one.
  bool remove(void* handle);
  /// Whether the call promises symmetric memory (CallOptions::symmetric). The same on all ranks, since all of them use
  /// windows, and at the same offset.
  [[nodiscard]] bool promises(const Call& call, int ranks) const;

 private:
  mutable std::mutex mutex_;
  std::map<void*, SymmetricBuffer> buffers_;
  std::atomic<bool> any_{false};  ///< spares calls the mutex
};

/// Where there is no NCCL. Without NCCL_WIN_COLL_SYMMETRIC, and where the memory of a rank cannot be shared, the window is NULL
/// on all ranks, as NCCL's is where it registers nothing.
Result comm_window_register(Comm comm, void* data, std::size_t bytes, void** window, int flags) noexcept;
Result comm_window_deregister(Comm comm, void* window) noexcept;

namespace accelerate {
Result comm_window_register(Comm comm, void* data, std::size_t bytes, void** window, int flags) noexcept;
Result comm_window_deregister(Comm comm, void* window) noexcept;
}  // namespace accelerate

}  // namespace onehop::nccl
