// SPDX-License-Identifier: Apache-2.0
#include "communicator.h"

#include <dlfcn.h>

#include <chrono>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "base/check.h"
#include "base/env.h"

namespace onehop::nccl {
namespace {

/// NCCL waits for ever; so programs let ranks wait for long, such as for one that writes a checkpoint. A rank that dies is
/// noticed at once.
constexpr long kDefaultTimeoutSeconds = 1800;
constexpr long kLongestTimeoutSeconds = 86400;

struct Table {
  std::mutex mutex;
  std::unordered_map<Comm, std::shared_ptr<Communicator>> entries;
};

Table& table() {
  static Table& instance =
      *new Table;  // leaked: programs may destroy communicators in their own static destructors
  return instance;
}

bool on_host() {
  const std::string device = env::get("ONEHOP_NCCL_DEVICE").value_or("cuda");
  if (device != "cuda" && device != "cpu")
    fail(ErrorCode::invalid_argument, "ONEHOP_NCCL_DEVICE='{}' makes no sense; legal: cuda or cpu", device);
  return device == "cpu";
}

/// What cudaGetDevice would say. The program has its own copy of the runtime, which may be linked statically; both share the
/// driver's current context. Without one, the runtime would use device 0.
int current_cuda_device() {
  static void* const driver = ::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  static auto* const get =
      driver != nullptr ? reinterpret_cast<int (*)(int*)>(::dlsym(driver, "cuCtxGetDevice")) : nullptr;
  int device = 0;
  return get != nullptr && get(&device) == 0 ? device : 0;
}

}  // namespace

Group& Communicator::group() {
  if (!joined())
    fail(ErrorCode::invalid_argument,
         "the communicator has not been set up: that is done by the outermost ncclGroupEnd");
  return *group_;
}

void Communicator::join(std::shared_ptr<Store> store, std::string name) {
  const long seconds =
      env::get_int("ONEHOP_NCCL_TIMEOUT", 1, kLongestTimeoutSeconds).value_or(kDefaultTimeoutSeconds);
  group_ = Group::join(std::move(store), {.rank = Rank{rank_},
                                          .size = size_,
                                          .device = device_,
                                          .timeout = std::chrono::seconds{seconds},
                                          .name = std::move(name)});
  joined_.store(true, std::memory_order_release);
}

Comm add(std::shared_ptr<Communicator> communicator) {
  Communicator* const comm = communicator.get();
  add(comm, std::move(communicator));
  return comm;
}

void add(Comm handle, std::shared_ptr<Communicator> communicator) {
  const std::lock_guard lock(table().mutex);
  table().entries.insert_or_assign(handle, std::move(communicator));
}

bool is_carried(Comm handle) noexcept {
  const std::lock_guard lock(table().mutex);
  return table().entries.contains(handle);
}

std::shared_ptr<Communicator> find(Comm comm) {
  const std::lock_guard lock(table().mutex);
  const auto found = table().entries.find(comm);
  if (found == table().entries.end())
    fail(ErrorCode::invalid_argument, "{} is no communicator, or it was destroyed",
         static_cast<const void*>(comm));
  return found->second;
}

std::shared_ptr<Communicator> release(Comm comm) {
  std::shared_ptr<Communicator> found = find(comm);
  const std::lock_guard lock(table().mutex);
  table().entries.erase(comm);
  return found;
}

bool forget(const Communicator& communicator) noexcept {
  const std::lock_guard lock(table().mutex);
  return std::erase_if(table().entries,
                       [&](const auto& entry) { return entry.second.get() == &communicator; }) != 0;
}

DeviceId current_device() {
  return on_host() ? DeviceId::host : DeviceId{current_cuda_device()};
}

DeviceId device_of(int cuda_device) {
  return on_host() ? DeviceId::host : DeviceId{cuda_device};
}

}  // namespace onehop::nccl
