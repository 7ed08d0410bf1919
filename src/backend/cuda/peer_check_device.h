// SPDX-License-Identifier: Apache-2.0
// One device's part in a peer check: its buffers, its stream, and the kernels that run there.
#pragma once

#include <exception>
#include <vector>

#include "onehop/types.h"

#include "backend/cuda/peer_check_params.h"
#include "base/deadline.h"
#include "driver/cuda_driver.h"

namespace onehop::peer_check {

/// Reports that a device did not finish in time. It is no Error, because such a device is a result of the
/// check.
class Hung : public std::exception {
 public:
  explicit Hung(std::string message) : message_(std::move(message)) {}
  [[nodiscard]] const char* what() const noexcept override { return message_.c_str(); }

 private:
  std::string message_;
};

/// All work is queued on one stream of the device. Only `wait`, `verify` and `read_scratch` block. Not
/// thread-safe.
class CheckDevice {
 public:
  /// `most_events`: maximum number of time stamps in one measurement.
  CheckDevice(DeviceId device, std::size_t bytes, int most_events);
  ~CheckDevice();
  CheckDevice(const CheckDevice&) = delete;
  CheckDevice& operator=(const CheckDevice&) = delete;

  [[nodiscard]] DeviceId id() const { return device_; }
  [[nodiscard]] std::uint64_t units() const { return bytes_ / kUnitBytes; }
  [[nodiscard]] CUdeviceptr inbox() const { return inbox_; }  ///< written and read by peers
  /// Source and destination of this device's own transfers.
  [[nodiscard]] CUdeviceptr outbox() const { return outbox_; }
  /// A device address: use it for address arithmetic only.
  [[nodiscard]] Scratch* scratch() const;

  void store(CUdeviceptr to, std::uint64_t key);
  void load(CUdeviceptr from, CUdeviceptr to);
  void send(const CheckDevice& to);  ///< copies the outbox to the peer's inbox, by copy engine
  void overwrite(CUdeviceptr buffer);
  void clear_scratch();
  void add(const CheckDevice& owner);
  void ping(const CheckDevice& peer, bool starts, std::uint32_t warmup, std::uint32_t rounds,
            std::uint64_t limit_ns);
  void stamp(int event);

  /// Throws Hung if the queued work has not finished by the deadline, and Error if the driver reports one.
  void wait(const Deadline& deadline) const;
  /// Compares `buffer`, on this device, with the pattern of `key`.
  [[nodiscard]] Verdict verify(CUdeviceptr buffer, std::uint64_t key, const Deadline& deadline);
  [[nodiscard]] Scratch read_scratch(const Deadline& deadline);
  [[nodiscard]] double milliseconds(int first_event, int second_event) const;

  /// Drops all resources without freeing them, because freeing would wait for a kernel that does not end.
  void abandon() { abandoned_ = true; }

 private:
  template <class Parameter>
  void launch(const char* kernel, unsigned grid, unsigned block, const Parameter& parameter);
  void launch_wide(const char* kernel, const auto& parameter);
  void release() noexcept;

  DeviceId device_;
  CUcontext context_;
  std::size_t bytes_;
  unsigned multiprocessors_ = 1;
  CUstream stream_ = nullptr;
  CUdeviceptr inbox_ = 0;
  CUdeviceptr outbox_ = 0;
  CUdeviceptr scratch_ = 0;
  Scratch* landing_ = nullptr;  ///< pinned host memory
  std::vector<CUevent> events_;
  bool abandoned_ = false;
};

}  // namespace onehop::peer_check
