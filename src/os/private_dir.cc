// SPDX-License-Identifier: Apache-2.0
#include "os/private_dir.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string_view>

#include "base/check.h"
#include "base/env.h"
#include "base/log.h"
#include "os/open.h"

namespace onehop::os {
namespace {

namespace fs = std::filesystem;

// How often a sweep may remove a directory before its owner has locked it. Even once is rare.
constexpr int kAttempts = 100;
// Distinguishes our directories from others of the same name.
constexpr const char* kMarker = ".onehop-private";
// The socket that a rank creates in its directory.
constexpr const char* kSocket = "socket";

std::string user_prefix() {
  return fmt::format("onehop-{}-", ::geteuid());
}

UniqueFd open_dir(const std::string& path) {
  return open_at(AT_FDCWD, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
}

bool try_lock(const UniqueFd& dir) {
  return ::flock(dir.get(), LOCK_EX | LOCK_NB) == 0;
}

bool is_at(const UniqueFd& dir, const std::string& path) {
  struct stat held {};
  struct stat named {};
  return ::fstat(dir.get(), &held) == 0 && ::lstat(path.c_str(), &named) == 0 &&
         held.st_dev == named.st_dev && held.st_ino == named.st_ino;
}

struct Purpose {
  std::string_view name;
  bool any_content;  ///< the owner may have put in anything; otherwise only the marker and a socket
};
constexpr Purpose kReclaimed[] = {{"group", false}, {"channel", false}, {"launch", true}};

/// The purpose of a directory of this name; nullptr if onehop creates no such name, which ends in characters
/// that mkdtemp substitutes for XXXXXX.
const Purpose* purpose_of(std::string_view name) {
  for (const Purpose& purpose : kReclaimed) {
    const std::string prefix = fmt::format("{}{}-", user_prefix(), purpose.name);
    if (!name.starts_with(prefix) || name.size() != prefix.size() + 6) continue;
    const bool random = std::all_of(name.begin() + static_cast<std::ptrdiff_t>(prefix.size()), name.end(),
                                    [](unsigned char c) { return std::isalnum(c) != 0; });
    return random ? &purpose : nullptr;
  }
  return nullptr;
}

bool has_type(const UniqueFd& dir, const char* name, mode_t type) {
  struct stat info {};
  return ::fstatat(dir.get(), name, &info, AT_SYMLINK_NOFOLLOW) == 0 && (info.st_mode & S_IFMT) == type &&
         info.st_uid == ::geteuid();
}

/// Whether the directory contains only files that onehop creates there. Without the marker it must be empty:
/// its creator was killed before writing the marker.
bool holds_only_ours(const UniqueFd& dir) {
  const int copy = open_at(dir.get(), ".", O_RDONLY | O_DIRECTORY).release();
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(copy < 0 ? nullptr : ::fdopendir(copy), &::closedir);
  if (!entries) {
    if (copy >= 0) (void)::close(copy);
    return false;
  }
  bool marked = false;
  bool used = false;
  errno = 0;
  while (const dirent* const entry = ::readdir(entries.get())) {
    const std::string_view name = entry->d_name;
    if (name == "." || name == "..") continue;
    if (name == kMarker && has_type(dir, kMarker, S_IFREG)) {
      marked = true;
    } else if (name == kSocket && has_type(dir, kSocket, S_IFSOCK)) {
      used = true;
    } else {
      return false;
    }
  }
  return errno == 0 && (marked || !used);
}

/// Removes a directory that is empty but for its marker. One that cannot be removed keeps it.
bool remove_marked(const UniqueFd& dir, const fs::path& path) {
  const bool marked = ::unlinkat(dir.get(), kMarker, 0) == 0;
  if (::rmdir(path.c_str()) == 0) return true;
  // By mknodat, which needs no descriptor.
  if (marked) (void)::mknodat(dir.get(), kMarker, S_IFREG | 0600, 0);
  return false;
}

/// Removes a directory with its content, the marker last: if this process is killed here, or cannot remove
/// all, the next sweep removes the rest.
bool remove_all(const UniqueFd& dir, const fs::path& path) {
  // By name: a process that has run out of descriptors cannot list the content.
  (void)::unlinkat(dir.get(), kSocket, 0);
  std::error_code unlisted;
  bool left = false;
  for (fs::directory_iterator entry(path, unlisted); entry != fs::directory_iterator();
       entry.increment(unlisted)) {
    if (entry->path().filename() == kMarker) continue;
    std::error_code failed;
    fs::remove_all(entry->path(), failed);
    if (failed) left = true;
  }
  // A directory that could not be listed may still hold what its owner has put in.
  const Purpose* const purpose = purpose_of(path.filename().string());
  if (left || (unlisted && (purpose == nullptr || purpose->any_content))) return false;
  return remove_marked(dir, path);
}

/// Removes `path` if onehop created it for a process of this user that no longer exists.
bool remove_if_stale(const fs::path& path, const Purpose& purpose) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0 || !S_ISDIR(info.st_mode) || info.st_uid != ::geteuid() ||
      (info.st_mode & 07777) != 0700)
    return false;
  // The owner holds an exclusive lock for its lifetime; the kernel releases it with the owner's last
  // descriptor. The sweep holds it until everything is removed, so that an owner about to take the lock
  // cannot add files.
  const UniqueFd dir = open_dir(path);
  if (!dir || !try_lock(dir) || !is_at(dir, path)) return false;
  if (purpose.any_content && has_type(dir, kMarker, S_IFREG)) return remove_all(dir, path);
  if (!holds_only_ours(dir)) return false;
  // Remove by name, the marker last: if a sweep is killed half-way, the next one can remove the rest.
  (void)::unlinkat(dir.get(), kSocket, 0);
  return remove_marked(dir, path);
}

}  // namespace

int reclaim_stale_dirs(const std::string& base) noexcept {
  int removed = 0;
  try {
    std::error_code ignored;
    for (const fs::directory_entry& entry : fs::directory_iterator(base, ignored)) {
      const Purpose* const purpose = purpose_of(entry.path().filename().string());
      if (purpose != nullptr && remove_if_stale(entry.path(), *purpose)) ++removed;
    }
  } catch (const std::exception& e) {
    // Another process may sweep at the same time; the next sweep removes the rest.
    log::debug("sweeping {}: {}", base, e.what());
  }
  return removed;
}

PrivateDir PrivateDir::create(const std::string& purpose) {
  const std::string base = env::runtime_base();
  (void)reclaim_stale_dirs(base);
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    std::string path = fmt::format("{}/{}{}-XXXXXX", base, user_prefix(), purpose);
    if (::mkdtemp(path.data()) == nullptr) {  // mode 0700, an unpredictable name, never an existing directory
      fail_errno(
          errno,
          fmt::format("creating a private directory in {} (set ONEHOP_RUNTIME_DIR to a writable one)", base));
    }
    // Until the directory is locked a sweep may remove it, because it looks like one whose owner was killed
    // at this point. Then it is gone or locked by the sweep, and another one is created.
    UniqueFd lock = open_dir(path);
    const int err = lock && try_lock(lock) ? 0 : errno;
    if (err == 0 && is_at(lock, path)) {
      PrivateDir made(std::move(path), std::move(lock));
      const UniqueFd marker =
          open_at(made.lock_.get(), kMarker, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
      if (!marker) fail_errno(errno, fmt::format("creating {}/{}", made.path_, kMarker));
      return made;
    }
    if (err != 0 && err != ENOENT && err != EWOULDBLOCK) {
      (void)::rmdir(path.c_str());
      fail_errno(err, fmt::format("locking {}", path));
    }
  }
  fail(ErrorCode::system, "{} new directories in {} were removed by others before they could be locked",
       kAttempts, base);
}

PrivateDir& PrivateDir::operator=(PrivateDir&& other) noexcept {
  if (this != &other) {
    remove();
    path_ = std::move(other.path_);
    other.path_.clear();
    lock_ = std::move(other.lock_);
  }
  return *this;
}

PrivateDir::~PrivateDir() {
  remove();
}

void PrivateDir::remove() noexcept {
  // A moved-from object has no lock. The lock is released last, so that no sweep races with the removal.
  if (!lock_) return;
  if (is_at(lock_, path_)) (void)remove_all(lock_, path_);
  lock_.reset();
}

}  // namespace onehop::os
