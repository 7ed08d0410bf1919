#include "scratch_dir.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdlib>
#include <system_error>

#include "base/check.h"
#include "base/env.h"

namespace onehop::cli {
namespace {

namespace fs = std::filesystem;

std::string name_prefix() {
  return fmt::format("onehop-{}-launch-", ::geteuid());
}

/// Takes the lock of a directory of ours: the directory itself, as the library does for its own (which have
/// the same prefix, so that its sweeps meet ours). Empty, with errno set, when that is not possible;
/// EWOULDBLOCK and ENOENT mean that it has an owner or is being removed.
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

void sweep_stale(const fs::path& base) {
  std::error_code ignored;
  const std::string prefix = name_prefix();
  for (const fs::directory_entry& entry : fs::directory_iterator(base, ignored)) {
    if (!entry.path().filename().string().starts_with(prefix)) continue;
    const Fd lock = lock_directory(entry.path());
    if (lock) fs::remove_all(entry.path(), ignored);
  }
}

}  // namespace

fs::path runtime_base() {
  for (const char* name : {"ONEHOP_RUNTIME_DIR", "XDG_RUNTIME_DIR", "TMPDIR"}) {
    if (const auto value = env::get(name)) return *value;
  }
  return "/tmp";
}

ScratchDir::ScratchDir() {
  const fs::path base = runtime_base();
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
