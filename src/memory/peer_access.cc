// SPDX-License-Identifier: Apache-2.0
#include "onehop/peer_access.h"

#include "base/check.h"
#include "base/log.h"
#include "driver/device.h"
#include "driver/share_support.h"

namespace onehop {
namespace {

constexpr int kPeersPerDevice = 8;  // CUDA's limit
constexpr int kMostDevices = 1024;  // more than any machine has; the cache has an entry per pair

void set_pool_access(CUmemoryPool pool, DeviceId peer) {
  CUmemAccessDesc grant{};
  grant.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  grant.location.id = peer.value;
  grant.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  const CUresult result = cuda_driver().MemPoolSetAccess(pool, &grant, 1);
  if (result == CUDA_SUCCESS) return;
  fail_cuda(result,
            fmt::format("granting device {} access to a memory pool (cuMemPoolSetAccess)", peer.value));
}

}  // namespace

PeerAccess& PeerAccess::of_process() {
  static auto& instance = *new PeerAccess;  // leaked: calls may occur during static destruction
  return instance;
}

PeerAccess::PeerAccess(int device_count) {
  start_over(device_count);
}

void PeerAccess::reset(int device_count) {
  start_over(device_count);
  forget_share_support();
}

void PeerAccess::start_over(int device_count) {
  require(device_count >= 0 && device_count <= kMostDevices, "a number of devices must be 0 to {}, got {}",
          kMostDevices, device_count);
  const std::lock_guard lock(mutex_);
  const auto count = static_cast<std::size_t>(device_count);
  states_.assign(count * count, State::unknown);
  device_count_ = device_count;
  epoch_ = driver_epoch();
}

int PeerAccess::device_count() const {
  const std::lock_guard lock(mutex_);
  return count_devices();
}

int PeerAccess::count_devices() const {
  if (epoch_ != driver_epoch()) {
    epoch_ = driver_epoch();
    states_.clear();
    if (counts_devices_) device_count_ = -1;
  }
  // Without a driver the count is not cached, because the driver is searched again after a fork.
  if (device_count_ < 0 && find_cuda_driver() != nullptr) device_count_ = cuda_device_count();
  return device_count_ < 0 ? 0 : device_count_;
}

void PeerAccess::check_pair(DeviceId device, DeviceId peer) const {
  (void)cuda_driver();  // its error is more informative than "sees 0 GPUs"
  const int count = count_devices();
  for (const DeviceId each : {device, peer}) {
    require(each.value >= 0 && each.value < count,
            "device {} does not exist: access is between devices numbered from 0, and there {} {}",
            each.value, count == 1 ? "is" : "are", count);
  }
}

PeerAccess::State& PeerAccess::known(DeviceId device, DeviceId peer) {
  const auto count = static_cast<std::size_t>(device_count_);
  if (states_.empty()) states_.assign(count * count, State::unknown);
  return states_[static_cast<std::size_t>(device.value) * count + static_cast<std::size_t>(peer.value)];
}

bool PeerAccess::is_possible(DeviceId device, DeviceId peer) {
  State& state = known(device, peer);
  if (state == State::unknown) {
    int answer = 1;
    if (device != peer) {
      check_cuda(cuda_driver().DeviceCanAccessPeer(&answer, cuda_device(device), cuda_device(peer)),
                 "cuDeviceCanAccessPeer");
    }
    state = answer == 0 ? State::no : device == peer ? State::enabled : State::possible;
  }
  return state != State::no;
}

void PeerAccess::enable(DeviceId device, DeviceId peer) {
  CUcontext theirs = cuda_context(peer);
  const CurrentDevice current(device);
  const CUresult result = cuda_driver().CtxEnablePeerAccess(theirs, 0);
  switch (result) {
    case CUDA_SUCCESS:
    case CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED:  // by the program, or by another library in it
      known(device, peer) = State::enabled;
      return;
    case CUDA_ERROR_PEER_ACCESS_UNSUPPORTED:
      log::warn("the driver says that device {} can access device {}, and then refuses it", device.value,
                peer.value);
      known(device, peer) = State::no;
      return;
    case CUDA_ERROR_TOO_MANY_PEERS:
      fail(ErrorCode::out_of_resources,
           "device {} cannot be given access to device {}: CUDA lets a device enable at most {} peers at a "
           "time, and it has that many; use fewer devices, or disable a peer (PeerAccess::disable)",
           device.value, peer.value, kPeersPerDevice);
    default:
      fail_cuda(result, fmt::format("giving device {} access to device {} (cuCtxEnablePeerAccess)",
                                    device.value, peer.value));
  }
}

bool PeerAccess::can_access(DeviceId device, DeviceId peer) {
  const std::lock_guard lock(mutex_);
  check_pair(device, peer);
  if (is_possible(device, peer) && known(device, peer) == State::possible) enable(device, peer);
  return known(device, peer) == State::enabled;
}

void PeerAccess::disable(DeviceId device, DeviceId peer) {
  const std::lock_guard lock(mutex_);
  check_pair(device, peer);
  require(device != peer, "device {}'s access to its own memory cannot be taken back", device.value);
  // Do not query the driver: contexts take memory, and access that others enabled is theirs to disable.
  if (known(device, peer) != State::enabled) return;
  const auto call = cuda_driver().CtxDisablePeerAccess;
  if (call == nullptr) {
    fail(ErrorCode::unsupported,
         "device {}'s access to device {} cannot be taken back: this driver has no cuCtxDisablePeerAccess",
         device.value, peer.value);
  }
  CUcontext theirs = cuda_context(peer);
  const CurrentDevice current(device);
  const CUresult result = call(theirs);
  // Another library in the program, or cudaDeviceReset, may have disabled it.
  const bool gone_already = result == CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
  if (result != CUDA_SUCCESS && !gone_already) {
    fail_cuda(result, fmt::format("taking back device {}'s access to device {} (cuCtxDisablePeerAccess)",
                                  device.value, peer.value));
  }
  known(device, peer) = State::possible;
}

void PeerAccess::grant_pool_access(DeviceId owner, DeviceId peer) {
  const std::lock_guard lock(mutex_);
  check_pair(peer, owner);
  if (owner == peer) return;  // access to its own memory always exists
  if (!is_possible(peer, owner)) {
    fail(ErrorCode::unsupported,
         "device {} cannot be given access to the memory pool of device {}: the driver allows no peer access "
         "between them ('onehop topo' shows which pairs have it)",
         peer.value, owner.value);
  }
  CUmemoryPool pool = nullptr;
  check_cuda(cuda_driver().DeviceGetMemPool(&pool, cuda_device(owner)), "cuDeviceGetMemPool");
  set_pool_access(pool, peer);
}

void PeerAccess::grant_pool_access(void* pool, DeviceId peer) {
  const std::lock_guard lock(mutex_);
  check_pair(peer, peer);
  require(pool != nullptr, "a memory pool must not be null");
  set_pool_access(static_cast<CUmemoryPool>(pool), peer);
}

PairAttributes PeerAccess::pair_attributes(DeviceId device, DeviceId peer) const {
  {
    const std::lock_guard lock(mutex_);
    check_pair(device, peer);
  }
  // The driver rejects the query for a device and itself.
  if (device == peer)
    return {.access = true, .performance_rank = 0, .native_atomics = true, .array_access = true};
  const auto ask = [&](CUdevice_P2PAttribute attribute) {
    int value = 0;
    check_cuda(cuda_driver().DeviceGetP2PAttribute(&value, attribute, cuda_device(device), cuda_device(peer)),
               "cuDeviceGetP2PAttribute");
    return value;
  };
  return {.access = ask(CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED) != 0,
          .performance_rank = ask(CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK),
          .native_atomics = ask(CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED) != 0,
          .array_access = ask(CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED) != 0};
}

}  // namespace onehop
