// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <utility>

#include "base/check.h"
#include "os/ancestor.h"
#include "os/fork_guard.h"
#include "os/futex.h"
#include "os/host_id.h"
#include "os/mapping.h"
#include "os/memfd.h"
#include "os/private_dir.h"
#include "os/random.h"
#include "os/socket.h"
#include "support/errors.h"

namespace onehop::os {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

const Duration kSoon{2000};

TEST(Memfd, IsZeroedSealedAndCloseOnExec) {
  const UniqueFd fd = create_sealed_memfd("test", page_size() * 2);
  require_sealed_memfd(fd.get(), page_size() * 2);
  EXPECT_NE(::fcntl(fd.get(), F_GETFD) & FD_CLOEXEC, 0);
  EXPECT_NE(::ftruncate(fd.get(), 0), 0);
  EXPECT_NE(::ftruncate(fd.get(), static_cast<off_t>(page_size() * 4)), 0);
  const Mapping map = Mapping::map_shared(fd.get(), page_size() * 2, "test memory");
  for (std::size_t i = 0; i < map.bytes(); ++i) ASSERT_EQ(map.data()[i], std::byte{0});
}

TEST(Memfd, RefusesUnsealedForeignOrWronglySizedDescriptors) {
  const UniqueFd unsealed(::memfd_create("raw", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_THROW(require_sealed_memfd(unsealed.get(), 0), Error);
  const UniqueFd file(::open("/dev/null", O_RDWR | O_CLOEXEC));
  EXPECT_THROW(require_sealed_memfd(file.get(), 0), Error);
  const UniqueFd sealed = create_sealed_memfd("test", page_size());
  EXPECT_THROW(require_sealed_memfd(sealed.get(), page_size() * 2), Error);
}

TEST(Mapping, NamesTheLimitsThatMayBeExceeded) {
  const UniqueFd fd = create_sealed_memfd("test", page_size());
  const std::string message =
      testing::message_of([&] { (void)Mapping::map_shared(fd.get(), std::size_t{1} << 50, "test memory"); },
                          ErrorCode::out_of_resources);
  EXPECT_THAT(message, ::testing::HasSubstr("is ulimit -v or the sysctl vm.max_map_count too low?"));
}

TEST(Memfd, SaysInRoundNumbersHowMuchMemoryThereIs) {
  const std::string message =
      testing::message_of([] { (void)create_sealed_memfd("test", (std::size_t{1} << 46) + page_size()); },
                          ErrorCode::out_of_resources);
  EXPECT_THAT(message,
              ::testing::MatchesRegex("allocating 64 TiB of shared memory: .* has [0-9.]+ .iB left .*"));
}

TEST(Memfd, ReportsMissingMemoryInsteadOfDyingLater) {
  // RLIMIT_FSIZE makes fallocate fail as on a full machine. Set it in a child process, where it does no harm.
  const pid_t child = ::fork();
  if (child == 0) {
    (void)::signal(SIGXFSZ, SIG_IGN);
    const rlimit tiny{.rlim_cur = 4096, .rlim_max = 4096};
    (void)::setrlimit(RLIMIT_FSIZE, &tiny);
    try {
      (void)create_sealed_memfd("test", 1 << 20);
    } catch (const Error&) {
      ::_exit(0);
    }
    ::_exit(1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

TEST(Socket, CarriesMessagesAndDescriptors) {
  auto [a, b] = socket_pair();
  const UniqueFd sent = create_sealed_memfd("test", page_size());
  ASSERT_EQ(send_message(a.get(), "hello", sent.get(), Deadline::after(kSoon)), SendStatus::sent);
  Message message;
  ASSERT_TRUE(recv_message(b.get(), message, Deadline::after(kSoon)));
  EXPECT_EQ(message.bytes, "hello");
  ASSERT_TRUE(message.fd);
  EXPECT_NE(::fcntl(message.fd.get(), F_GETFD) & FD_CLOEXEC, 0);
  require_sealed_memfd(message.fd.get(), page_size());
}

TEST(Socket, TellsADeadPeerFromASilentOne) {
  auto [a, b] = socket_pair();
  Message message;
  EXPECT_FALSE(recv_message(b.get(), message, Deadline::after(milliseconds{20})));
  EXPECT_FALSE(peer_closed(b.get()));
  ASSERT_EQ(send_message(a.get(), "last words", -1, Deadline::after(kSoon)), SendStatus::sent);
  a.reset();
  EXPECT_TRUE(peer_closed(b.get()));
  ASSERT_TRUE(recv_message(b.get(), message, Deadline::after(kSoon)));
  EXPECT_EQ(message.bytes, "last words");
  ASSERT_TRUE(recv_message(b.get(), message, Deadline::after(kSoon)));
  EXPECT_TRUE(message.closed);
  EXPECT_EQ(send_message(b.get(), "x", -1, Deadline::after(kSoon)), SendStatus::closed);
}

TEST(Socket, LastWordsSurviveAPeerThatDidNotReadItsMessages) {
  auto [a, b] = socket_pair();
  ASSERT_EQ(send_message(b.get(), "never read", -1, Deadline::after(kSoon)), SendStatus::sent);
  ASSERT_EQ(send_message(a.get(), "last words", -1, Deadline::after(kSoon)), SendStatus::sent);
  a.reset();  // with an unread message: the kernel reports a reset before the final message
  Message message;
  ASSERT_TRUE(recv_message(b.get(), message, Deadline::after(kSoon)));
  EXPECT_EQ(message.bytes, "last words");
  ASSERT_TRUE(recv_message(b.get(), message, Deadline::after(kSoon)));
  EXPECT_TRUE(message.closed);
}

TEST(Socket, LastWordsAreNotLostWhenThePeerClosesDuringALook) {
  constexpr int kRounds = 20'000;
  constexpr int kAhead = 64;  // sockets that are open at the same time
  const Deadline enough = Deadline::after(std::chrono::seconds{10});  // on a busy machine threads take turns
  std::array<std::pair<UniqueFd, UniqueFd>, kAhead> pairs;
  for (int done = 0; done < kRounds && !enough.expired(); done += kAhead) {
    for (auto& pair : pairs) pair = socket_pair();
    std::atomic<int> looked_at{-1};
    std::thread sender([&] {
      for (int i = 0; i < kAhead; ++i) {
        while (looked_at.load() < i) {
        }
        UniqueFd& own = pairs[static_cast<std::size_t>(i)].first;
        (void)send_message(own.get(), "last words", -1, Deadline::after(kSoon));
        own.reset();
      }
    });
    for (int i = 0; i < kAhead; ++i) {
      const int socket = pairs[static_cast<std::size_t>(i)].second.get();
      Message message;
      looked_at.store(i);
      while (!recv_message(socket, message, Deadline::passed())) {
      }
      EXPECT_EQ(message.bytes, "last words");
      EXPECT_FALSE(message.closed);
    }
    sender.join();
  }
}

TEST(Socket, SendTimesOutWhenNobodyReads) {
  auto [a, b] = socket_pair();
  const std::string big(64 << 10, 'x');
  SendStatus status = SendStatus::sent;
  for (int i = 0; i < 1000 && status == SendStatus::sent; ++i) {
    status = send_message(a.get(), big, -1, Deadline::after(milliseconds{20}));
  }
  EXPECT_EQ(status, SendStatus::timed_out);
}

TEST(Socket, ReportsADescriptorThatDidNotFit) {
  auto [a, b] = socket_pair();
  const UniqueFd sent = create_sealed_memfd("test", page_size());
  ASSERT_EQ(send_message(a.get(), "fd", sent.get(), Deadline::after(kSoon)), SendStatus::sent);
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit none{.rlim_cur = 0, .rlim_max = 0};
    (void)::setrlimit(RLIMIT_NOFILE, &none);
    Message message;
    const bool got = recv_message(b.get(), message, Deadline::after(kSoon));
    ::_exit(got && message.fd_lost && !message.fd && message.bytes == "fd" ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

TEST(Socket, RefusesAMessageWithSeveralDescriptorsAndKeepsNone) {
  auto [a, b] = socket_pair();
  const UniqueFd first = create_sealed_memfd("test", page_size());
  const UniqueFd second = create_sealed_memfd("test", page_size());
  const std::array<int, 2> sent = {first.get(), second.get()};
  std::string bytes = "two";
  iovec part{.iov_base = bytes.data(), .iov_len = bytes.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof sent)> control{};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = control.size();
  cmsghdr* const entry = CMSG_FIRSTHDR(&header);
  entry->cmsg_level = SOL_SOCKET;
  entry->cmsg_type = SCM_RIGHTS;
  entry->cmsg_len = CMSG_LEN(sizeof sent);
  std::memcpy(CMSG_DATA(entry), sent.data(), sizeof sent);
  ASSERT_EQ(::sendmsg(a.get(), &header, 0), 3);
  // A leaked descriptor changes the lowest free number.
  const auto lowest_free = [&a = a] { return UniqueFd(::fcntl(a.get(), F_DUPFD_CLOEXEC, 0)).get(); };
  const int before = lowest_free();
  {
    Message message;
    const Error error = onehop::testing::error_of(
        [&, &b = b] { (void)recv_message(b.get(), message, Deadline::after(kSoon)); });
    EXPECT_EQ(error.code(), ErrorCode::protocol);
    EXPECT_NE(error.message().find("with 2 descriptors"), std::string::npos) << error.message();
  }
  EXPECT_EQ(lowest_free(), before);
}

TEST(Socket, RefusesAMessageThatWasCut) {
  auto [a, b] = socket_pair();
  // send_message would refuse to send so much.
  const std::string whole(kMaxMessageBytes, 'x');
  const std::string longer = whole + 'x';
  ASSERT_EQ(::send(a.get(), longer.data(), longer.size(), 0), static_cast<ssize_t>(longer.size()));
  Message message;
  const Error error = onehop::testing::error_of(
      [&, &b = b] { (void)recv_message(b.get(), message, Deadline::after(kSoon)); });
  EXPECT_EQ(error.code(), ErrorCode::protocol);
  EXPECT_NE(error.message().find("larger than 81920 bytes"), std::string::npos) << error.message();
  ASSERT_EQ(::send(a.get(), whole.data(), whole.size(), 0), static_cast<ssize_t>(whole.size()));
  ASSERT_TRUE(recv_message(b.get(), message, Deadline::after(kSoon)));
  EXPECT_EQ(message.bytes, whole);
}

TEST(Socket, ConnectSaysNobodyForMissingAndDeadListeners) {
  const PrivateDir dir = PrivateDir::create("test");
  const std::string path = dir.path() + "/s";
  EXPECT_FALSE(connect_unix(path, Deadline::after(kSoon)));
  UniqueFd listener = listen_unix(path);
  const UniqueFd client = connect_unix(path, Deadline::after(kSoon));
  ASSERT_TRUE(client);
  EXPECT_EQ(peer_uid(client.get()), ::geteuid());
  EXPECT_TRUE(accept_unix(listener.get(), Deadline::after(kSoon)));
  EXPECT_FALSE(accept_unix(listener.get(), Deadline::after(milliseconds{10})));
  listener.reset();
  EXPECT_FALSE(connect_unix(path, Deadline::after(kSoon)));
  EXPECT_THROW((void)listen_unix(dir.path() + "/" + std::string(120, 'x')), Error);
}

/// Runs `body` in a child process and returns what it writes.
std::string heard_from_child(const std::function<std::string()>& body) {
  int ends[2] = {-1, -1};
  if (::pipe2(ends, O_CLOEXEC) != 0) return "no pipe";
  const UniqueFd read_end(ends[0]);
  UniqueFd write_end(ends[1]);
  const pid_t child = ::fork();
  if (child == 0) {
    const std::string text = body();
    ::_exit(::write(write_end.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()) ? 0 : 1);
  }
  write_end.reset();
  std::string text(256, '\0');
  const ssize_t got = ::read(read_end.get(), text.data(), text.size());
  text.resize(got < 0 ? 0 : static_cast<std::size_t>(got));
  (void)::waitpid(child, nullptr, 0);
  return text;
}

TEST(Ancestor, IsFoundByItsNameAndIsTheSameForAllThatDescendFromIt) {
  char before[16] = {};
  ASSERT_EQ(::prctl(PR_GET_NAME, before), 0);
  // With parentheses and spaces, because /proc encloses names in parentheses.
  ASSERT_EQ(::prctl(PR_SET_NAME, "a) (pmi_proxy)"), 0);
  const auto find = [] { return find_ancestor("(pmi_proxy").value_or("none"); };
  const std::string of_child = heard_from_child(find);
  const std::string of_grandchild = heard_from_child([&] {
    (void)::prctl(PR_SET_NAME, "between");
    return heard_from_child(find);
  });
  ASSERT_EQ(::prctl(PR_SET_NAME, before), 0);
  EXPECT_TRUE(of_child.starts_with(std::to_string(::getpid()) + "/")) << of_child;
  EXPECT_EQ(of_grandchild, of_child);
  EXPECT_EQ(find_ancestor("no ancestor has this name"), std::nullopt);
}

TEST(PrivateDir, IsPrivateAndGoesWithItsOwner) {
  std::string path;
  {
    const PrivateDir dir = PrivateDir::create("test");
    path = dir.path();
    struct stat info {};
    ASSERT_EQ(::stat(path.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0700u);
    std::ofstream(path + "/file") << "x";
  }
  EXPECT_FALSE(fs::exists(path));
}

TEST(PrivateDir, ReclaimsWhatADeadProcessLeftAndNothingElse) {
  // A separate base directory: in the default one, other programs of this user sweep as well and may be
  // first.
  std::string base = (fs::temp_directory_path() / "private-dir-test-XXXXXX").string();
  ASSERT_NE(::mkdtemp(base.data()), nullptr);
  ::setenv("ONEHOP_RUNTIME_DIR", base.c_str(), 1);
  {
    const PrivateDir living = PrivateDir::create("group");
    int ends[2];
    ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      const PrivateDir dir = PrivateDir::create("group");
      (void)!::write(ends[1], dir.path().data(), dir.path().size());
      (void)::kill(::getpid(), SIGKILL);
    }
    ::close(ends[1]);
    std::string left(256, '\0');
    const ssize_t got = ::read(ends[0], left.data(), left.size());
    ::close(ends[0]);
    ASSERT_GT(got, 0);
    left.resize(static_cast<std::size_t>(got));
    ASSERT_EQ(::waitpid(child, nullptr, 0), child);
    ASSERT_TRUE(fs::exists(left));
    EXPECT_EQ(reclaim_stale_dirs(base), 1);
    EXPECT_FALSE(fs::exists(left));
    EXPECT_TRUE(fs::exists(living.path()));
  }
  ::unsetenv("ONEHOP_RUNTIME_DIR");
  EXPECT_TRUE(fs::remove(base)) << "the living directory was left behind";
}

TEST(PrivateDir, WithoutDescriptorsNothingIsLeftThatNoSweepRemoves) {
  std::string base = (fs::temp_directory_path() / "private-dir-test-XXXXXX").string();
  ASSERT_NE(::mkdtemp(base.data()), nullptr);
  ::setenv("ONEHOP_RUNTIME_DIR", base.c_str(), 1);
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  std::string path;
  {
    const PrivateDir group = PrivateDir::create("group");
    const PrivateDir launch = PrivateDir::create("launch");
    path = group.path();
    ASSERT_EQ(::mknod((path + "/socket").c_str(), S_IFSOCK | 0600, 0), 0);
    std::ofstream(launch.path() + "/file") << "x";
    const rlimit none = {.rlim_cur = 0, .rlim_max = limit.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  }
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_FALSE(fs::exists(path));
  EXPECT_EQ(reclaim_stale_dirs(base), 1) << "the directory whose content could not be listed";
  ::unsetenv("ONEHOP_RUNTIME_DIR");
  EXPECT_TRUE(fs::remove(base));
}

TEST(PrivateDir, ADirectoryOfWhichARemovalLeavesAPartIsRemovedByTheNextSweep) {
  std::string base = (fs::temp_directory_path() / "private-dir-test-XXXXXX").string();
  ASSERT_NE(::mkdtemp(base.data()), nullptr);
  ::setenv("ONEHOP_RUNTIME_DIR", base.c_str(), 1);
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  std::string path;
  {
    const PrivateDir launch = PrivateDir::create("launch");
    path = launch.path();
    ASSERT_TRUE(fs::create_directory(path + "/store"));
    std::ofstream(path + "/store/key") << "x";
    // One descriptor, with which the directory can be listed, but not the one in it.
    const int next = ::dup(STDERR_FILENO);
    ASSERT_GE(next, 0);
    ::close(next);
    const rlimit one = {.rlim_cur = static_cast<rlim_t>(next) + 1, .rlim_max = limit.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &one), 0);
  }
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_TRUE(fs::exists(path + "/store/key"));
  EXPECT_EQ(reclaim_stale_dirs(base), 1);
  ::unsetenv("ONEHOP_RUNTIME_DIR");
  EXPECT_TRUE(fs::remove(base));
}

TEST(PrivateDir, ASweepLeavesWhateverOnehopDidNotMake) {
  std::string base = (fs::temp_directory_path() / "private-dir-test-XXXXXX").string();
  ASSERT_NE(::mkdtemp(base.data()), nullptr);
  const std::string own = fmt::format("{}/onehop-{}-", base, ::geteuid());
  const auto make = [&](const std::string& name, mode_t mode, const std::vector<std::string>& files) {
    const std::string path = own + name;
    ASSERT_EQ(::mkdir(path.c_str(), 0700), 0);
    for (const std::string& file : files) std::ofstream(path + "/" + file) << "x";
    ASSERT_EQ(::chmod(path.c_str(), mode), 0);
  };
  const std::string marker = ".onehop-private";
  make("results", 0700, {"thesis.tex"});
  make("results-abc123", 0700, {});
  make("group-results", 0700, {});
  make("group-abc123-old", 0700, {});
  make("group-abc.23", 0700, {marker});
  make("group-shared", 0755, {});
  make("group-abc124", 0755, {marker});
  make("group-abc125", 0700, {"thesis.tex"});
  make("group-abc126", 0700, {marker, "thesis.tex"});
  make("group-abc127", 0700, {"socket"});
  make("channel-abc128", 0700, {marker, "socket"});  // a file, not a socket
  make("launch-abc133", 0700, {"thesis.tex"});
  make("launch-abc134", 0755, {marker, "store"});
  make("group-abc129", 0700, {});
  ASSERT_EQ(::mkdir((own + "group-abc129/thesis").c_str(), 0700), 0);
  const auto count = [&] { return std::distance(fs::directory_iterator(base), fs::directory_iterator()); };
  const auto before = count();
  EXPECT_EQ(reclaim_stale_dirs(base), 0);
  EXPECT_EQ(count(), before);
  EXPECT_TRUE(fs::exists(own + "results/thesis.tex"));

  make("group-Abc130", 0700, {});  // its creator was killed before it wrote the marker
  make("channel-abc131", 0700, {marker});
  make("launch-abc132", 0700, {});
  make("launch-abc135", 0700, {marker, "failure-0"});  // a launcher puts anything in
  ASSERT_EQ(::mkdir((own + "launch-abc135/store").c_str(), 0700), 0);
  EXPECT_EQ(reclaim_stale_dirs(base), 4);
  EXPECT_EQ(count(), before);
  fs::remove_all(base);
}

TEST(PrivateDir, ManyCanBeMadeWhileOthersSweep) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([] {
      for (int i = 0; i < 100; ++i) {
        const PrivateDir dir = PrivateDir::create("group");  // sweeps first
        ASSERT_TRUE(fs::exists(dir.path()));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(PrivateDir, NamesTheRemedyWhenTheBaseIsNotThere) {
  ::setenv("ONEHOP_RUNTIME_DIR", "/nonexistent/directory", 1);
  try {
    (void)PrivateDir::create("test");
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_NE(e.message().find("/nonexistent/directory"), std::string::npos);
    EXPECT_NE(e.message().find("ONEHOP_RUNTIME_DIR"), std::string::npos);
  }
  ::unsetenv("ONEHOP_RUNTIME_DIR");
}

TEST(Futex, WakesAcrossAMappingAndTimesOut) {
  const UniqueFd fd = create_sealed_memfd("test", page_size());
  const Mapping map = Mapping::map_shared(fd.get(), page_size(), "test");
  auto& word = *reinterpret_cast<std::atomic<std::uint32_t>*>(map.data());
  futex_wait(word, 1, kSoon);             // a changed word returns at once
  futex_wait(word, 0, milliseconds{10});  // no wake-up
  std::thread waker([&] {
    word.store(1);
    futex_wake_all(word);
  });
  const Deadline deadline = Deadline::after(kSoon);
  while (word.load() == 0 && !deadline.expired()) futex_wait(word, 0, milliseconds{100});
  waker.join();
  EXPECT_EQ(word.load(), 1u);
}

TEST(ForkGuard, ChildsCopyOfASocketIsCutOff) {
  auto [a, b] = socket_pair();
  const ForkGuard guard(a.get());
  const std::uint32_t generation = fork_generation();
  int up[2];
  int hold[2];
  ASSERT_EQ(::pipe2(up, O_CLOEXEC), 0);
  ASSERT_EQ(::pipe2(hold, O_CLOEXEC), 0);
  const pid_t child = ::fork();
  char byte = 0;
  if (child == 0) {
    ::close(hold[1]);
    (void)!::write(up[1], "u", 1);
    (void)!::read(hold[0], &byte, 1);  // lives until the parent writes
    const bool cut = send_message(b.get(), "x", -1, Deadline::after(kSoon)) != SendStatus::sent;
    ::_exit(fork_generation() == generation + 1 && cut ? 0 : 1);
  }
  ::close(hold[0]);
  ASSERT_EQ(::read(up[0], &byte, 1), 1);
  ::close(up[0]);
  ::close(up[1]);
  EXPECT_FALSE(peer_closed(b.get()));
  a.reset();
  EXPECT_TRUE(peer_closed(b.get()));  // although the child lives
  ::close(hold[1]);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_EQ(fork_generation(), generation);
}

TEST(HostId, IsThereAndStable) {
  EXPECT_EQ(boot_id(), boot_id());
  EXPECT_EQ(boot_id().size(), 36u);
  EXPECT_NE(random_id(), random_id());
  EXPECT_EQ(to_hex(random_id()).size(), 32u);
}

}  // namespace
}  // namespace onehop::os
