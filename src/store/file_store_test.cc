// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <fstream>

#include "os/unique_fd.h"
#include "store/file_record.h"
#include "store/store_test_util.h"

namespace onehop {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

void write_file(const fs::path& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

constexpr uid_t kNobody = 65534;

/// Runs `body` in a child that changes from root to the user nobody.
int run_unprivileged(const std::function<void()>& body) {
  return run_in_child([&] {
    if (::geteuid() == 0 && (::setegid(kNobody) != 0 || ::seteuid(kNobody) != 0)) ::_exit(2);
    body();
    if (::testing::Test::HasFailure()) ::_exit(3);
  });
}

TEST(FileStore, CreatesItsDirectoryForTheOwnerOnly) {
  const TemporaryDirectory parent;
  const fs::path path = parent.path() / "new";
  const std::shared_ptr<Store> store = file_store(path);
  EXPECT_EQ(fs::status(path).permissions(), fs::perms::owner_all);
  store->set("key", "value");
  EXPECT_EQ(fs::status(path / "key-key").permissions(), fs::perms::owner_read | fs::perms::owner_write);
  EXPECT_EQ(store->describe(), "file store " + path.string());
}

TEST(FileStore, ARelativePathBelowARemovedDirectoryIsAnError) {
  EXPECT_EQ(run_in_child([] {
              {
                const TemporaryDirectory gone;
                EXPECT_EQ(::chdir(gone.path().c_str()), 0);
              }
              const std::string message = message_of([] { (void)file_store("store"); }, ErrorCode::system);
              EXPECT_THAT(message, HasSubstr("current directory"));
              if (::testing::Test::HasFailure()) ::_exit(3);
            }),
            0);
}

TEST(FileStore, RefusesADirectoryThatOthersMayWrite) {
  for (const mode_t mode : {0770u, 0702u, 0777u, 01777u}) {
    const TemporaryDirectory directory;
    ASSERT_EQ(::chmod(directory.path().c_str(), mode), 0);
    const std::string message =
        message_of([&] { (void)file_store(directory.path()); }, ErrorCode::invalid_argument);
    EXPECT_THAT(message, HasSubstr(directory.path().string()));
    EXPECT_THAT(message, HasSubstr("chmod go-w"));
  }
}

TEST(FileStore, RefusesADirectoryOfAnotherUser) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to own a directory as one user and open it as another";
  const TemporaryDirectory directory;
  ASSERT_EQ(::chmod(directory.path().c_str(), 0755), 0);
  EXPECT_EQ(run_unprivileged([&] {
              const std::string message =
                  message_of([&] { (void)file_store(directory.path()); }, ErrorCode::invalid_argument);
              EXPECT_THAT(message, HasSubstr("belongs to user id 0, not to 65534"));
            }),
            0);
}

TEST(FileStore, SaysThatADirectoryIsNotWritable) {
  const TemporaryDirectory parent;
  ASSERT_EQ(::chmod(parent.path().c_str(), 0777), 0);
  EXPECT_EQ(run_unprivileged([&] {
              const fs::path mine = parent.path() / "mine";
              if (::mkdir(mine.c_str(), 0500) != 0) ::_exit(4);
              const std::string message = message_of([&] { (void)file_store(mine); }, ErrorCode::system);
              EXPECT_THAT(message, HasSubstr(mine.string() + " is not writable: Permission denied"));
              (void)message_of([&] { (void)file_store(mine / "below"); }, ErrorCode::system);
            }),
            0);
}

TEST(FileStore, RefusesWhatIsNoDirectory) {
  const TemporaryDirectory parent;
  write_file(parent.path() / "file", "");
  for (const char* name : {"file", "missing/below", "file/below"}) {
    EXPECT_THAT(message_of([&] { (void)file_store(parent.path() / name); }, ErrorCode::system),
                HasSubstr(name));
  }
}

TEST(FileStore, ProcessesCountTogether) {
  constexpr int kProcesses = 4;
  constexpr int kEach = 50;
  const TemporaryDirectory directory;
  std::vector<pid_t> children;
  for (int i = 0; i < kProcesses; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      try {
        const std::shared_ptr<Store> store = file_store(directory.path());
        for (int n = 0; n < kEach; ++n) (void)store->add("sum", 1);
        (void)store->get("go");
      } catch (const std::exception&) {
        ::_exit(1);
      }
      ::_exit(0);
    }
    children.push_back(child);
  }
  const std::shared_ptr<Store> store = file_store(directory.path());
  store->set("go", "");
  for (const pid_t child : children) {
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(store->get("sum", 0ms), std::to_string(kProcesses * kEach));
}

TEST(FileStore, AWriterKilledInMidChangeHoldsUpNobodyAndItsRemainsAreOverwritten) {
  const TemporaryDirectory directory;
  const std::shared_ptr<Store> store = file_store(directory.path());
  store->set("key", "old");
  int ready[2];
  ASSERT_EQ(::pipe2(ready, O_CLOEXEC), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    // The steps of a writer before its rename.
    const int lock = ::open((directory.path() / "lock").c_str(), O_RDWR | O_CLOEXEC);
    if (::flock(lock, LOCK_EX) != 0) ::_exit(1);
    write_file(directory.path() / "temporary",
               store::encode_record({.key = "key", .value = std::string(5000, 'x')}).substr(0, 4000));
    (void)!::write(ready[1], "", 1);
    for (;;) ::pause();
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  ASSERT_EQ(::kill(child, SIGKILL), 0);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_EQ(store->get("key", 0ms), "old");
  store->set("key", "new");
  EXPECT_EQ(store->get("key", 0ms), "new");
  EXPECT_FALSE(fs::exists(directory.path() / "temporary"));
  ::close(ready[0]);
  ::close(ready[1]);
}

TEST(FileStore, AStoppedWriterCostsOthersATimeoutAndReadersNothing) {
  const TemporaryDirectory directory;
  const std::shared_ptr<Store> store = file_store(directory.path());
  store->set("key", "value");
  const os::UniqueFd lock(::open((directory.path() / "lock").c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_EQ(::flock(lock.get(), LOCK_EX), 0);
  const Stopwatch watch;
  const std::string message = message_of([&] { store->set("key", "other", 100ms); }, ErrorCode::timeout);
  EXPECT_LE(watch.elapsed(), 100ms + kPromise + kBusyMachine);
  EXPECT_THAT(message, HasSubstr("100 ms"));
  EXPECT_EQ(store->get("key", 0ms), "value");
}

TEST(FileStore, NamesTheFileThatIsDamaged) {
  const TemporaryDirectory directory;
  const std::shared_ptr<Store> store = file_store(directory.path());
  const fs::path file = directory.path() / "key-key";
  const std::string record = store::encode_record({.key = "key", .value = "value"});
  for (const std::string& damaged :
       {std::string(), record.substr(0, record.size() - 1), std::string(100, 'x'),
        store::encode_record({.key = "another", .value = "value"})}) {
    write_file(file, damaged);
    EXPECT_THAT(message_of([&] { (void)store->get("key", 0ms); }, ErrorCode::protocol),
                HasSubstr(file.string()));
  }
  store->set("key", "whole again");
  EXPECT_EQ(store->get("key", 0ms), "whole again");
}

TEST(FileStore, ReadsNoFileBeyondTheCapAndFollowsNoLink) {
  const TemporaryDirectory directory;
  const std::shared_ptr<Store> store = file_store(directory.path());
  write_file(directory.path() / "key-huge", "");
  fs::resize_file(directory.path() / "key-huge", std::uintmax_t{1} << 40);  // sparse
  (void)message_of([&] { (void)store->get("huge", 0ms); }, ErrorCode::protocol);
  fs::create_symlink("/dev/zero", directory.path() / "key-link");
  EXPECT_THAT(message_of([&] { (void)store->get("link", 0ms); }, ErrorCode::protocol),
              HasSubstr("a symbolic link"));
  ASSERT_EQ(::mkfifo((directory.path() / "key-fifo").c_str(), 0600), 0);
  (void)message_of([&] { (void)store->get("fifo", 0ms); }, ErrorCode::protocol);
}

TEST(FileStore, FollowsALinkOfOnesOwnAndOfRootOnly) {
  const TemporaryDirectory parent;
  const fs::path target = parent.path() / "target";
  ASSERT_EQ(::mkdir(target.c_str(), 0700), 0);
  write_file(target / "temporary", "mine");
  fs::create_directory_symlink(target, parent.path() / "link");
  fs::create_directory_symlink("link/../link", parent.path() / "chain");
  const fs::path paths[] = {parent.path() / "link", parent.path() / "chain", parent.path() / "link/below"};
  for (const fs::path& path : paths) EXPECT_NO_THROW((void)file_store(path)) << path;
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to make a link of another user";
  ASSERT_EQ(::lchown((parent.path() / "link").c_str(), kNobody, kNobody), 0);
  for (const fs::path& path : paths) {
    const std::string message = message_of([&] { (void)file_store(path); }, ErrorCode::invalid_argument);
    EXPECT_THAT(message, HasSubstr(path.string()));
    EXPECT_THAT(message, HasSubstr("'link', a symbolic link of user id 65534"));
  }
  EXPECT_EQ(fs::file_size(target / "temporary"), 4);
  EXPECT_FALSE(fs::exists(target / "lock"));
}

TEST(FileStore, RefusesLinksThatLeadInACircle) {
  const TemporaryDirectory parent;
  fs::create_directory_symlink("circle", parent.path() / "circle");
  EXPECT_THAT(message_of([&] { (void)file_store(parent.path() / "circle"); }, ErrorCode::system),
              HasSubstr("circle"));
}

TEST(FileStore, RefusesTheRootDirectoryAndNoPath) {
  for (const char* path : {"/", "//", "/.", "/tmp/.."}) {
    EXPECT_THAT(message_of([&] { (void)file_store(path); }, ErrorCode::invalid_argument),
                HasSubstr("root directory"));
  }
  EXPECT_FALSE(fs::exists("/lock"));
  EXPECT_THAT(message_of([] { (void)file_store(""); }, ErrorCode::invalid_argument), HasSubstr("empty"));
}

TEST(FileStore, SaysWhereARelativePathLeads) {
  const TemporaryDirectory parent;
  EXPECT_EQ(run_in_child([&] {
              if (::chdir(parent.path().c_str()) != 0) ::_exit(2);
              const auto store = file_store("below/");
              store->set("key", "value");
              if (store->describe() != "file store " + (parent.path() / "below/").string()) ::_exit(3);
            }),
            0);
  EXPECT_TRUE(fs::exists(parent.path() / "below/key-key"));
}

/// Things other than regular files that may exist under the store's file names.
struct Obstacle {
  const char* name;
  std::function<void(const fs::path&)> make;
};

TEST(FileStore, RefusesWhatIsNoFileOfItsOwnByNameAndWaitsForNothing) {
  const Obstacle obstacles[] = {
      {"a FIFO", [](const fs::path& path) { ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0); }},
      {"a directory", [](const fs::path& path) { fs::create_directory(path); }},
      {"a symbolic link", [](const fs::path& path) { fs::create_symlink("data", path); }},
      {"a symbolic link", [](const fs::path& path) { fs::create_symlink("nowhere", path); }},
  };
  for (const char* name : {"lock", "temporary"}) {
    for (const Obstacle& obstacle : obstacles) {
      SCOPED_TRACE(std::string(name) + ", " + obstacle.name);
      const TemporaryDirectory directory;
      write_file(directory.path() / "data", "mine");
      const std::shared_ptr<Store> store = file_store(directory.path());
      obstacle.make(directory.path() / name);
      const Stopwatch watch;
      const std::string message = message_of([&] { store->set("key", "value"); }, ErrorCode::protocol);
      EXPECT_LT(watch.elapsed(), 5s);
      EXPECT_THAT(message, HasSubstr((directory.path() / name).string()));
      EXPECT_THAT(message, HasSubstr(obstacle.name));
      EXPECT_THAT(message, HasSubstr("remove it"));
      EXPECT_EQ(fs::file_size(directory.path() / "data"), 4);
      EXPECT_FALSE(fs::exists(directory.path() / "nowhere"));
      EXPECT_TRUE(fs::symlink_status(directory.path() / name).type() != fs::file_type::not_found);
    }
  }
}

TEST(FileStore, EmptiesNoFileNamedTemporaryThatItDidNotWrite) {
  const TemporaryDirectory directory;
  const std::shared_ptr<Store> store = file_store(directory.path());
  write_file(directory.path() / "temporary", "my thesis");
  EXPECT_THAT(message_of([&] { store->set("key", "value"); }, ErrorCode::protocol),
              HasSubstr((directory.path() / "temporary").string()));
  EXPECT_EQ(fs::file_size(directory.path() / "temporary"), 9);
  write_file(directory.path() / "temporary", "");  // left by a writer that was killed before its first byte
  store->set("key", "value");
  EXPECT_EQ(store->get("key", 0ms), "value");
}

TEST(FileStore, RefusesALockOfAnotherUser) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to give a file to another user";
  const TemporaryDirectory directory;
  const std::shared_ptr<Store> store = file_store(directory.path());
  write_file(directory.path() / "lock", "");
  ASSERT_EQ(::chown((directory.path() / "lock").c_str(), kNobody, kNobody), 0);
  EXPECT_THAT(message_of([&] { store->set("key", "value"); }, ErrorCode::protocol),
              HasSubstr("a file of user id 65534"));
}

TEST(FileStore, TheLockEndsWithTheChangeEvenWhileAForkedChildLives) {
  const TemporaryDirectory directory;
  const std::shared_ptr<Store> store = file_store(directory.path());
  int hold[2];
  ASSERT_EQ(::pipe2(hold, O_CLOEXEC), 0);
  // Fork while another thread changes keys, so that some child very likely inherits a held lock.
  std::atomic<bool> stop = false;
  std::thread writer([&] {
    while (!stop) store->set("busy", "x");
  });
  std::vector<pid_t> children;
  for (int i = 0; i < 20; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::close(hold[1]);
      char byte = 0;
      (void)!::read(hold[0], &byte, 1);  // until the parent closes its end
      ::_exit(0);
    }
    children.push_back(child);
  }
  stop = true;
  writer.join();
  EXPECT_NO_THROW(store->set("key", "value"));
  ::close(hold[0]);
  ::close(hold[1]);
  for (const pid_t child : children) EXPECT_EQ(::waitpid(child, nullptr, 0), child);
}

}  // namespace
}  // namespace onehop
