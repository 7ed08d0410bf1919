// SPDX-License-Identifier: Apache-2.0
#include "nccl_library.h"

#include <system_error>

namespace onehop::cli {

std::optional<std::filesystem::path> find_nccl_library() {
  std::error_code error;
  const std::filesystem::path command = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return std::nullopt;
  // Of an installation, of the Python package, and of a build tree.
  for (const char* const folder : {ONEHOP_NCCL_FROM_COMMAND, "..", "../../nccl"}) {
    const std::filesystem::path found = command.parent_path() / folder / "libonehop_nccl.so";
    if (std::filesystem::exists(found, error)) return std::filesystem::weakly_canonical(found, error);
  }
  return std::nullopt;
}

}  // namespace onehop::cli
