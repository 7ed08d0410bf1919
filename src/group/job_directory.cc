// SPDX-License-Identifier: Apache-2.0
#include "group/job_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "base/deadline.h"
#include "base/env.h"
#include "base/interrupt.h"
#include "os/host_id.h"
#include "os/unique_fd.h"
#include "store/grace.h"
#include "store/own_files.h"

namespace onehop {
namespace {

namespace fs = std::filesystem;

/// `<base>/onehop-<uid>`, created if missing. Since the name is predictable, another user may have created it
/// first: a directory that is not exclusively ours is refused, never used.
fs::path user_directory() {
  fs::path path = fs::path(env::runtime_base()) / fmt::format("onehop-{}", ::geteuid());
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    fail_errno(errno, fmt::format("cannot make {} (set ONEHOP_RUNTIME_DIR to a directory you can write to)",
                                  path.string()));
  }
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) fail_errno(errno, fmt::format("cannot examine {}", path.string()));
  if (!S_ISDIR(info.st_mode) || info.st_uid != ::geteuid() || (info.st_mode & 077) != 0) {
    fail(
        ErrorCode::refused,
        "{} must be a directory of yours with mode 0700 (it belongs to user {}, mode {:o}); remove it or set "
        "ONEHOP_RUNTIME_DIR",
        path.string(), info.st_uid, info.st_mode & 07777);
  }
  return path;
}

/// FNV-1a: for naming directories, without any security.
std::uint64_t hash(std::string_view text) {
  std::uint64_t value = 0xcbf29ce484222325;
  for (const char c : text) value = (value ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return value;
}

/// Ranks with different boot ids never find each other. So a temporary failure to read it must be an error.
std::string boot_id() {
  try {
    return os::boot_id();
  } catch (const Error& error) {
    if (error.code() == ErrorCode::unsupported) return {};  // it is missing for all ranks
    throw;
  }
}

/// "job-<16 hex digits>.lock": the only names that this file creates.
bool is_lock_name(std::string_view name) {
  constexpr std::string_view kBegin = "job-";
  constexpr std::string_view kEnd = ".lock";
  if (!name.starts_with(kBegin) || !name.ends_with(kEnd)) return false;
  if (name.size() != kBegin.size() + 16 + kEnd.size()) return false;
  return name.substr(kBegin.size(), 16).find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

/// Locks the file, which is created if missing. Empty when somebody else's lock prevents that, or the file
/// was removed meanwhile.
os::UniqueFd try_lock(const fs::path& path, int how) {
  os::UniqueFd file = store::open_own_file(AT_FDCWD, path.string(), O_RDWR | O_CREAT, path.string());
  struct stat info {};
  if (::flock(file.get(), how | LOCK_NB) != 0 || ::fstat(file.get(), &info) != 0 || info.st_nlink == 0)
    return {};
  return file;
}

/// Removes a job's directory and then its lock, which the caller must hold exclusively. A sweep finds only
/// directories that have a lock, so one that cannot be removed keeps it.
void remove_job(const fs::path& lock_path) {
  std::error_code failed;
  fs::path directory = lock_path;
  fs::remove_all(directory.replace_extension(), failed);
  if (!failed) fs::remove(lock_path, failed);
}

void sweep_stale(const fs::path& user, const fs::path& except) {
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(user, ignored)) {
    const fs::path& path = entry.path();
    // Never remove anything else that the user keeps here.
    if (!is_lock_name(path.filename().native()) || !entry.is_regular_file(ignored) ||
        entry.is_symlink(ignored))
      continue;
    if (path == except) continue;
    if (const os::UniqueFd lock = try_lock(path, LOCK_EX)) remove_job(path);
  }
}

/// Keeps the store's directory until the last reference to the store is gone.
class JobStore {
 public:
  JobStore(const fs::path& lock_path, Duration timeout) : lock_path_(lock_path), owner_(::getpid()) {
    fs::path directory = lock_path;
    directory.replace_extension();
    const Deadline deadline = Deadline::after(timeout).with_grace(store::Grace::kLength);
    while (!lock_) {
      if (os::UniqueFd alone = try_lock(lock_path, LOCK_EX)) {
        std::error_code failed;
        fs::remove_all(directory, failed);
        if (failed) fail_errno(failed.value(), fmt::format("cannot empty {}", directory.string()));
        // This is not atomic, but a process that gets in between only empties a directory that nobody has
        // used yet.
        if (::flock(alone.get(), LOCK_SH | LOCK_NB) == 0) lock_ = std::move(alone);
      } else {
        lock_ = try_lock(lock_path, LOCK_SH);
      }
      if (lock_) break;
      if (deadline.expired()) {
        fail(ErrorCode::timeout,
             "the job's store could not be opened within {} ms: another process holds {}; is it stopped?",
             timeout.count(), lock_path.string());
      }
      // The other process empties the directory meanwhile.
      pause_in_wait(std::chrono::milliseconds{1}, deadline, "opening the job's store");
    }
    store_ = file_store(directory);
  }
  ~JobStore() {
    store_.reset();
    // The lock belongs to the open file, which a forked child shares. Only the process that took the lock may
    // upgrade it.
    if (::getpid() == owner_ && ::flock(lock_.get(), LOCK_EX | LOCK_NB) == 0) remove_job(lock_path_);
  }
  JobStore(const JobStore&) = delete;
  JobStore& operator=(const JobStore&) = delete;

  [[nodiscard]] Store* get() const { return store_.get(); }

 private:
  fs::path lock_path_;
  pid_t owner_;
  os::UniqueFd lock_;
  std::shared_ptr<Store> store_;
};

}  // namespace

std::shared_ptr<Store> open_job_store(const std::string& identity, Duration timeout) {
  const fs::path user = user_directory();
  const fs::path lock_path = user / fmt::format("job-{:016x}.lock", hash(identity + "\n" + boot_id()));
  sweep_stale(user, lock_path);
  const auto job = std::make_shared<JobStore>(lock_path, timeout);
  return {job, job->get()};
}

}  // namespace onehop
