// SPDX-License-Identifier: Apache-2.0
// A benchmark run on GPUs.
#include <algorithm>
#include <fstream>
#include <new>
#include <sstream>

#include "onehop/topology.h"

#include "base/check.h"
#include "bench/cuda_clock.h"
#include "bench/cuda_context.h"
#include "bench/device.h"
#include "bench/plan.h"
#include "bench/shape.h"
#include "bench/statistics.h"
#include "origin.h"

namespace onehop::cli {
namespace {

constexpr int kMostHostThreads = 16;

/// The largest L2 cache of the ranks' GPUs, so that all ranks use the same size.
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

/// The bytes of all slots of the size that needs most.
std::size_t arena_bytes(const BenchOptions& options, std::uint64_t cache_bytes) {
  std::size_t most = 0;
  for (const std::uint64_t bytes : options.sizes) {
    const auto slots = static_cast<std::size_t>(choose_slots(options, bytes, cache_bytes));
    most = std::max(most, slots * shape_of(options, Rank{0}, bytes).slot_bytes);
  }
  return most;
}

/// "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  Sun ...": the first word that is a version.
std::string kernel_driver() {
  std::ifstream file("/proc/driver/nvidia/version");
  std::string line;
  std::getline(file, line);
  std::istringstream words(line);
  for (std::string word; words >> word;) {
    if (word.find_first_not_of("0123456789.") == std::string::npos && word.find('.') != std::string::npos) {
      return word;
    }
  }
  return {};
}

/// NVLinks of the pair of devices with the fewest; nullopt when unknown, or when the topology and CUDA count
/// different devices.
std::optional<int> fewest_nvlinks(int gpus) {
  const Topology topology = Topology::probe();
  if (gpus < 2 || topology.device_count() != gpus) return std::nullopt;
  int fewest = -1;
  for (int from = 0; from < gpus; ++from) {
    for (int to = 0; to < gpus; ++to) {
      if (from == to) continue;
      const int links = topology.pair(DeviceId{from}, DeviceId{to}).nvlinks;
      if (links < 0) return std::nullopt;
      if (fewest < 0 || links < fewest) fewest = links;
    }
  }
  return fewest;
}

/// Collective. Rank 0 gets all facts, the others only the names.
GpuMachine gpu_machine(Group& group) {
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, group.device().value), "cudaGetDeviceProperties");
  GpuMachine machine;
  machine.names = group.all_gather(properties.name);
  if (group.rank() != Rank{0}) return machine;
  int version = 0;
  check(cudaDriverGetVersion(&version), "cudaDriverGetVersion");
  machine.cuda = fmt::format("{}.{}", version / 1000, version % 1000 / 10);
  machine.driver = kernel_driver();
  int gpus = 0;
  check(cudaGetDeviceCount(&gpus), "cudaGetDeviceCount");
  machine.nvlinks = fewest_nvlinks(gpus);
  return machine;
}

}  // namespace

GpuCount count_gpus() {
  int version = 0;
  if (cudaDriverGetVersion(&version) != cudaSuccess || version == 0) {
    (void)cudaGetLastError();
    return {0, "there is no NVIDIA driver on this machine"};
  }
  int count = 0;
  const cudaError_t result = cudaGetDeviceCount(&count);
  if (result != cudaSuccess) {
    (void)cudaGetLastError();
    return {0, fmt::format("{} ({})", cudaGetErrorString(result), cudaGetErrorName(result))};
  }
  return {count, count == 0 ? "the driver shows none to this process" : ""};
}

GpuContext::GpuContext(Group& the_group, const BenchOptions& the_options, const BenchListener& the_listener)
    : GpuContext(the_group, the_options, the_listener, largest_cache(the_group)) {}

GpuContext::GpuContext(Group& the_group, const BenchOptions& the_options, const BenchListener& the_listener,
                       std::uint64_t the_cache_bytes)
    : group(the_group),
      options(the_options),
      listener(the_listener),
      barrier_buffer(group.allocate(64)),
      view(barrier_buffer.device_view(group.timeout())),
      cache_bytes(the_cache_bytes),
      host_threads(std::clamp(machine_info().cpus / group.size(), 1, kMostHostThreads)),
      host(new (std::nothrow) std::byte[largest_size(options) + 1]),
      pristine(std::max<std::size_t>(largest_size(options), 1)),
      implementations(group, options, arena_bytes(options, cache_bytes)) {
  if (host == nullptr) {
    fail(ErrorCode::out_of_resources, "out of memory for a buffer of {} bytes; use smaller sizes",
         largest_size(options));
  }
  if (options.cold) flush = GpuMemory(2 * cache_bytes);
  check(load_clock_kernels(), "loading the benchmark's kernels");
  // The first kernel of a rank must not wait for a kernel that another rank still loads.
  group.barrier();
}

const std::byte* GpuContext::download(const std::byte* from, std::size_t bytes) {
  check(cudaMemcpy(host.get(), from, bytes, cudaMemcpyDeviceToHost), "cudaMemcpy");
  return host.get();
}

void run_gpu_bench(Group& group, const BenchOptions& options, const BenchListener& listener) {
  // The driver maps sizes beyond the memory of any GPU without an error; this limit lies between both.
  constexpr std::uint64_t kLargest = std::uint64_t{1} << 40;
  require(largest_size(options) <= kLargest, "{} bytes is more than a GPU holds; use smaller sizes",
          largest_size(options));
  GpuContext context(group, options, listener);
  GpuMachine machine = gpu_machine(group);
  machine.nccl = context.implementations.nccl_versions();
  listener.gpus(machine);
  for (const std::string& note : context.implementations.notes()) context.note(note);
  for (std::size_t i = 0; i < options.sizes.size(); ++i)
    listener.row(measure_on_gpus(context, options.sizes[i]), i, /*last=*/true);
  group.barrier();
  context.implementations.close();
}

}  // namespace onehop::cli
