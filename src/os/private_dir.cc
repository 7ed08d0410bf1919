#include "os/private_dir.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>

#include "base/check.h"
#include "base/env.h"
#include "base/log.h"

namespace onehop::os {
namespace {

namespace fs = std::filesystem;

// Each lost race is another process's sweep meeting a directory between its making and its locking.
constexpr int kAttempts = 16;

std::string user_prefix() {
  return fmt::format("onehop-{}-", ::geteuid());
}

/// Takes the lock of a directory of ours. Empty, with errno set, when that is not possible; EWOULDBLOCK and
/// ENOENT mean that it has an owner or is being removed. The owner holds the lock for life; the kernel drops
/// it with the owner's last descriptor.
UniqueFd claim(const fs::path& path) {
  struct stat info {};
  const UniqueFd dir(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
  if (!dir || ::fstat(dir.get(), &info) != 0 || info.st_uid != ::geteuid()) return {};
  UniqueFd lock(::openat(dir.get(), "lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!lock || ::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) return {};
  // A sweep that came first has taken the name away: then the lock protects nothing.
  struct stat named {};
  if (::lstat(path.c_str(), &named) != 0) return {};
  if (named.st_ino != info.st_ino || named.st_dev != info.st_dev) {
    errno = ENOENT;
    return {};
  }
  return lock;
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
      if (!entry.path().filename().string().starts_with(user_prefix())) continue;
      const UniqueFd lock = claim(entry.path());
      if (!lock) continue;
      // First the name, then the content with its lock file: a maker that is only now about to lock finds
      // either this lock taken or its directory's name gone.
      fs::path dead = entry.path();
      dead += "-dead";
      fs::rename(entry.path(), dead, ignored);
      if (!ignored && fs::remove_all(dead, ignored) > 0) ++removed;
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
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    std::string path = fmt::format("{}/{}{}-XXXXXX", base, user_prefix(), purpose);
    if (::mkdtemp(path.data()) == nullptr) {  // mode 0700, name unpredictable, never an existing one
      fail_errno(
          errno,
          fmt::format("creating a private directory in {} (set ONEHOP_RUNTIME_DIR to a writable one)", base));
    }
    UniqueFd lock = claim(path);
    if (lock) return PrivateDir(std::move(path), std::move(lock));
    const int err = errno;
    std::error_code ignored;
    fs::remove_all(path, ignored);
    if (err != EWOULDBLOCK && err != ENOENT) fail_errno(err, fmt::format("locking {}/lock", path));
  }
  fail(ErrorCode::out_of_resources, "cannot make and lock a private directory in {} in {} attempts", base,
       kAttempts);
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
