// SPDX-License-Identifier: Apache-2.0
#include "support/gpu.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <filesystem>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "base/deadline.h"
#include "driver/device.h"
#include "support/ranks.h"

namespace onehop::testing {
namespace {

// Longer than any test's work, and than the deadlines of the waits in it.
constexpr Duration kPatience = std::chrono::seconds{40};

std::atomic<bool> g_used_here{false};

int count_device_files() {
  int count = 0;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator("/dev", none)) {
    const std::string name = entry.path().filename();
    if (name.size() > 6 && name.starts_with("nvidia") &&
        std::all_of(name.begin() + 6, name.end(), [](unsigned char c) { return std::isdigit(c) != 0; })) {
      ++count;
    }
  }
  return count;
}

/// How many GPUs, starting with GPU 0, can reach each other. Initializes CUDA.
int count_connected() {
  const int devices = cuda_device_count();
  const CudaDriver* const driver = find_cuda_driver();
  const auto reaches = [&](int from, int to) {
    int yes = 0;
    return driver->DeviceCanAccessPeer(&yes, cuda_device(DeviceId{from}), cuda_device(DeviceId{to})) ==
               CUDA_SUCCESS &&
           yes != 0;
  };
  for (int n = 1; n < devices; ++n) {
    for (int each = 0; each < n; ++each) {
      if (!reaches(each, n) || !reaches(n, each)) return n;
    }
  }
  return devices;
}

/// Like count_connected, but in a child process.
int ask_a_child() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("pipe2 failed");
  const pid_t child = ::fork();
  if (child < 0) throw std::runtime_error("fork failed");
  if (child == 0) {
    (void)::alarm(60);  // a driver that hangs counts as missing
    int count = 0;
    try {
      count = count_connected();
    } catch (const std::exception&) {
    }
    (void)!::write(ends[1], &count, sizeof count);
    ::_exit(0);
  }
  ::close(ends[1]);
  int count = 0;
  if (::read(ends[0], &count, sizeof count) != static_cast<ssize_t>(sizeof count)) count = 0;
  ::close(ends[0]);
  (void)::waitpid(child, nullptr, 0);
  return count;
}

int connected_gpus() {
  static const int count = ask_a_child();
  return count;
}

CUdeviceptr pointer(const void* data) {
  return reinterpret_cast<CUdeviceptr>(data);
}

/// Memory of ranks that share a GPU as threads. Freeing waits for all kernels of the process on that GPU, and meanwhile
/// the driver queues no others. If one of those kernels waits for a rank that has yet to queue its own, both wait until
/// the call's deadline. So memory is freed when no rank of the process is left.
class FreedLater {
 public:
  void enter() {
    const std::lock_guard lock(mutex_);
    ++users_;
  }
  void leave(const CudaDriver& driver, DeviceId device, const std::vector<std::byte*>& allocations) {
    const std::lock_guard lock(mutex_);
    for (std::byte* const data : allocations) allocations_.emplace_back(device, data);
    if (--users_ != 0) return;
    for (const auto& [on, data] : allocations_) {
      const CurrentDevice current(on);
      (void)driver.MemFree(pointer(data));
    }
    allocations_.clear();
  }

 private:
  std::mutex mutex_;
  int users_ = 0;
  std::vector<std::pair<DeviceId, std::byte*>> allocations_;
};

FreedLater& freed_later() {
  static FreedLater all;
  return all;
}

}  // namespace

std::string gpus_unavailable(int n, Sharing sharing) {
  if (sharing == Sharing::allowed && shared_gpus() > 0) n = std::min(n, shared_gpus());
  const int files = count_device_files();
  if (files < n) return fmt::format("needs {} GPUs, this machine has {}", n, files);
  const int count = connected_gpus();
  if (count < n)
    return fmt::format("needs {} GPUs that reach each other, the driver offers {} of them", n, count);
  return "";
}

std::string forked_gpus_unavailable(int n, Sharing sharing) {
  if (g_used_here)
    return "this process has used CUDA and can fork no ranks; run each test in a process of its own";
  return gpus_unavailable(n, sharing);
}

// --- Gpu ---

Gpu::Gpu(DeviceId device) : device_(device), driver_(cuda_driver()) {
  g_used_here = true;
  if (shared_gpus() > 0) freed_later().enter();
  const CurrentDevice current(device_);
  check_cuda(driver_.StreamCreate(&stream_, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  warm_up();
}

Gpu::Gpu(DeviceId device, StreamOfThread /*tag*/)
    : device_(device), driver_(cuda_driver()), stream_(CU_STREAM_PER_THREAD) {
  g_used_here = true;
  if (shared_gpus() > 0) freed_later().enter();
  const CurrentDevice current(device_);
  warm_up();
}

void Gpu::warm_up() {
  // Makes the driver load its fill and copy kernels now. Loading may wait for running kernels, and a thread
  // that drives several ranks could wait for its own.
  std::byte* const words = allocate(8);
  fill(words, 0, 1);
  copy(words + 4, words, 4);
  wait();
  free(words);
}

Gpu::~Gpu() {
  try {
    const CurrentDevice current(device_);
    if (shared_gpus() > 0) {
      freed_later().leave(driver_, device_, allocations_);
    } else {
      // Freeing waits for the device, whose kernels end by their own deadlines.
      for (std::byte* const data : allocations_) (void)driver_.MemFree(pointer(data));
    }
    if (stream_ != CU_STREAM_PER_THREAD) (void)driver_.StreamDestroy(stream_);
  } catch (const std::exception& error) {
    fmt::print(stderr, "device {}: {}\n", device_.value, error.what());
  }
}

std::byte* Gpu::allocate(std::size_t bytes) {
  const CurrentDevice current(device_);
  CUdeviceptr data = 0;
  check_cuda(driver_.MemAlloc(&data, std::max<std::size_t>(bytes, 1)), "cuMemAlloc");
  allocations_.push_back(reinterpret_cast<std::byte*>(data));
  return allocations_.back();
}

void Gpu::free(std::byte* data) {
  if (shared_gpus() > 0) return;
  const CurrentDevice current(device_);
  (void)driver_.MemFree(pointer(data));  // called by destructors; the next call reports an error
  std::erase(allocations_, data);
}

void Gpu::upload(void* to, const void* from, std::size_t bytes) const {
  if (bytes == 0) return;
  {
    const CurrentDevice current(device_);
    check_cuda(driver_.MemcpyHtoDAsync(pointer(to), from, bytes, stream_), "cuMemcpyHtoDAsync");
  }
  wait();
}

void Gpu::download(void* to, const void* from, std::size_t bytes) const {
  if (bytes == 0) return;
  {
    const CurrentDevice current(device_);
    check_cuda(driver_.MemcpyDtoHAsync(to, pointer(from), bytes, stream_), "cuMemcpyDtoHAsync");
  }
  wait();
}

void Gpu::fill(void* at, std::uint32_t word, std::size_t words) const {
  const CurrentDevice current(device_);
  check_cuda(driver_.MemsetD32Async(pointer(at), word, words, stream_), "cuMemsetD32Async");
}

void Gpu::copy(void* to, const void* from, std::size_t bytes) const {
  const CurrentDevice current(device_);
  check_cuda(driver_.MemcpyDtoDAsync(pointer(to), pointer(from), bytes, stream_), "cuMemcpyDtoDAsync");
}

bool Gpu::idle() const {
  const CurrentDevice current(device_);
  const CUresult result = driver_.StreamQuery(stream_);
  if (result == CUDA_ERROR_NOT_READY) return false;
  check_cuda(result, "cuStreamQuery");
  return true;
}

void Gpu::wait() const {
  const Deadline deadline = Deadline::after(kPatience);
  while (!idle()) {
    if (deadline.expired())
      throw std::runtime_error(
          fmt::format("the stream of device {} did not end within {} ms", device_.value, kPatience.count()));
    std::this_thread::yield();
  }
}

void Gpu::synchronize_device() const {
  const CurrentDevice current(device_);
  check_cuda(driver_.CtxSynchronize(), "cuCtxSynchronize");
}

std::size_t Gpu::free_bytes() const {
  const CurrentDevice current(device_);
  std::size_t free = 0;
  std::size_t total = 0;
  check_cuda(driver_.MemGetInfo(&free, &total), "cuMemGetInfo");
  return free;
}

// --- Graph ---

namespace {

/// Through a function that the library itself does not need. The library has already loaded the driver.
std::size_t count_nodes(CUgraph graph) {
  void* const driver = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  using GetNodes = CUresult (*)(CUgraph, CUgraphNode*, std::size_t*);
  const auto get_nodes =
      driver == nullptr ? nullptr : reinterpret_cast<GetNodes>(::dlsym(driver, "cuGraphGetNodes"));
  std::size_t count = 0;
  if (get_nodes == nullptr || get_nodes(graph, nullptr, &count) != CUDA_SUCCESS) count = 0;
  if (driver != nullptr) ::dlclose(driver);
  return count;
}

}  // namespace

Graph::Graph(const Gpu& gpu, const std::function<void()>& body) : gpu_(gpu) {
  const CudaDriver& driver = cuda_driver();
  const CurrentDevice current(gpu.device());
  const auto stream = static_cast<CUstream>(gpu.stream().handle);
  // Only this thread is restricted: other ranks' threads go on.
  check_cuda(driver.StreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), "cuStreamBeginCapture");
  CUgraph graph = nullptr;
  try {
    body();
  } catch (...) {
    (void)driver.StreamEndCapture(stream, &graph);
    if (graph != nullptr) (void)driver.GraphDestroy(graph);
    throw;
  }
  check_cuda(driver.StreamEndCapture(stream, &graph), "cuStreamEndCapture");
  nodes_ = count_nodes(graph);
  const CUresult result = driver.GraphInstantiateWithFlags(&executable_, graph, 0);
  (void)driver.GraphDestroy(graph);
  check_cuda(result, "cuGraphInstantiateWithFlags");
}

Graph::~Graph() {
  (void)cuda_driver().GraphExecDestroy(executable_);
}

void Graph::launch() const {
  const CurrentDevice current(gpu_.device());
  check_cuda(cuda_driver().GraphLaunch(executable_, static_cast<CUstream>(gpu_.stream().handle)),
             "cuGraphLaunch");
}

}  // namespace onehop::testing
