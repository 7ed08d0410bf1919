// SPDX-License-Identifier: Apache-2.0
#include "driver/share_trial.h"

#include <cerrno>
#include <cstdint>

#include "base/check.h"
#include "base/deadline.h"
#include "os/socket.h"
#include "os/unique_fd.h"

namespace onehop {
namespace {

/// Passes a descriptor through a socket, as to another process. Sandboxes and seccomp filters may prevent it.
os::UniqueFd pass_through_socket(const os::UniqueFd& descriptor) {
  const auto [from, to] = os::socket_pair();
  const Deadline soon = Deadline::after(Duration{1000});
  os::Message received;
  if (os::send_message(from.get(), "d", descriptor.get(), soon) != os::SendStatus::sent ||
      !os::recv_message(to.get(), received, soon))
    fail(ErrorCode::system, "a descriptor did not pass through a socket");
  if (!received.fd && received.fd_lost) fail_errno(EMFILE, "receiving a descriptor");
  if (!received.fd) fail(ErrorCode::system, "a descriptor was lost in a socket");
  return std::move(received.fd);
}

/// One trial run. The destructor releases everything that is still held.
class Sharing {
 public:
  Sharing(const CudaDriver& driver, DeviceId device, CUmemAllocationHandleType type)
      : driver_(driver), type_(type) {
    properties_.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties_.location = {};
    properties_.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties_.location.id = device.value;
    properties_.requestedHandleTypes = type;
  }
  Sharing(const Sharing&) = delete;
  Sharing& operator=(const Sharing&) = delete;
  ~Sharing() {
    unmap();
    release(imported_);
    release(created_);
  }

  void run(ShareTrial trial) {
    const bool done =
        step("cuMemGetAllocationGranularity",
             driver_.MemGetAllocationGranularity(&bytes_, &properties_, CU_MEM_ALLOC_GRANULARITY_MINIMUM)) &&
        create() && exchange() && (trial != ShareTrial::map || map());
    if (!done) return;
    // The release functions are part of the trial.
    unmap();
    release(imported_);
    release(created_);
  }
  [[nodiscard]] const std::optional<ShareFailure>& failure() const { return failure_; }

 private:
  /// Records the first failure.
  bool step(const char* call, CUresult result) {
    if (result != CUDA_SUCCESS && !failure_) failure_ = ShareFailure{.call = call, .result = result};
    return result == CUDA_SUCCESS;
  }

  bool create() {
    return step("cuMemCreate", driver_.MemCreate(&created_.handle, bytes_, &properties_, 0)) &&
           (created_.held = true);
  }

  bool exchange() {
    constexpr const char* kExport = "cuMemExportToShareableHandle";
    constexpr const char* kImport = "cuMemImportFromShareableHandle";
    void* shareable = nullptr;
    CUmemFabricHandle fabric{};
    os::UniqueFd descriptor;
    if (type_ == CU_MEM_HANDLE_TYPE_FABRIC) {
      if (!step(kExport, driver_.MemExportToShareableHandle(&fabric, created_.handle, type_, 0)))
        return false;
      shareable = &fabric;
    } else {
      int number = -1;
      if (!step(kExport, driver_.MemExportToShareableHandle(&number, created_.handle, type_, 0)))
        return false;
      descriptor.reset(number);
      try {
        descriptor = pass_through_socket(descriptor);
      } catch (const Error& error) {
        if (error.code() == ErrorCode::out_of_resources) throw;
        failure_ = ShareFailure{.call = "sendmsg", .passing = error.message()};
        return false;
      }
      number = descriptor.get();
      // A descriptor as a pointer is how the driver wants it. NOLINTNEXTLINE(performance-no-int-to-ptr)
      shareable = reinterpret_cast<void*>(static_cast<std::intptr_t>(number));
    }
    return step(kImport, driver_.MemImportFromShareableHandle(&imported_.handle, shareable, type_)) &&
           (imported_.held = true);
  }

  bool map() {
    if (!step("cuMemAddressReserve", driver_.MemAddressReserve(&address_, bytes_, 0, 0, 0))) return false;
    reserved_ = true;
    if (!step("cuMemMap", driver_.MemMap(address_, bytes_, 0, imported_.handle, 0))) return false;
    mapped_ = true;
    CUmemAccessDesc access{};
    access.location = properties_.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return step("cuMemSetAccess", driver_.MemSetAccess(address_, bytes_, &access, 1));
  }

  void unmap() {
    if (mapped_) step("cuMemUnmap", driver_.MemUnmap(address_, bytes_));
    mapped_ = false;
    if (reserved_) step("cuMemAddressFree", driver_.MemAddressFree(address_, bytes_));
    reserved_ = false;
  }

  struct Memory {
    CUmemGenericAllocationHandle handle = 0;
    bool held = false;
  };
  void release(Memory& memory) {
    if (memory.held) step("cuMemRelease", driver_.MemRelease(memory.handle));
    memory.held = false;
  }

  const CudaDriver& driver_;
  CUmemAllocationHandleType type_;
  CUmemAllocationProp properties_{};
  std::size_t bytes_ = 0;
  Memory created_;
  Memory imported_;
  CUdeviceptr address_ = 0;
  bool reserved_ = false;
  bool mapped_ = false;
  std::optional<ShareFailure> failure_;
};

}  // namespace

std::string ShareFailure::text() const {
  return fmt::format("{}: {}", call, passing.empty() ? cuda_error_text(result) : passing);
}

std::optional<ShareFailure> try_sharing(const CudaDriver& driver, DeviceId device,
                                        CUmemAllocationHandleType type, ShareTrial trial) {
  Sharing sharing(driver, device, type);
  sharing.run(trial);
  return sharing.failure();
}

}  // namespace onehop
