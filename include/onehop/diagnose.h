// SPDX-License-Identifier: Apache-2.0
// What works on this machine, what does not and what to do about it: what `onehop doctor` shows.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "onehop/export.h"

namespace onehop {

enum class Health : std::uint8_t {
  works,
  fails,
  not_applicable,  ///< not needed here, or plain information
};

struct Finding {
  std::string section;
  std::string name;
  Health health = Health::works;
  std::string detail;      ///< one line: what was found, or why it fails
  std::string remedy;      ///< one line, for what fails
  bool essential = false;  ///< the host backend needs it
};

struct GpuDiagnosis {
  bool usable = false;  ///< at least one GPU can be used
  std::string summary;  ///< "the GPU backend works here: 4 GPUs", or that it does not and why; one line
  std::vector<Finding> findings;
};

/// Tries what onehop needs of the GPUs that this process sees: driver, memory shared by descriptors, peer
/// access, links. Initialises CUDA and takes a context on every GPU, which can take seconds and stays for the
/// life of the process; gives all memory back. Never throws for what does not work. Thread-safe.
[[nodiscard]] ONEHOP_API GpuDiagnosis diagnose_gpus();

}  // namespace onehop
