// SPDX-License-Identifier: Apache-2.0
#include "store/own_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <deque>
#include <string_view>

#include "base/check.h"
#include "os/open.h"

namespace onehop::store {
namespace {

constexpr int kMostLinks = 40;  // Linux's limit for one path

struct stat examine(int fd, const std::string& path) {
  struct stat info = {};
  if (::fstat(fd, &info) != 0) fail_errno(errno, fmt::format("cannot examine {}", path));
  return info;
}

/// Prepends the components of `path` to the remaining ones.
void prepend(std::deque<std::string>& components, std::string_view path) {
  std::deque<std::string> parts;
  while (!path.empty()) {
    const std::size_t end = std::min(path.find('/'), path.size());
    if (end > 0 && path.substr(0, end) != ".") parts.emplace_back(path.substr(0, end));
    path.remove_prefix(std::min(end + 1, path.size()));
  }
  components.insert(components.begin(), parts.begin(), parts.end());
}

std::string target_of(int link, const std::string& path) {
  std::string target(PATH_MAX, '\0');
  const ssize_t size = ::readlinkat(link, "", target.data(), target.size());
  if (size < 0) fail_errno(errno, fmt::format("cannot read a link in the store directory {}", path));
  target.resize(static_cast<std::size_t>(size));
  return target;
}

os::UniqueFd open_start(std::string_view path) {
  os::UniqueFd fd = os::open_at(AT_FDCWD, path.starts_with('/') ? "/" : ".", O_PATH | O_DIRECTORY);
  if (!fd) fail_errno(errno, "cannot open the directory that a store's path begins in");
  return fd;
}

/// Resolves the path and returns an O_PATH descriptor.
os::UniqueFd walk(const std::string& path) {
  os::UniqueFd at = open_start(path);
  std::deque<std::string> left;
  prepend(left, path);
  for (int links = 0; !left.empty();) {
    const std::string name = left.front();
    left.pop_front();
    if (left.empty() && ::mkdirat(at.get(), name.c_str(), 0700) != 0 && errno != EEXIST) {
      fail_errno(errno, fmt::format("cannot create the store directory {}", path));
    }
    os::UniqueFd next = os::open_at(at.get(), name, O_PATH | O_NOFOLLOW);
    if (!next) fail_errno(errno, fmt::format("cannot open the store directory {} ('{}')", path, name));
    const struct stat info = examine(next.get(), path);
    if (!S_ISLNK(info.st_mode)) {
      at = std::move(next);
      continue;
    }
    require(info.st_uid == ::geteuid() || info.st_uid == 0,
            "the store directory {} leads through '{}', a symbolic link of user id {}, who could lead it "
            "anywhere: use a path without it",
            path, name, info.st_uid);
    if (++links > kMostLinks) fail_errno(ELOOP, fmt::format("cannot open the store directory {}", path));
    const std::string target = target_of(next.get(), path);
    if (target.starts_with('/')) at = open_start(target);
    prepend(left, target);
  }
  return at;
}

std::string_view kind_of(mode_t mode) {
  if (S_ISLNK(mode)) return "a symbolic link";
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISSOCK(mode)) return "a socket";
  return S_ISREG(mode) ? "a file" : "a device";
}

[[noreturn]] void refuse(const struct stat& info, const std::string& path) {
  fail(ErrorCode::protocol,
       "{} is not a file of a store but {} of user id {}: remove it, or use another directory for the store",
       path, kind_of(info.st_mode), info.st_uid);
}

}  // namespace

os::UniqueFd open_own_directory(const std::string& path) {
  require(!path.empty(), "a file store needs the path of a directory, got an empty one");
  const os::UniqueFd found = walk(path);
  os::UniqueFd directory = os::open_at(found.get(), ".", O_RDONLY | O_DIRECTORY);
  if (!directory) fail_errno(errno, fmt::format("cannot open the store directory {}", path));
  const struct stat info = examine(directory.get(), path);
  const os::UniqueFd root = open_start("/");
  const struct stat root_info = examine(root.get(), "/");
  require(info.st_dev != root_info.st_dev || info.st_ino != root_info.st_ino,
          "the store directory {} is the root directory: name a directory for the store alone, such as "
          "/tmp/my-job",
          path);
  require(info.st_uid == ::geteuid(),
          "the store directory {} belongs to user id {}, not to {}: use a directory of your own", path,
          info.st_uid, ::geteuid());
  require((info.st_mode & 022) == 0,
          "the store directory {} may be written by others (mode {:04o}): chmod go-w it, or use another",
          path, info.st_mode & 07777);
  if (::faccessat(directory.get(), ".", R_OK | W_OK | X_OK, AT_EACCESS) != 0) {
    fail_errno(errno, fmt::format("the store directory {} is not writable", path));
  }
  return directory;
}

os::UniqueFd open_own_file(int directory, const std::string& name, int flags, const std::string& path) {
  // Without O_NONBLOCK, opening a FIFO or a device may block.
  os::UniqueFd file = os::open_at(directory, name, flags | O_NOFOLLOW | O_NONBLOCK, 0600);
  if (!file) {
    const int error = errno;
    struct stat info = {};
    if (error == ENOENT && (flags & O_CREAT) == 0) return file;
    if (::fstatat(directory, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISREG(info.st_mode)) {
      refuse(info, path);
    }
    fail_errno(error, fmt::format("cannot open {}", path));
  }
  const struct stat info = examine(file.get(), path);
  if (!S_ISREG(info.st_mode) || info.st_uid != ::geteuid()) refuse(info, path);
  return file;
}

}  // namespace onehop::store
