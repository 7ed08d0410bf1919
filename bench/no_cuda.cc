// SPDX-License-Identifier: Apache-2.0
// Stands in for cuda_gpu_memory.cc in a build without a CUDA toolkit.
#include "base/check.h"
#include "gpu_memory.h"

namespace onehop::bench {

int gpu_count() noexcept {
  return 0;
}

std::shared_ptr<void> allocate_on_gpu(DeviceId, std::size_t) {
  fail(ErrorCode::unsupported, "this program was built without CUDA");
}

std::uint64_t gpu_bytes_in_use() {
  fail(ErrorCode::unsupported, "this program was built without CUDA");
}

}  // namespace onehop::bench
