// SPDX-License-Identifier: Apache-2.0
// The oldest supported compute capability.
#pragma once

namespace onehop {

/// The lowest compute capability that kernels are built for, times ten: 80 for 8.0.
inline constexpr int kOldestCapability = 80;

}  // namespace onehop
