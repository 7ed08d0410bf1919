// SPDX-License-Identifier: Apache-2.0
// Where libonehop_nccl.so is that came with this command.
#pragma once

#include <filesystem>
#include <optional>

namespace onehop::cli {

/// nullopt if it was not installed: it is a package of its own.
[[nodiscard]] std::optional<std::filesystem::path> find_nccl_library();

}  // namespace onehop::cli
