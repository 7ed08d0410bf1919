// What stands in for the CUDA backend in a build without a CUDA toolkit: the same functions, each of which
// says so.
#include "onehop/peer_access.h"
#include "onehop/peer_check.h"

#include "base/check.h"

namespace onehop {
namespace {

[[noreturn]] void fail_without_cuda(const char* what) {
  fail(ErrorCode::unsupported,
       "{}: this onehop was built without CUDA; build it where a CUDA toolkit is installed", what);
}

}  // namespace

PeerAccess& PeerAccess::of_process() {
  static auto& instance = *new PeerAccess;
  return instance;
}

PeerAccess::PeerAccess(int device_count) {
  reset(device_count);
}

void PeerAccess::reset(int device_count) {
  require(device_count >= 0, "a number of devices must not be negative, got {}", device_count);
  const std::lock_guard lock(mutex_);
  device_count_ = device_count;
}

int PeerAccess::device_count() const {
  const std::lock_guard lock(mutex_);
  return device_count_ < 0 ? 0 : device_count_;
}

bool PeerAccess::can_access(DeviceId, DeviceId) {
  fail_without_cuda("peer access");
}

void PeerAccess::grant_pool_access(DeviceId, DeviceId) {
  fail_without_cuda("peer access");
}

void PeerAccess::grant_pool_access(void*, DeviceId) {
  fail_without_cuda("peer access");
}

PairAttributes PeerAccess::pair_attributes(DeviceId, DeviceId) const {
  fail_without_cuda("peer access");
}

std::vector<PairReport> check_peers(const PeerCheckOptions&) {
  fail_without_cuda("peer check");
}

bool peers_verified(const std::vector<DeviceId>&) {
  fail_without_cuda("peer check");
}

}  // namespace onehop
