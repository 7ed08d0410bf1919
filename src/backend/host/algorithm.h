// SPDX-License-Identifier: Apache-2.0
// One way to run collectives among host ranks. algorithms.cc lists all of them and says when each is chosen.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "backend/algorithm.h"
#include "backend/host/peer_memory.h"
#include "backend/host/step_barrier.h"
#include "call/call.h"

namespace onehop::host {

/// The steps of one rank's call, as its algorithm takes them. The layer above implements them for groups.
class Steps {
 public:
  Steps(StepBarrier& barrier, const CollectiveCall& call) : barrier_(barrier), call_(call) {}
  Steps(const Steps&) = delete;
  Steps& operator=(const Steps&) = delete;
  virtual ~Steps() = default;

  [[nodiscard]] StepBarrier& barrier() const { return barrier_; }
  [[nodiscard]] const CollectiveCall& call() const { return call_; }

  /// Whether ranks that have this much data for others let them read it in place, if that is possible. To find
  /// out takes one additional step.
  [[nodiscard]] virtual bool shows(std::size_t bytes) = 0;
  /// Announce where this rank's data lies. Called before the first step.
  virtual void show_input(std::span<const std::byte> data) = 0;
  virtual void show_output(std::span<const std::byte> data) = 0;

  /// Performs the first step. Returns when all ranks have made the same call, and throws on all of them
  /// otherwise.
  virtual void begin() = 0;
  /// The same, when the ranks are to learn where the input lies on every rank. Returns inputs().
  [[nodiscard]] PeerData begin_with(std::span<const std::byte> input) {
    show_input(input);
    begin();
    return inputs();
  }
  /// Performs the next step, in which ranks pass data. It is the first one if begin() was not called.
  virtual void step() = 0;
  /// Waits for rank r's current step.
  virtual void wait(int r) = 0;

  // Valid right after the first step; all ranks get the same answers.
  /// Every rank's data. Empty unless all ranks announced memory of one symmetric buffer, or all announced
  /// private memory.
  [[nodiscard]] virtual PeerData inputs() = 0;
  [[nodiscard]] virtual PeerData outputs() = 0;

  /// Called at the end of a call that read peers' data in place. A peer whose call failed in its last step may
  /// have changed that data meanwhile. It reported the failure first.
  virtual void require_no_failure() const = 0;

 private:
  StepBarrier& barrier_;
  const CollectiveCall& call_;
};

struct HostAlgorithm : AlgorithmTraits {
  /// Runs a call that has data. `chunk`: AlgorithmChoice::chunk.
  void (*run)(Steps& steps, std::optional<std::size_t> chunk);
};

/// All of them, in the order of algorithms().
[[nodiscard]] std::span<const HostAlgorithm* const> host_algorithms();

/// all_reduce.cc. `chosen`: AlgorithmChoice::chunk.
void one_shot(Steps& steps, std::optional<std::size_t> chosen);
void two_shot(Steps& steps, std::optional<std::size_t> chosen);
void reduce_scatter(Steps& steps, std::optional<std::size_t> chosen);
/// all_to_all_v.cc
void all_to_all_v(Steps& steps, std::optional<std::size_t> chunk);

}  // namespace onehop::host
