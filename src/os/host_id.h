// SPDX-License-Identifier: Apache-2.0
// Identity of the machine.
#pragma once

#include <string>

namespace onehop::os {

/// The kernel's boot id. Two processes can share memory exactly if their boot ids are equal. Containers see
/// the host's id.
[[nodiscard]] std::string boot_id();
/// The host name, for messages only: containers of one host have different names.
[[nodiscard]] std::string hostname();

}  // namespace onehop::os
