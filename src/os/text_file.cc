// SPDX-License-Identifier: Apache-2.0
#include "os/text_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/check.h"
#include "os/open.h"

namespace onehop::os {

std::string read_text_file(const std::string& path, const std::string& what, std::size_t limit) {
  // O_NONBLOCK: opening a named pipe without a writer would block forever here, before it is rejected below.
  const UniqueFd file = open_at(AT_FDCWD, path, O_RDONLY | O_NONBLOCK);
  if (!file) {
    if (errno == ENOENT) fail(ErrorCode::not_found, "{} does not exist", what);
    fail_errno(errno, fmt::format("{} cannot be opened", what));
  }
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) fail_errno(errno, fmt::format("{} cannot be examined", what));
  if (!S_ISREG(status.st_mode)) {
    fail(ErrorCode::invalid_argument, "{} is {}", what,
         S_ISDIR(status.st_mode) ? "a directory" : "not a regular file");
  }
  std::string text(limit + 1, '\0');  // one more than allowed, to detect larger files
  std::size_t size = 0;
  while (size < text.size()) {
    const ssize_t got = ::read(file.get(), text.data() + size, text.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_errno(errno, fmt::format("{} cannot be read", what));
    if (got == 0) break;
    size += static_cast<std::size_t>(got);
  }
  if (size > limit) fail(ErrorCode::protocol, "{}: more than the limit of {} bytes", what, limit);
  text.resize(size);
  return text;
}

}  // namespace onehop::os
