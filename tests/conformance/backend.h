// SPDX-License-Identifier: Apache-2.0
// The interface between the conformance suite and a backend. The suite is written once; a backend supplies
// ranks and memory. host_backend.cc and cuda_backend.cc have one program each: conformance_test and
// cuda_test.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "onehop/onehop.h"

namespace onehop::testing {

/// A rank's ordinary memory, as used by callers without symmetric buffers, and the stream of its calls. Only
/// the rank's thread uses it.
class RankMemory {
 public:
  RankMemory() = default;
  RankMemory(const RankMemory&) = delete;
  RankMemory& operator=(const RankMemory&) = delete;
  virtual ~RankMemory() = default;

  [[nodiscard]] virtual Stream stream() const = 0;
  [[nodiscard]] virtual std::byte* allocate(std::size_t bytes) = 0;
  virtual void release(std::byte* data) = 0;
  /// Copies to and from ordinary and symmetric memory. Both are complete on return.
  virtual void upload(void* to, const void* from, std::size_t bytes) = 0;
  virtual void download(void* to, const void* from, std::size_t bytes) = 0;
};

struct Backend {
  std::string name;            ///< as it appears in the names of tests
  bool on_gpus = false;        ///< selects the behavior that collectives.h describes for GPUs
  std::vector<int> sizes;      ///< numbers of ranks to test with
  std::vector<int> few_sizes;  ///< fewer numbers of ranks, for tests that depend little on them

  /// Why the backend cannot run here (no GPU, too few), or an empty string.
  std::function<std::string(int ranks)> unavailable;
  /// Runs `body` once per rank, each with its end of a fresh group, and fails the test with any error that a
  /// rank throws.
  std::function<void(int ranks, const JoinOptions&, const std::function<void(Group&)>& body)> run;
  std::function<std::unique_ptr<RankMemory>(Group&)> memory;
};

/// All backends of this program.
[[nodiscard]] const std::vector<Backend>& backends();

}  // namespace onehop::testing
