// What the conformance suite needs to know of a backend. The suite is written once; a backend brings ranks
// and memory.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "onehop/onehop.h"

namespace onehop::testing {

struct Backend {
  std::string name;  ///< as it appears in the names of tests

  /// Why it cannot run here (no GPU, too few), or an empty string.
  std::function<std::string(int ranks)> unavailable;
  /// Runs `body` once per rank, each with its end of a fresh group, and fails the test with what a rank
  /// throws.
  std::function<void(int ranks, const JoinOptions&, const std::function<void(Group&)>& body)> run;

  /// The rank's ordinary memory: what users pass when they know nothing of symmetric buffers.
  std::function<std::byte*(std::size_t bytes)> allocate;
  std::function<void(std::byte*)> release;
  /// Both complete before they return.
  std::function<void(std::byte* to, const std::byte* from, std::size_t bytes)> upload;
  std::function<void(std::byte* to, const std::byte* from, std::size_t bytes)> download;
};

/// All that this build has.
[[nodiscard]] const std::vector<Backend>& backends();

}  // namespace onehop::testing
