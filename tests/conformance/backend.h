// SPDX-License-Identifier: Apache-2.0
// What the conformance suite needs to know of a backend. The suite is written once; a backend brings ranks
// and memory. host_backend.cc and cuda_backend.cc have one program each: conformance_test and cuda_test.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "onehop/onehop.h"

namespace onehop::testing {

/// A rank's ordinary memory, what users pass when they know nothing of symmetric buffers, and where its calls
/// are queued. Used by the rank's thread alone.
class RankMemory {
 public:
  RankMemory() = default;
  RankMemory(const RankMemory&) = delete;
  RankMemory& operator=(const RankMemory&) = delete;
  virtual ~RankMemory() = default;

  [[nodiscard]] virtual Stream stream() const = 0;
  [[nodiscard]] virtual std::byte* allocate(std::size_t bytes) = 0;
  virtual void release(std::byte* data) = 0;
  /// To and from ordinary and symmetric memory. Both complete before they return.
  virtual void upload(void* to, const void* from, std::size_t bytes) = 0;
  virtual void download(void* to, const void* from, std::size_t bytes) = 0;
};

struct Backend {
  std::string name;            ///< as it appears in the names of tests
  bool on_gpus = false;        ///< where they behave differently, as collectives.h says
  std::vector<int> sizes;      ///< numbers of ranks to test with
  std::vector<int> few_sizes;  ///< the same for what depends little on it

  /// Why it cannot run here (no GPU, too few), or an empty string.
  std::function<std::string(int ranks)> unavailable;
  /// Runs `body` once per rank, each with its end of a fresh group, and fails the test with what a rank
  /// throws.
  std::function<void(int ranks, const JoinOptions&, const std::function<void(Group&)>& body)> run;
  std::function<std::unique_ptr<RankMemory>(Group&)> memory;
};

/// All that this program has.
[[nodiscard]] const std::vector<Backend>& backends();

}  // namespace onehop::testing
