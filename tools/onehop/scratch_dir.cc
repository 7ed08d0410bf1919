// SPDX-License-Identifier: Apache-2.0
#include "scratch_dir.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <string_view>
#include <system_error>

#include "base/check.h"
#include "base/env.h"

namespace onehop::cli {
namespace {

namespace fs = std::filesystem;

// Tells our directories from others of the same name.
constexpr const char* kMarker = ".onehop-private";

std::string name_prefix() {
  return fmt::format("onehop-{}-launch-", ::geteuid());
}

/// Takes the lock of a directory of ours: the directory itself, as the library does for its own. Empty, with
/// errno set, when that is not possible; EWOULDBLOCK and ENOENT mean that it has an owner or is being
/// removed.
Fd lock_directory(const fs::path& directory) {
  Fd lock(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat held {};
  if (!lock || ::fstat(lock.get(), &held) != 0) return {};
  if (held.st_uid != ::geteuid()) {
    errno = EACCES;
    return {};
  }
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) return {};
  // A sweep may have removed it between the open and the lock: then the lock protects nothing.
  struct stat named {};
  if (::lstat(directory.c_str(), &named) != 0) return {};
  if (named.st_dev != held.st_dev || named.st_ino != held.st_ino) {
    errno = ENOENT;
    return {};
  }
  return lock;
}

/// A name that a launcher makes: what mkdtemp puts for XXXXXX behind the prefix.
bool is_own_name(std::string_view name) {
  const std::string prefix = name_prefix();
  return name.starts_with(prefix) && name.size() == prefix.size() + 6 &&
         std::all_of(name.begin() + static_cast<std::ptrdiff_t>(prefix.size()), name.end(),
                     [](unsigned char c) { return std::isalnum(c) != 0; });
}

/// Removes what killed launchers left. A directory without the marker goes only if it is empty: its maker was
/// killed before it could put it there.
void sweep_stale(const fs::path& base) {
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(base, ignored)) {
    if (!is_own_name(entry.path().filename().string())) continue;
    const Fd lock = lock_directory(entry.path());
    struct stat info {};
    if (!lock || ::fstat(lock.get(), &info) != 0 || (info.st_mode & 07777) != 0700) continue;
    struct stat marker {};
    const bool marked = ::fstatat(lock.get(), kMarker, &marker, AT_SYMLINK_NOFOLLOW) == 0 &&
                        S_ISREG(marker.st_mode) && marker.st_uid == ::geteuid();
    if (marked) {
      fs::remove_all(entry.path(), ignored);
    } else {
      (void)::rmdir(entry.path().c_str());
    }
  }
}

}  // namespace

ScratchDir::ScratchDir() {
  const fs::path base = env::runtime_base();
  sweep_stale(base);
  constexpr int kAttempts =
      16;  // each lost race is another launcher's sweep meeting a directory not locked yet
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    std::string name = (base / (name_prefix() + "XXXXXX")).string();
    if (::mkdtemp(name.data()) == nullptr) {
      fail_errno(errno,
                 fmt::format("cannot make a private directory in {} (set ONEHOP_RUNTIME_DIR to a directory "
                             "you can write to)",
                             base.string()));
    }
    lock_ = lock_directory(name);
    if (lock_) {
      const Fd marker(
          ::openat(lock_.get(), kMarker, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
      if (!marker) {
        const int err = errno;
        (void)::rmdir(name.c_str());
        fail_errno(err, fmt::format("cannot create {}/{}", name, kMarker));
      }
      path_ = name;
      return;
    }
    if (errno != EWOULDBLOCK && errno != ENOENT) fail_errno(errno, fmt::format("cannot lock {}", name));
  }
  fail(ErrorCode::system, "cannot keep a private directory in {}: another process removes it again",
       base.string());
}

ScratchDir::~ScratchDir() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace onehop::cli
