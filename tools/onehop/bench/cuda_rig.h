// SPDX-License-Identifier: Apache-2.0
// What one rank of a GPU benchmark has for all sizes.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <memory>
#include <set>
#include <string>

#include "onehop/buffer.h"
#include "onehop/group.h"

#include "bench/bench.h"
#include "bench/cuda_contenders.h"
#include "bench/cuda_handles.h"
#include "bench/run.h"

namespace onehop::cli {

class Rig {
 public:
  /// Collective.
  Rig(Group& group, const BenchOptions& options, const BenchListener& listener);

  /// Waits for the stream; every wait on the GPU ends with the group's timeout.
  void synchronize() { group.synchronize(Stream{stream.get()}); }
  /// Once per text.
  void note(const std::string& text) {
    if (noted_.insert(text).second) listener.note(text);
  }
  /// The largest size there is a result for, copied to host memory. The stream must be idle.
  const std::byte* download(const std::byte* from, std::size_t bytes);

  Group& group;
  const BenchOptions& options;
  const BenchListener& listener;
  /// Where kernels of the benchmark meet.
  SymmetricBuffer meeting;
  DeviceView view;
  std::uint64_t cache_bytes = 0;  ///< the same on all ranks
  int host_threads = 1;           ///< for filling and checking
  std::unique_ptr<std::byte[]> host;
  GpuMemory pristine;  ///< the input, never written by a call
  GpuMemory flush;     ///< cold: 2 x cache_bytes
  GpuStream stream;
  Contenders contenders;
  bool floor_measured = false;

 private:
  Rig(Group& group, const BenchOptions& options, const BenchListener& listener, std::uint64_t cache_bytes);

  std::set<std::string> noted_;
};

/// One size. Collective.
[[nodiscard]] BenchRow measure_on_gpus(Rig& rig, std::uint64_t bytes);

}  // namespace onehop::cli
