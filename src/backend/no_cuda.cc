// SPDX-License-Identifier: Apache-2.0
// Stands in for the CUDA backend in a build without a CUDA toolkit. It defines the same functions, which
// throw.
#include "onehop/device_memory.h"
#include "onehop/peer_access.h"
#include "onehop/peer_check.h"

#include "backend/cuda/communicator.h"
#include "backend/peer_record.h"
#include "base/check.h"
#include "memory/backend.h"
#include "memory/share_methods.h"
#include "memory/user_memory.h"
#include "memory/user_pointer.h"
#include "topology/device_files.h"
#include "topology/probe.h"

namespace onehop {
namespace {

[[noreturn]] void fail_without_cuda(const char* what) {
  fail(ErrorCode::unsupported,
       "{}: this onehop was built without CUDA; build it with a CUDA toolkit (make: CUDA=on)", what);
}

}  // namespace

std::unique_ptr<MemoryBackend> make_cuda_backend(DeviceId, ShareBy, Duration) {
  fail_without_cuda("memory of a GPU");
}

ShareMethods share_methods(DeviceId, ShareBy) {
  fail_without_cuda("memory of a GPU");
}

std::string identify_device(DeviceId) {
  fail_without_cuda("a rank on a GPU");
}

std::string device_name(DeviceId) {
  fail_without_cuda("a rank on a GPU");
}

int multiprocessors(DeviceId) {
  fail_without_cuda("a rank on a GPU");
}

bool has_peer_without_nvlink(DeviceId, const std::vector<std::string>&) {
  fail_without_cuda("a rank on a GPU");
}

std::unique_ptr<Communicator> Communicator::create(Options) {
  fail_without_cuda("a group of GPUs");
}

class DeviceMemory::State {};

DeviceMemory::DeviceMemory(std::shared_ptr<const State> state) : state_(std::move(state)) {}
const DeviceMemory::State& DeviceMemory::state() const {
  fail_without_cuda("DeviceMemory");
}
DeviceMemory DeviceMemory::create(DeviceId, std::size_t, DeviceMemoryOptions) {
  fail_without_cuda("DeviceMemory");
}
DeviceMemory DeviceMemory::import_fd(int, std::size_t, DeviceId) {
  fail_without_cuda("DeviceMemory");
}
DeviceMemory DeviceMemory::import_fabric(const FabricHandle&, std::size_t, DeviceId) {
  fail_without_cuda("DeviceMemory");
}
std::size_t DeviceMemory::bytes() const {
  fail_without_cuda("DeviceMemory");
}
std::byte* DeviceMemory::data() const {
  fail_without_cuda("DeviceMemory");
}
DeviceId DeviceMemory::device() const {
  fail_without_cuda("DeviceMemory");
}
int DeviceMemory::export_fd() const {
  fail_without_cuda("DeviceMemory");
}
FabricHandle DeviceMemory::export_fabric() const {
  fail_without_cuda("DeviceMemory");
}
void DeviceMemory::grant(DeviceId) const {
  fail_without_cuda("DeviceMemory");
}
bool DeviceMemory::granted(DeviceId) const {
  fail_without_cuda("DeviceMemory");
}

MemoryKind memory_kind(const void*) {
  return MemoryKind::host;
}
IpcHandle export_ipc(const void*, std::size_t) {
  fail_without_cuda("CUDA IPC");
}
IpcMapping IpcMapping::open(const IpcHandle&, DeviceId) {
  fail_without_cuda("CUDA IPC");
}

SharedUserMemory share_user_memory(const void*, std::size_t, DeviceId) {
  fail_without_cuda("memory of a GPU");
}
std::shared_ptr<Block> map_user_memory(const UserMemory&, os::UniqueFd, DeviceId) {
  fail_without_cuda("memory of a GPU");
}
bool still_there(const UserMemory&) {
  fail_without_cuda("memory of a GPU");
}

PointerError check_pointer(const void*, std::size_t, DeviceId, Stream) {
  fail_without_cuda("memory of a GPU");
}
std::string describe_wrong_pointer(const void*, std::size_t, DeviceId, Stream) {
  fail_without_cuda("memory of a GPU");
}

PeerAccess& PeerAccess::of_process() {
  static auto& instance = *new PeerAccess;
  return instance;
}

PeerAccess::PeerAccess(int device_count) {
  start_over(device_count);
}

void PeerAccess::reset(int device_count) {
  start_over(device_count);
}

void PeerAccess::start_over(int device_count) {
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

void PeerAccess::disable(DeviceId, DeviceId) {
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

peer_check::Outcomes peer_check::recorded_outcomes() {
  fail_without_cuda("peer check");
}

bool peers_verified(const std::vector<DeviceId>&) {
  fail_without_cuda("peer check");
}

DeviceProbe probe_devices() {
  DeviceProbe probe;
  probe.notes.emplace_back("this onehop was built without CUDA: no GPU is looked for");
  return probe;
}

DeviceInfo probe_identity(DeviceId) {
  fail_without_cuda("a rank on a GPU");
}

std::vector<int> probe_nvlinks(const std::vector<std::string>& bus_ids) {
  return std::vector<int>(bus_ids.size() * bus_ids.size());
}

GpuDiagnosis diagnose_gpus() {
  GpuDiagnosis diagnosis;
  const DeviceFiles files = check_device_files("/dev");
  diagnosis.findings.push_back(files.finding);
  Finding build{kGpuSection, "CUDA", Health::not_applicable, "this onehop was built without it", {}, false};
  if (files.gpus > 0) {
    build.health = Health::fails;
    build.remedy = "build onehop again with a CUDA toolkit (make: CUDA=on)";
  }
  diagnosis.findings.push_back(build);
  diagnosis.summary = "the GPU backend does not work here: this onehop was built without CUDA";
  return diagnosis;
}

}  // namespace onehop
