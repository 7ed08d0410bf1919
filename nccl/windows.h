// SPDX-License-Identifier: Apache-2.0
// Windows (ncclCommWindowRegister): memory that all ranks have registered, each with the same size, and that calls use at
// the same offset on all ranks. Copy engines write long results directly into it.
#pragma once

#include <atomic>
#include <cstddef>
#include <map>
#include <mutex>

#include "onehop/buffer.h"
#include "onehop/call.h"

namespace onehop::nccl {

/// Those of a communicator. Thread-safe.
class Windows {
 public:
  void add(void* handle, SymmetricBuffer buffer);
  /// Returns whether there was one.
  bool remove(void* handle);
  /// Whether the call promises symmetric memory (CallOptions::symmetric). All ranks find the same, because NCCL demands that
  /// all of them pass the output at the same offset of a window, or none does.
  [[nodiscard]] bool promises(const Call& call, int ranks) const;

 private:
  mutable std::mutex mutex_;
  std::map<void*, SymmetricBuffer> buffers_;
  std::atomic<bool> any_{false};  ///< spares calls the mutex
};

}  // namespace onehop::nccl
