// SPDX-License-Identifier: Apache-2.0
// Opens the file store's directory and files without following, changing or waiting for anything of another
// user: links, FIFOs, devices.
#pragma once

#include <string>

#include "os/unique_fd.h"

namespace onehop::store {

/// Opens the directory, and creates it with mode 0700 if missing. Walks its path component by component and
/// follows symbolic links only if they belong to this user or to root. Throws Error{invalid_argument}, which
/// names the path and a remedy, for an empty path, the root directory, a link or directory of another user,
/// and a directory that others may write to.
[[nodiscard]] os::UniqueFd open_own_directory(const std::string& path);

/// Opens a regular file of this user by openat(2), without blocking. `flags` may have O_CREAT (mode 0600),
/// but not O_TRUNC. Returns an empty descriptor if the file does not exist. Throws Error{protocol} if `path`
/// (used in messages) is a link, a FIFO, a device, a directory, or a file of another user, and names which.
[[nodiscard]] os::UniqueFd open_own_file(int directory, const std::string& name, int flags,
                                         const std::string& path);

}  // namespace onehop::store
