// SPDX-License-Identifier: Apache-2.0
// One file per key. Readers take no lock: a key's file appears and changes only by rename, so an open file is
// always one complete record. Writers hold an exclusive flock on the file "lock" for one change at a time,
// which makes add and compare_set atomic. With a single writer at a time, one temporary file name suffices. A
// killed writer releases its lock, and the next writer overwrites the temporary file that it left.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>
#include <system_error>

#include "onehop/store.h"

#include "base/check.h"
#include "base/deadline.h"
#include "base/interrupt.h"
#include "os/spare_descriptors.h"
#include "os/unique_fd.h"
#include "store/file_record.h"
#include "store/grace.h"
#include "store/own_files.h"
#include "store/rules.h"

namespace onehop {
namespace {

constexpr const char* kLockName = "lock";
constexpr const char* kTemporaryName = "temporary";

class FileStore final : public Store {
 public:
  explicit FileStore(std::string path)
      : path_(std::move(path)), directory_(store::open_own_directory(path_)) {}

  std::string describe() const override { return "file store " + path_; }

 private:
  void do_set(std::string_view key, std::string_view value, Duration timeout) override {
    const Lock lock(*this, "set", key, timeout);
    write(key, value);
  }

  std::optional<std::string> do_get_for(std::string_view key, Duration timeout) override {
    const Deadline deadline = within_clean_up(Deadline::after(timeout));
    // Poll, because inotify does not report changes made by other hosts or by some container file systems.
    constexpr Duration kLongestPause{20};
    for (Duration pause{1};; pause = std::min(pause * 2, kLongestPause)) {
      if (std::optional<std::string> value = read(key)) return value;
      if (deadline.expired()) return std::nullopt;
      pause_in_wait(pause, deadline, "waiting for a key of the file store");
    }
  }

  std::int64_t do_add(std::string_view key, std::int64_t delta, Duration timeout) override {
    const Lock lock(*this, "add", key, timeout);
    const std::int64_t sum = store::add_to_counter(key, read(key), delta);
    write(key, std::to_string(sum));
    return sum;
  }

  std::string do_compare_set(std::string_view key, std::string_view expected, std::string_view desired,
                             Duration timeout) override {
    const Lock lock(*this, "compare_set", key, timeout);
    std::optional<std::string> current = read(key);
    if (store::exchange_allowed(current, expected)) {
      write(key, desired);
      return std::string(desired);
    }
    return current ? *std::move(current) : std::string(expected);
  }

  bool do_delete_key(std::string_view key, Duration timeout) override {
    const std::string name = store::file_name_of(key);
    const Lock lock(*this, "delete_key", key, timeout);
    if (::unlinkat(directory_.get(), name.c_str(), 0) == 0) return true;
    if (errno != ENOENT) fail_errno(errno, fmt::format("cannot delete {}/{}", path_, name));
    return false;
  }

  /// Excludes other writers, including other threads: each Lock opens the lock file anew, and flock belongs
  /// to the open file description.
  class Lock {
   public:
    Lock(FileStore& store, std::string_view operation, std::string_view key, Duration timeout)
        : fd_(store.open_own(kLockName, O_RDWR | O_CREAT)) {
      const Deadline deadline = store.grace_.extend(Deadline::after(timeout));
      constexpr std::chrono::microseconds kLongestPause{5000};
      // Poll, because a blocking flock has no deadline and a writer may be stopped during a change.
      for (std::chrono::microseconds pause{50}; ::flock(fd_.get(), LOCK_EX | LOCK_NB) != 0;
           pause = std::min(pause * 2, kLongestPause)) {
        if (errno != EWOULDBLOCK && errno != EINTR) {
          fail_errno(errno, fmt::format("cannot lock {}/{}", store.path_, kLockName));
        }
        if (deadline.expired()) {
          store.grace_.operation_expired();
          store::fail_expired(operation, key, timeout, store.describe(),
                              fmt::format("another process holds {}/{}: is one of the ranks stopped?",
                                          store.path_, kLockName));
        }
        pause_in_wait(pause, deadline, "waiting for the lock of the file store");
      }
      store.grace_.operation_ended();
    }
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;
    // Unlock explicitly: closing would not release the lock while a child forked meanwhile holds the same
    // open file description.
    ~Lock() { (void)::flock(fd_.get(), LOCK_UN); }

   private:
    os::UniqueFd fd_;
  };

  os::UniqueFd open_own(const std::string& name, int flags) const {
    return spares_.with_spares(
        [&] { return store::open_own_file(directory_.get(), name, flags, path_ + "/" + name); });
  }

  std::optional<std::string> read(std::string_view key) const {
    const std::string name = store::file_name_of(key);
    const os::UniqueFd file = open_own(name, O_RDONLY);
    if (!file) return std::nullopt;
    const std::size_t size = size_of(file.get(), name);
    if (size > store::kMaxRecordBytes) {
      fail(ErrorCode::protocol, "{}/{} is not a file of a store: it has {} bytes", path_, name, size);
    }
    return value_of(key, read_from(file.get(), size, name), name);
  }

  std::size_t size_of(int file, const std::string& name) const {
    struct stat info = {};
    if (::fstat(file, &info) != 0) fail_errno(errno, fmt::format("cannot examine {}/{}", path_, name));
    return static_cast<std::size_t>(info.st_size);
  }

  /// Returns fewer than `size` bytes if the file is shorter; the parser reports that.
  std::string read_from(int file, std::size_t size, const std::string& name) const {
    std::string bytes(size, '\0');
    for (std::size_t done = 0; done < bytes.size();) {
      const ssize_t n = ::read(file, bytes.data() + done, bytes.size() - done);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) fail_errno(errno, fmt::format("cannot read {}/{}", path_, name));
      if (n == 0) bytes.resize(done);
      done += static_cast<std::size_t>(n);
    }
    return bytes;
  }

  std::string value_of(std::string_view key, std::string_view bytes, const std::string& name) const {
    try {
      const store::Record record = store::parse_record(bytes);
      if (record.key != key) {
        fail(ErrorCode::protocol, "file store record: holds key {} instead of {}", store::quoted(record.key),
             store::quoted(key));
      }
      return std::string(record.value);
    } catch (const Error& error) {
      fail(error.code(), "{}/{}: {}", path_, name, error.message());
    }
  }

  /// Opens the temporary file and empties it. A killed writer leaves the beginning of a record. Any other
  /// content is a user's data and is not touched.
  os::UniqueFd open_temporary() const {
    os::UniqueFd file = open_own(kTemporaryName, O_RDWR | O_CREAT);
    const std::size_t looked_at = std::min(size_of(file.get(), kTemporaryName), sizeof store::kRecordMagic);
    const std::string begins = read_from(file.get(), looked_at, kTemporaryName);
    if (!store::encode_record({}).starts_with(begins)) {
      fail(
          ErrorCode::protocol,
          "{}/{} is in the way and is not a file of a store: move it, or use another directory for the store",
          path_, kTemporaryName);
    }
    if (::ftruncate(file.get(), 0) != 0 || ::lseek(file.get(), 0, SEEK_SET) != 0) {
      fail_errno(errno, fmt::format("cannot empty {}/{}", path_, kTemporaryName));
    }
    return file;
  }

  /// Requires the Lock, because there is one temporary file.
  void write(std::string_view key, std::string_view value) const {
    const std::string bytes = store::encode_record({.key = key, .value = value});
    const std::string name = store::file_name_of(key);
    const int fd = directory_.get();
    const os::UniqueFd file = open_temporary();
    try {
      for (std::size_t done = 0; done < bytes.size();) {
        const ssize_t n = ::write(file.get(), bytes.data() + done, bytes.size() - done);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0)
          fail_errno(errno,
                     fmt::format("cannot write {} bytes to {}/{}", bytes.size(), path_, kTemporaryName));
        done += static_cast<std::size_t>(n);
      }
      if (::renameat(fd, kTemporaryName, fd, name.c_str()) != 0) {
        fail_errno(errno, fmt::format("cannot create {}/{}", path_, name));
      }
    } catch (const Error&) {
      (void)::unlinkat(fd, kTemporaryName, 0);  // frees its space on a full disk
      throw;
    }
  }

  // Descriptors that a change holds open at a time: the lock and the temporary file.
  static constexpr std::size_t kDescriptors = 2;

  std::string path_;
  os::UniqueFd directory_;
  /// With these, a rank that runs out of descriptors can still report that to the others.
  mutable os::SpareDescriptors spares_{kDescriptors};
  store::Grace grace_;
};

}  // namespace

std::shared_ptr<Store> file_store(const std::filesystem::path& directory) {
  if (directory.empty()) return std::make_shared<FileStore>(std::string());
  std::error_code unknown;
  const std::filesystem::path path = std::filesystem::absolute(directory, unknown);
  if (unknown) {
    fail_errno(unknown.value(), fmt::format("the current directory of the store directory {} cannot be found",
                                            directory.string()));
  }
  return std::make_shared<FileStore>(path.string());
}

}  // namespace onehop
