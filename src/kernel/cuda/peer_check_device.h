// SPDX-License-Identifier: Apache-2.0
// One device's part in a peer check: its buffers, its stream, and the kernels that run there.
#pragma once

#include <exception>
#include <vector>

#include "onehop/types.h"

#include "base/deadline.h"
#include "driver/cuda_driver.h"
#include "kernel/cuda/peer_check_params.h"

namespace onehop::peer_check {

/// A device did not finish in time. No Error: it is what the check is there to find.
class Hung : public std::exception {
 public:
  explicit Hung(std::string message) : message_(std::move(message)) {}
  [[nodiscard]] const char* what() const noexcept override { return message_.c_str(); }

 private:
  std::string message_;
};

/// Everything is queued on one stream of the device; nothing but `wait`, `verify` and `read_scratch` waits.
/// Not thread-safe.
class CheckDevice {
 public:
  /// `most_events`: time stamps one measurement takes.
  CheckDevice(DeviceId device, std::size_t bytes, int most_events);
  ~CheckDevice();
  CheckDevice(const CheckDevice&) = delete;
  CheckDevice& operator=(const CheckDevice&) = delete;

  [[nodiscard]] DeviceId id() const { return device_; }
  [[nodiscard]] std::uint64_t units() const { return bytes_ / kUnitBytes; }
  [[nodiscard]] CUdeviceptr inbox() const { return inbox_; }    ///< for what peers write and read
  [[nodiscard]] CUdeviceptr outbox() const { return outbox_; }  ///< for what it sends and fetches itself
  /// In the device's memory: for arithmetic on addresses only.
  [[nodiscard]] Scratch* scratch() const;

  void store(CUdeviceptr to, std::uint64_t key);
  void load(CUdeviceptr from, CUdeviceptr to);
  void send(const CheckDevice& to);  ///< outbox to the peer's inbox, by copy engine
  void overwrite(CUdeviceptr buffer);
  void clear_scratch();
  void add(const CheckDevice& owner);
  void ping(const CheckDevice& peer, bool starts, std::uint32_t warmup, std::uint32_t rounds,
            std::uint64_t limit_ns);
  void stamp(int event);

  /// Throws Hung when what was queued is not done by then, Error when the driver reports one.
  void wait(const Deadline& deadline) const;
  /// Compares `buffer`, on this device, with the pattern of `key`.
  [[nodiscard]] Verdict verify(CUdeviceptr buffer, std::uint64_t key, const Deadline& deadline);
  [[nodiscard]] Scratch read_scratch(const Deadline& deadline);
  [[nodiscard]] double milliseconds(int first_event, int second_event) const;

  /// Lets go of everything without giving it back: that would wait for a kernel that does not end.
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
