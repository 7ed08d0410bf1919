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
  return fmt::format("onehop-{}-launch-", ::getuid());
}

/// Takes the lock of a directory of ours. Empty, with errno set, when that is not possible; EWOULDBLOCK and
/// ENOENT mean that it has an owner or is being removed.
Fd lock_directory(const fs::path& directory) {
  const Fd dir(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat info {};
  if (!dir || ::fstat(dir.get(), &info) != 0 || info.st_uid != ::getuid()) return {};
  Fd lock(::openat(dir.get(), "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!lock || ::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) return {};
  // A sweeper may have removed the file between the open and the lock: then the lock protects nothing.
  if (::fstat(lock.get(), &info) != 0 || info.st_nlink == 0) {
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
