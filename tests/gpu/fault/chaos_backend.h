// SPDX-License-Identifier: Apache-2.0
// The memory and calls of a member of the chaos program, on a GPU or on the host. The host lets the program
// be tried without a GPU.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "onehop/onehop.h"

#include "gpu/stress_plan.h"

namespace onehop::fault {

class ChaosBackend {
 public:
  [[nodiscard]] static std::unique_ptr<ChaosBackend> on_gpu(DeviceId device);
  [[nodiscard]] static std::unique_ptr<ChaosBackend> on_host();

  ChaosBackend() = default;
  ChaosBackend(const ChaosBackend&) = delete;
  ChaosBackend& operator=(const ChaosBackend&) = delete;
  virtual ~ChaosBackend() = default;

  [[nodiscard]] virtual DeviceId device() const = 0;
  [[nodiscard]] virtual Stream stream() const = 0;
  /// Loads what groups of up to `most` ranks need. Loading takes longer than the deadlines of a round.
  virtual void load(int most) = 0;

  /// Starts the calls of a group and forgets earlier findings. `symmetric` has StressPlan::kPartBytes.
  virtual void begin(int rank, int ranks, std::byte* symmetric) = 0;
  [[nodiscard]] virtual testing::StressArena arena() const = 0;
  /// Called before and after the calls of a batch, in stream order.
  virtual void fill(const testing::StressBatch& batch) = 0;
  virtual void check(const testing::StressBatch& batch) = 0;
  virtual void advance() = 0;
  /// Makes the calls `times` times, from a graph on GPUs, each time with fill() and check().
  virtual void replay(Group& group, const testing::StressBatch& batch, int times) = 0;
  /// Errors in the results of successful calls; empty if there are none.
  [[nodiscard]] virtual std::string findings() const = 0;

  virtual void fill_words(std::byte* at, std::uint32_t word, std::size_t count) = 0;
  [[nodiscard]] virtual std::uint32_t read_word(const std::byte* at) const = 0;
  /// True if the device still works after a failure.
  [[nodiscard]] virtual bool usable() = 0;
};

}  // namespace onehop::fault
