// SPDX-License-Identifier: Apache-2.0
#include "os/memory_limit.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/check.h"
#include "os/memfd.h"
#include "support/sanitizers.h"

namespace onehop::os {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kMountV1 =
    "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory\n";
constexpr const char* kMountV2 = "41 31 0:37 / /sys/fs/cgroup rw,relatime - cgroup2 cgroup2 rw,nsdelegate\n";

TEST(MemoryCgroups, AreFoundWhereTheyAreMounted) {
  struct Row {
    const char* what;
    std::string cgroups;
    std::string mounts;
    std::vector<MemoryCgroup> found;
  };
  const Row rows[] = {
      {"v2",
       "0::/user.slice/job\n",
       kMountV2,
       {{.directory = "/sys/fs/cgroup/user.slice/job", .top = "/sys/fs/cgroup", .unified = true}}},
      {"v1",
       "5:cpu,cpuacct:/\n4:memory:/job/a\n",
       kMountV1,
       {{.directory = "/sys/fs/cgroup/memory/job/a", .top = "/sys/fs/cgroup/memory", .unified = false}}},
      {"v1 mounted together with another controller",
       "4:hugetlb,memory:/job\n",
       "35 31 0:32 / /cg rw - cgroup cgroup rw,hugetlb,memory\n",
       {{.directory = "/cg/job", .top = "/cg", .unified = false}}},
      {"both",
       "4:memory:/a\n0::/b\n",
       std::string(kMountV1) + kMountV2,
       {{.directory = "/sys/fs/cgroup/memory/a", .top = "/sys/fs/cgroup/memory", .unified = false},
        {.directory = "/sys/fs/cgroup/b", .top = "/sys/fs/cgroup", .unified = true}}},
      {"a container that sees its own part only",
       "4:memory:/docker/abc/x\n",
       "35 31 0:32 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n",
       {{.directory = "/sys/fs/cgroup/memory/x", .top = "/sys/fs/cgroup/memory", .unified = false}}},
      {"a namespace of cgroups",
       "0::/\n",
       kMountV2,
       {{.directory = "/sys/fs/cgroup", .top = "/sys/fs/cgroup", .unified = true}}},
      {"a cgroup outside of the namespace",
       "0::/../other\n",
       kMountV2,
       {{.directory = "/sys/fs/cgroup", .top = "/sys/fs/cgroup", .unified = true}}},
      {"a cgroup outside of what is mounted",
       "4:memory:/docker/abcd\n",
       "35 31 0:32 /docker/abc /cg rw - cgroup cgroup rw,memory\n",
       {{.directory = "/cg", .top = "/cg", .unified = false}}},
      {"a mount point with a space",
       "0::/a\n",
       "41 31 0:37 / /my\\040groups rw - cgroup2 cgroup2 rw\n",
       {{.directory = "/my groups/a", .top = "/my groups", .unified = true}}},
      {"mounted twice",
       "0::/a\n",
       std::string(kMountV2) + "50 31 0:37 / /other rw - cgroup2 cgroup2 rw\n",
       {{.directory = "/sys/fs/cgroup/a", .top = "/sys/fs/cgroup", .unified = true}}},
      {"not mounted", "0::/a\n4:memory:/b\n", "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n", {}},
      {"nothing", "", "", {}},
      {"garbage", "memory\n:::\n\n4:memory\n", "x\n - \n1 2 - cgroup\n1 2 3 4 5 - cgroup\n", {}},
  };
  for (const Row& row : rows) {
    EXPECT_EQ(parse_memory_cgroups(row.cgroups, row.mounts), row.found) << row.what;
  }
}

/// A directory that stands in for "/".
class FakeMachine : public ::testing::Test {
 protected:
  FakeMachine() { put("/proc/meminfo", "MemTotal:       16384 kB\nMemAvailable:   8192 kB\nHugePages: 0\n"); }
  ~FakeMachine() override { fs::remove_all(root_); }

  void put(const std::string& path, const std::string& text) {
    fs::create_directories(fs::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }
  [[nodiscard]] MemoryRoom left() const { return MemoryLimits(root_).left(); }

 private:
  static std::string fresh() {
    std::string name = (fs::temp_directory_path() / "memory-limit-test-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp");
    return name;
  }
  const std::string root_ = fresh();
};

using MemoryLimitsOf = FakeMachine;

TEST_F(MemoryLimitsOf, TheMachineAloneIsWhatTheKernelCallsAvailable) {
  const MemoryRoom room = left();
  EXPECT_EQ(room.left, 8192u << 10);
  EXPECT_EQ(room.where, "the machine");
}

TEST_F(MemoryLimitsOf, AVersion2CgroupCountsWithItsAncestors) {
  put("/proc/self/cgroup", "0::/job/task\n");
  put("/proc/self/mountinfo", kMountV2);
  put("/sys/fs/cgroup/job/task/memory.max", "max\n");
  put("/sys/fs/cgroup/job/task/memory.current", "1000\n");
  put("/sys/fs/cgroup/job/memory.max", "1000000\n");
  put("/sys/fs/cgroup/job/memory.current", "400000\n");
  EXPECT_EQ(left().left, 600000u);
  EXPECT_EQ(left().where, "cgroup /sys/fs/cgroup/job");
  put("/sys/fs/cgroup/job/memory.stat", "anon 5\ninactive_file 100000\nactive_file 50000\n");
  EXPECT_EQ(left().left, 725000u);
  put("/sys/fs/cgroup/job/task/memory.max", "1500\n");
  EXPECT_EQ(left().left, 500u);
  EXPECT_EQ(left().where, "cgroup /sys/fs/cgroup/job/task");
  put("/sys/fs/cgroup/job/task/memory.current", "2000\n");
  EXPECT_EQ(left().left, 0u) << "more than its limit is used";
}

TEST_F(MemoryLimitsOf, AVersion1CgroupCountsItsTotals) {
  put("/proc/self/cgroup", "4:memory:/job\n0::/\n");
  put("/proc/self/mountinfo", std::string(kMountV1) + kMountV2);
  put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  put("/sys/fs/cgroup/memory/memory.usage_in_bytes", "99999999\n");
  put("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "1000000\n");
  put("/sys/fs/cgroup/memory/job/memory.usage_in_bytes", "900000\n");
  put("/sys/fs/cgroup/memory/job/memory.stat",
      "inactive_file 7\ntotal_inactive_file 300000\ntotal_active_file 10\n");
  EXPECT_EQ(left().left, 400005u);
  EXPECT_EQ(left().where, "cgroup /sys/fs/cgroup/memory/job");
}

/// A child of this process's memory cgroup, removed by the destructor; empty if it cannot be created.
class LimitedCgroup {
 public:
  explicit LimitedCgroup(std::size_t limit) {
    const auto text = [](const char* name) {
      std::ifstream file(name);
      return std::string(std::istreambuf_iterator<char>(file), {});
    };
    for (const MemoryCgroup& own :
         parse_memory_cgroups(text("/proc/self/cgroup"), text("/proc/self/mountinfo"))) {
      const std::string made = fmt::format("{}/onehop-test-{}", own.directory, ::getpid());
      if (::mkdir(made.c_str(), 0700) != 0) continue;
      std::ofstream file(made + (own.unified ? "/memory.max" : "/memory.limit_in_bytes"));
      if (file << limit << std::flush) {
        path = made;
        return;
      }
      (void)::rmdir(made.c_str());
    }
  }
  ~LimitedCgroup() {
    if (!path.empty()) (void)::rmdir(path.c_str());
  }
  std::string path;
};

TEST(MemoryLimits, OfACgroupAreAnErrorAndNotTheEndOfTheProcesses) {
#if ONEHOP_THREAD_SANITIZED || ONEHOP_ADDRESS_SANITIZED
  GTEST_SKIP() << "the sanitizer's own memory is charged to the cgroup, too";
#endif
  constexpr std::size_t kLimit = std::size_t{200} << 20;
  const LimitedCgroup cgroup(kLimit);
  if (cgroup.path.empty()) GTEST_SKIP() << "no memory cgroup can be made here";
  // Each runs in a process of the cgroup and returns its report; they allocate concurrently.
  const auto run = [&](int processes, std::size_t bytes) {
    std::vector<std::pair<pid_t, int>> children;
    for (int i = 0; i < processes; ++i) {
      int ends[2];
      EXPECT_EQ(::pipe(ends), 0);
      const pid_t child = ::fork();
      if (child == 0) {
        std::string report = "no cgroup";
        if (std::ofstream(cgroup.path + "/cgroup.procs") << ::getpid() << std::flush) {
          try {
            const UniqueFd fd = create_sealed_memfd("test", bytes);
            report = "allocated";
          } catch (const Error& error) {
            report = error.code() == ErrorCode::out_of_resources ? error.message() : "unexpected";
          }
        }
        (void)!::write(ends[1], report.data(), report.size());
        ::_exit(0);
      }
      ::close(ends[1]);
      children.emplace_back(child, ends[0]);
    }
    std::vector<std::string> reports;
    for (const auto& [child, end] : children) {
      std::string report(1024, '\0');
      const ssize_t got = ::read(end, report.data(), report.size());
      report.resize(static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
      ::close(end);
      int status = 0;
      EXPECT_EQ(::waitpid(child, &status, 0), child);
      reports.push_back(WIFEXITED(status) ? report : "killed");
    }
    return reports;
  };
  const auto refused = ::testing::AllOf(HasSubstr("allocating"), HasSubstr("cgroup " + cgroup.path));
  EXPECT_THAT(run(1, std::size_t{512} << 20), ElementsAre(::testing::AllOf(refused, HasSubstr("512 MiB"))));
  EXPECT_THAT(run(1, std::size_t{64} << 20), ElementsAre("allocated"));
  for (const std::size_t mebibytes : {60, 95, 150}) {
    EXPECT_THAT(run(4, mebibytes << 20), ::testing::Each(::testing::AnyOf("allocated", refused)));
  }
}

}  // namespace
}  // namespace onehop::os
