// SPDX-License-Identifier: Apache-2.0
// A run on GPUs, from the first buffer to the last row.
#include <algorithm>
#include <new>

#include "base/check.h"
#include "bench/cuda_clock.h"
#include "bench/cuda_machine.h"
#include "bench/cuda_rig.h"
#include "bench/exchange.h"
#include "bench/gpu.h"
#include "bench/plan.h"
#include "bench/shape.h"
#include "machine_info.h"

namespace onehop::cli {
namespace {

constexpr int kMostHostThreads = 16;

/// The largest second-level cache among the ranks' GPUs, so that all of them count alike.
std::uint64_t largest_cache(Group& group) {
  check(cudaSetDevice(group.device().value), "cudaSetDevice");
  int bytes = 0;
  check(cudaDeviceGetAttribute(&bytes, cudaDevAttrL2CacheSize, group.device().value),
        "cudaDeviceGetAttribute");
  std::uint64_t largest = 0;
  const std::vector<std::uint64_t> own{static_cast<std::uint64_t>(bytes)};
  for (const auto& each : gather(group, own)) largest = std::max(largest, each.at(0));
  return largest;
}

/// Of the slots of the size that needs most.
std::size_t arena_bytes(const BenchOptions& options, std::uint64_t cache_bytes) {
  std::size_t most = 0;
  for (const std::uint64_t bytes : options.sizes) {
    const auto slots = static_cast<std::size_t>(choose_slots(options, bytes, cache_bytes));
    most = std::max(most, slots * shape_of(options, Rank{0}, bytes).slot_bytes);
  }
  return most;
}

}  // namespace

Rig::Rig(Group& the_group, const BenchOptions& the_options, const BenchListener& the_listener)
    : Rig(the_group, the_options, the_listener, largest_cache(the_group)) {}

Rig::Rig(Group& the_group, const BenchOptions& the_options, const BenchListener& the_listener,
         std::uint64_t the_cache_bytes)
    : group(the_group),
      options(the_options),
      listener(the_listener),
      meeting(group.allocate(64)),
      view(meeting.device_view(group.timeout())),
      cache_bytes(the_cache_bytes),
      host_threads(std::clamp(machine_info().cpus / group.size(), 1, kMostHostThreads)),
      host(new (std::nothrow) std::byte[largest_size(options) + 1]),
      pristine(std::max<std::size_t>(largest_size(options), 1)),
      contenders(group, options, arena_bytes(options, cache_bytes)) {
  if (host == nullptr) {
    fail(ErrorCode::out_of_resources, "out of memory for a buffer of {} bytes; use smaller sizes",
         largest_size(options));
  }
  if (options.cold) flush = GpuMemory(2 * cache_bytes);
  check(load_clock_kernels(), "loading the benchmark's kernels");
  // Nobody's first kernel may wait for one that is still being loaded.
  group.barrier();
}

const std::byte* Rig::download(const std::byte* from, std::size_t bytes) {
  check(cudaMemcpy(host.get(), from, bytes, cudaMemcpyDeviceToHost), "cudaMemcpy");
  return host.get();
}

void run_gpu_bench(Group& group, const BenchOptions& options, const BenchListener& listener) {
  // The driver maps sizes that no GPU has without complaint for a while; this is the line between both.
  constexpr std::uint64_t kLargest = std::uint64_t{1} << 40;
  require(largest_size(options) <= kLargest, "{} bytes is more than a GPU holds; use smaller sizes",
          largest_size(options));
  Rig rig(group, options, listener);
  GpuMachine machine = gpu_machine(group);
  machine.nccl = rig.contenders.nccl_version();
  listener.gpus(machine);
  for (const std::string& note : rig.contenders.notes()) rig.note(note);
  for (const std::uint64_t bytes : options.sizes) listener.row(measure_on_gpus(rig, bytes));
  group.barrier();
  rig.contenders.close();
}

}  // namespace onehop::cli
