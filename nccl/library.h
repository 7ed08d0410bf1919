// SPDX-License-Identifier: Apache-2.0
// The real NCCL: where it is, and its functions.
#pragma once

#include <string>

#include "abi.h"

namespace onehop::nccl {

enum class Mode {
  accelerate,  ///< there is an NCCL: what this library does not carry is forwarded to it
  alone,       ///< there is none, or ONEHOP_NCCL=alone
  off,         ///< ONEHOP_NCCL=off: everything is forwarded
};

struct Library {
  Mode mode = Mode::alone;
  void* handle = nullptr;  ///< of dlopen; nullptr if no NCCL was found
  std::string path;
  std::string version;  ///< "2.28.9"
  std::string why_not;  ///< why none was found

  /// The library's own function, under its name with the prefix p where it has that: no other library replaces it. nullptr
  /// if it has none.
  [[nodiscard]] void* function(const char* name) const;
};

/// Says that this mode has no function of that name, and what to do.
Result fail_missing(const char* name) noexcept;

/// Says a line at level info, also where NCCL_DEBUG=INFO asks for it.
void inform(const std::string& line);

/// Looks for NCCL on the first call, and says at level info what it found. Thread-safe.
[[nodiscard]] const Library& library();

}  // namespace onehop::nccl
