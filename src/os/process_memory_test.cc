// SPDX-License-Identifier: Apache-2.0
#include "os/process_memory.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

namespace onehop::os {
namespace {

std::uint64_t address_of(const void* data) {
  return reinterpret_cast<std::uint64_t>(data);
}

/// A child that writes `text` to this process's `data` in its own memory, says so, and waits to be killed.
class Child {
 public:
  Child(char* data, const std::string& text) {
    int ends[2];
    if (::pipe(ends) != 0) return;
    pid_ = ::fork();
    if (pid_ == 0) {
      text.copy(data, text.size());
      (void)!::write(ends[1], "x", 1);
      while (true) ::pause();
    }
    char said = 0;
    (void)!::read(ends[0], &said, 1);
    (void)::close(ends[0]);
    (void)::close(ends[1]);
  }
  ~Child() { end(); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  [[nodiscard]] pid_t pid() const { return pid_; }
  void end() {
    if (ended_) return;
    (void)::kill(pid_, SIGKILL);
    (void)::waitpid(pid_, nullptr, 0);
    ended_ = true;
  }

 private:
  pid_t pid_ = -1;
  bool ended_ = false;
};

TEST(ProcessMemory, IsReadFromALivingProcessThatHasIt) {
  std::vector<char> data(100'000, 'p');
  Child child(data.data(), "child");
  std::string text(5, '?');
  const int error = read_process(child.pid(), address_of(data.data()), text.data(), text.size());
  if (error == EPERM || error == ENOSYS) GTEST_SKIP() << "not permitted here: " << std::strerror(error);
  ASSERT_EQ(error, 0) << std::strerror(error);
  EXPECT_EQ(text, "child");
  EXPECT_EQ(data[0], 'p');
  std::vector<char> all(data.size());
  EXPECT_EQ(read_process(child.pid(), address_of(data.data()), all.data(), all.size()), 0);
  EXPECT_EQ(std::string(all.data(), 7), "childpp");
  EXPECT_EQ(all.back(), 'p');

  EXPECT_EQ(read_process(child.pid(), 1, text.data(), text.size()), EFAULT);
  child.end();
  EXPECT_EQ(read_process(child.pid(), address_of(data.data()), text.data(), text.size()), ESRCH);
}

TEST(ProcessMemory, ThatEndsTooEarlyIsAnErrorAndNotAShorterCopy) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  void* const mapped = ::mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(mapped, MAP_FAILED);
  auto* const data = static_cast<char*>(mapped);
  ASSERT_EQ(::munmap(data + page, page), 0);
  std::vector<char> copy(2 * page);
  const int error = read_process(::getpid(), address_of(data), copy.data(), page);
  if (error == EPERM || error == ENOSYS) GTEST_SKIP() << "not permitted here: " << std::strerror(error);
  EXPECT_EQ(error, 0) << std::strerror(error);
  EXPECT_EQ(read_process(::getpid(), address_of(data), copy.data(), page + 1), EFAULT);
  EXPECT_TRUE(readable_by_others(data, page));
  EXPECT_FALSE(readable_by_others(data, page + 1));
  EXPECT_TRUE(readable_by_others(data, 0));
  (void)::munmap(data, page);
  EXPECT_FALSE(readable_by_others(data, 1));
}

}  // namespace
}  // namespace onehop::os
