// SPDX-License-Identifier: Apache-2.0
// Opening the file store's directory and files such that nothing of another user is followed, changed or
// waited for: links that others made, FIFOs, devices.
#pragma once

#include <string>

#include "os/unique_fd.h"

namespace onehop::store {

/// Opens the directory, made with mode 0700 if missing. Its path is walked a component at a time: symbolic
/// links are followed if they belong to this user or to root. Error{invalid_argument} that names the path and
/// what to do: an empty path, the root directory, a link or directory of another user, a directory that
/// others may write.
[[nodiscard]] os::UniqueFd open_own_directory(const std::string& path);

/// openat(2) of a regular file of this user; never waits. `flags` may have O_CREAT (mode 0600), not O_TRUNC.
/// Empty when it does not exist. Error{protocol} that says what `path`, its name for messages, is instead: a
/// link, a FIFO, a device, a directory, a file of another user.
[[nodiscard]] os::UniqueFd open_own_file(int directory, const std::string& name, int flags,
                                         const std::string& path);

}  // namespace onehop::store
