#include "os/private_dir.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <ctime>
#include <filesystem>

#include "base/check.h"
#include "base/env.h"
#include "base/log.h"

namespace onehop::os {
namespace {

namespace fs = std::filesystem;

// A directory without a lock file may be one that is just being made; older than this it is rubbish.
constexpr time_t kYoungSeconds = 60;

std::string user_prefix() {
  return fmt::format("onehop-{}-", ::geteuid());
}

/// Removes `dir` if its owner is dead. The lock is held meanwhile: an owner that is still making the directory then
/// fails to get it and makes another.
bool remove_if_stale(const fs::path& dir) {
  struct stat info {};
  if (::lstat(dir.c_str(), &info) != 0 || !S_ISDIR(info.st_mode) || info.st_uid != ::geteuid()) return false;
  const UniqueFd lock(::open((dir / "lock").c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  if (lock) {
    // The owner holds an exclusive lock for life; the kernel drops it with the owner's last descriptor.
    if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) return false;
  } else if (errno != ENOENT || info.st_mtime + kYoungSeconds >= ::time(nullptr)) {
    return false;
  }
  std::error_code ignored;
  return fs::remove_all(dir, ignored) > 0;
}

/// The lock of a directory just made; empty when a sweep came first, which removes the directory.
UniqueFd lock_new(const std::string& path) {
  UniqueFd lock(::open((path + "/lock").c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!lock) fail_errno(errno, fmt::format("creating {}/lock", path));
  struct stat info {};
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) return {};
    fail_errno(errno, fmt::format("locking {}/lock", path));
  }
  if (::fstat(lock.get(), &info) != 0) fail_errno(errno, fmt::format("examining {}/lock", path));
  return info.st_nlink > 0 ? std::move(lock) : UniqueFd{};
}

}  // namespace

std::string runtime_base() {
  for (const char* name : {"ONEHOP_RUNTIME_DIR", "XDG_RUNTIME_DIR", "TMPDIR"}) {
    if (std::optional<std::string> value = env::get(name)) return *std::move(value);
  }
  return "/tmp";
}

int reclaim_stale_dirs(const std::string& base) noexcept {
  int removed = 0;
  try {
    std::error_code ignored;
    for (const fs::directory_entry& entry : fs::directory_iterator(base, ignored)) {
      if (entry.path().filename().string().starts_with(user_prefix()) && remove_if_stale(entry.path())) ++removed;
    }
  } catch (const std::exception& e) {
    // Somebody else may sweep at the same time; what is left now goes next time.
    log::debug("sweeping {}: {}", base, e.what());
  }
  return removed;
}

PrivateDir PrivateDir::create(const std::string& purpose) {
  const std::string base = runtime_base();
  (void)reclaim_stale_dirs(base);
  while (true) {
    std::string path = fmt::format("{}/{}{}-XXXXXX", base, user_prefix(), purpose);
    if (::mkdtemp(path.data()) == nullptr) {  // mode 0700, name unpredictable, never an existing one
      fail_errno(
          errno,
          fmt::format("creating a private directory in {} (set ONEHOP_RUNTIME_DIR to a writable one)", base));
    }
    try {
      // Every attempt that a sweep spoils costs that sweep one, too, so this ends.
      if (UniqueFd lock = lock_new(path)) return PrivateDir(std::move(path), std::move(lock));
    } catch (...) {
      std::error_code ignored;
      fs::remove_all(path, ignored);
      throw;
    }
  }
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
  // A moved-from directory has no lock. The lock goes last, so that a sweep never races with the removal.
  if (!lock_) return;
  std::error_code ignored;
  fs::remove_all(path_, ignored);
  lock_.reset();
}

}  // namespace onehop::os
