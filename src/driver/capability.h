// SPDX-License-Identifier: Apache-2.0
// Which GPUs are too old.
#pragma once

namespace onehop {

/// The compute capability that kernels are built for, times ten; 80 for 8.0.
inline constexpr int kOldestCapability = 80;

}  // namespace onehop
