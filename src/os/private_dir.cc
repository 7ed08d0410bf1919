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

bool is_stale(const fs::path& dir) {
  struct stat info {};
  if (::lstat(dir.c_str(), &info) != 0 || !S_ISDIR(info.st_mode) || info.st_uid != ::geteuid()) return false;
  const UniqueFd lock(::open((dir / "lock").c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  if (!lock) return errno == ENOENT && info.st_mtime + kYoungSeconds < ::time(nullptr);
  // The owner holds an exclusive lock for life; the kernel drops it with the owner's last descriptor.
  return ::flock(lock.get(), LOCK_EX | LOCK_NB) == 0;
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
      if (!entry.path().filename().string().starts_with(user_prefix()) || !is_stale(entry.path())) continue;
      if (fs::remove_all(entry.path(), ignored) > 0) ++removed;
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
  std::string path = fmt::format("{}/{}{}-XXXXXX", base, user_prefix(), purpose);
  if (::mkdtemp(path.data()) == nullptr) {  // mode 0700, name unpredictable, never an existing one
    fail_errno(
        errno,
        fmt::format("creating a private directory in {} (set ONEHOP_RUNTIME_DIR to a writable one)", base));
  }
  // Locked before it gets its name: whoever sweeps never sees a lock file that is not held yet.
  const std::string unnamed = path + "/lock.new";
  UniqueFd lock(::open(unnamed.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  const bool locked = lock && ::flock(lock.get(), LOCK_EX | LOCK_NB) == 0 &&
                      ::rename(unnamed.c_str(), (path + "/lock").c_str()) == 0;
  const int err = locked ? 0 : errno;
  PrivateDir dir(std::move(path), std::move(lock));  // from here on removed on every path
  if (err != 0) fail_errno(err, fmt::format("locking {}", dir.path()));
  return dir;
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
