// SPDX-License-Identifier: Apache-2.0
#include "os/open.h"

#include <fcntl.h>

#include <cerrno>

namespace onehop::os {

UniqueFd open_at(int directory, const std::string& path, int flags, unsigned mode) {
  int fd = -1;
  do {
    fd = ::openat(directory, path.c_str(), flags | O_CLOEXEC, mode);
  } while (fd < 0 && errno == EINTR);
  return UniqueFd(fd);
}

}  // namespace onehop::os
