// SPDX-License-Identifier: Apache-2.0
// The state of one rank of a GPU benchmark that all sizes share.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <memory>
#include <set>
#include <string>

#include "onehop/buffer.h"
#include "onehop/group.h"

#include "bench/bench.h"
#include "bench/cuda_handles.h"
#include "bench/cuda_implementations.h"
#include "bench/run.h"

namespace onehop::cli {

class GpuContext {
 public:
  /// Collective.
  GpuContext(Group& group, const BenchOptions& options, const BenchListener& listener);

  /// Waits for the stream; every wait on the GPU ends with the group's timeout.
  void synchronize() { group.synchronize(Stream{stream.get()}); }
  /// Reports each text once.
  void note(const std::string& text) {
    if (noted_.insert(text).second) listener.note(text);
  }
  /// Copies a result to `host`, which holds the largest one. The stream must be idle.
  const std::byte* download(const std::byte* from, std::size_t bytes);

  Group& group;
  const BenchOptions& options;
  const BenchListener& listener;
  /// Signals of the barriers between the kernels of the benchmark.
  SymmetricBuffer barrier_buffer;
  DeviceView view;
  std::uint64_t cache_bytes = 0;  ///< the same on all ranks
  int host_threads = 1;           ///< for filling and checking
  std::unique_ptr<std::byte[]> host;
  GpuMemory pristine;  ///< a copy of the input that no call writes
  GpuMemory flush;     ///< cold: 2 x cache_bytes
  GpuStream stream;
  Implementations implementations;
  bool floor_measured = false;

 private:
  GpuContext(Group& group, const BenchOptions& options, const BenchListener& listener,
             std::uint64_t cache_bytes);

  std::set<std::string> noted_;
};

/// Measures one size. Collective.
[[nodiscard]] BenchRow measure_on_gpus(GpuContext& context, std::uint64_t bytes);

}  // namespace onehop::cli
