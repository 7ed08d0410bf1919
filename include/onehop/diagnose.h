// SPDX-License-Identifier: Apache-2.0
// What works on this machine, what does not, and how to fix it: the content of `onehop doctor`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "onehop/export.h"

namespace onehop {

enum class Health : std::uint8_t {
  works,
  fails,
  not_applicable,  ///< not needed on this machine, or information only
};

struct Finding {
  std::string section;
  std::string name;
  Health health = Health::works;
  std::string detail;      ///< one line: what was found, or why it fails
  std::string remedy;      ///< one line: how to fix it; empty unless it fails
  bool essential = false;  ///< the host backend needs it
};

struct GpuDiagnosis {
  bool usable = false;  ///< at least one GPU is usable
  std::string summary;  ///< one line: "the GPU backend works here: 4 GPUs", or the reason why it does not
  std::vector<Finding> findings;
};

/// Checks what onehop needs of the GPUs visible to this process: driver, memory sharing by descriptors, peer
/// access, links. Initializes CUDA and retains the primary context of every GPU for the life of the process,
/// which can take seconds. Frees all memory that it allocates. Failed checks are reported, never thrown.
/// Thread-safe.
[[nodiscard]] ONEHOP_API GpuDiagnosis diagnose_gpus();

}  // namespace onehop
