// SPDX-License-Identifier: Apache-2.0
#include "group/environment.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <map>

#include "onehop/error.h"
#include "onehop/group.h"
#include "onehop/job.h"

#include "os/unique_fd.h"
#include "store/tcp_test_util.h"
#include "support/sanitizers.h"
#include "support/scoped_variable.h"

namespace onehop {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Variables = std::map<std::string, std::string>;

GetVariable from(Variables variables) {
  return [variables](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end() || found->second.empty()) return std::nullopt;
    return found->second;
  };
}

Variables operator+(Variables left, const Variables& right) {
  for (const auto& [name, value] : right) left[name] = value;
  return left;
}

const Variables kOnehop{{"ONEHOP_RANK", "1"}, {"ONEHOP_SIZE", "4"}, {"ONEHOP_STORE", "file:/run/job"}};
const Variables kTorchrun{{"RANK", "2"},
                          {"WORLD_SIZE", "4"},
                          {"LOCAL_RANK", "2"},
                          {"LOCAL_WORLD_SIZE", "4"},
                          {"GROUP_RANK", "0"},
                          {"MASTER_ADDR", "127.0.0.1"},
                          {"MASTER_PORT", "29500"},
                          {"TORCHELASTIC_RUN_ID", "none"},
                          {"TORCHELASTIC_RESTART_COUNT", "0"}};
const Variables kOpenMpi{
    {"OMPI_COMM_WORLD_RANK", "3"},       {"OMPI_COMM_WORLD_SIZE", "4"},
    {"OMPI_COMM_WORLD_LOCAL_RANK", "3"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
    {"PMIX_NAMESPACE", "2001666049"},    {"PMIX_SERVER_URI2", "2001666048.0;tcp4://127.0.0.1:1"}};
const Variables kSlurm{{"SLURM_PROCID", "1"},         {"SLURM_NTASKS", "4"},  {"SLURM_LOCALID", "1"},
                       {"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_JOB_ID", "77"}, {"SLURM_STEP_ID", "0"},
                       {"SLURM_STEP_NUM_NODES", "1"}};

// Set by mpiexec.hydra of MPICH 4.0.
const Variables kMpich{{"PMI_RANK", "2"},        {"PMI_SIZE", "4"},        {"PMI_FD", "9"},
                       {"MPI_LOCALRANKID", "2"}, {"MPI_LOCALNRANKS", "4"}, {"HYDI_CONTROL_FD", "7"}};
const Variables kIntelMpi = kMpich + Variables{{"I_MPI_HYDRA_UUID", "9d260000-7c26-e807-8fb4-050000430af0"}};

std::string identity(const Variables& variables) {
  return std::get<JobStoreSpec>(read_environment(from(variables)).store).identity;
}

struct Good {
  const char* what;
  Variables variables;
  Launcher launcher;
  int rank;
  int size;
  int local_rank;
};

TEST(Environment, FindsRankAndSizeOfEveryLauncher) {
  const Variables batch_shell{
      {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "16"}, {"SLURM_JOB_ID", "77"}, {"SLURM_NNODES", "2"}};
  const Variables srun_of_torchrun =
      kSlurm + Variables{{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_NTASKS", "1"}};
  const Variables srun_of_proxies =
      kSlurm + Variables{{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_NTASKS", "1"}};
  const Good cases[] = {
      {"onehop launch", kOnehop, Launcher::onehop, 1, 4, 1},
      {"torchrun", kTorchrun, Launcher::torchrun, 2, 4, 2},
      {"mpirun", kOpenMpi, Launcher::open_mpi, 3, 4, 3},
      {"srun", kSlurm, Launcher::slurm, 1, 4, 1},
      {"onehop launch inside mpirun", kOpenMpi + kOnehop, Launcher::onehop, 1, 4, 1},
      {"onehop launch also sets torchrun's", kTorchrun + kOnehop, Launcher::onehop, 1, 4, 2},
      {"torchrun started by srun", srun_of_torchrun + kTorchrun, Launcher::torchrun, 2, 4, 2},
      {"mpirun inside a batch script", batch_shell + kOpenMpi, Launcher::open_mpi, 3, 4, 3},
      {"srun with RANK exported from a job script", kSlurm + Variables{{"RANK", "1"}, {"WORLD_SIZE", "4"}},
       Launcher::slurm, 1, 4, 1},
      {"mpiexec of Intel MPI", kIntelMpi, Launcher::hydra, 2, 4, 2},
      {"mpiexec of MPICH in a job of Slurm, which started the proxies", srun_of_proxies + kIntelMpi,
       Launcher::hydra, 2, 4, 2},
      {"srun whose tasks also have PMI variables", kSlurm + Variables{{"PMI_RANK", "1"}, {"PMI_SIZE", "4"}},
       Launcher::slurm, 1, 4, 1},
      {"another launcher that sets PMI variables",
       Variables{{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"PMI_JOBID", "17.0"}}, Launcher::hydra, 1, 2, 1},
      {"torchrun started by mpiexec", kIntelMpi + kTorchrun, Launcher::torchrun, 2, 4, 2},
      {"onehop launch inside mpiexec", kIntelMpi + kOnehop, Launcher::onehop, 1, 4, 1},
      {"mpiexec with RANK exported from a job script",
       kIntelMpi + Variables{{"RANK", "1"}, {"WORLD_SIZE", "9"}}, Launcher::hydra, 2, 4, 2},
      {"RANK and WORLD_SIZE by hand", Variables{{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", "1234"}},
       Launcher::torchrun, 0, 2, 0},
      {"a world of one is the group's to refuse",
       kOnehop + Variables{{"ONEHOP_RANK", "0"}, {"ONEHOP_SIZE", "1"}}, Launcher::onehop, 0, 1, 0},
      {"an old Slurm without a step-wide count", kSlurm + Variables{{"SLURM_STEP_NUM_TASKS", ""}},
       Launcher::slurm, 1, 4, 1},
  };
  for (const Good& good : cases) {
    SCOPED_TRACE(good.what);
    const Environment environment = read_environment(from(good.variables));
    EXPECT_EQ(environment.launcher, good.launcher);
    EXPECT_EQ(environment.rank, good.rank);
    EXPECT_EQ(environment.size, good.size);
    EXPECT_EQ(environment.local_rank, good.local_rank);
    EXPECT_EQ(environment.local_size, good.size);
  }
}

struct Bad {
  const char* what;
  Variables variables;
  ErrorCode code;
  std::vector<std::string> named;
};

TEST(Environment, RefusesWhatMakesNoSenseInOneLineThatNamesVariableAndValue) {
  const Variables in_batch{{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}, {"SLURM_JOB_ID", "77"}};
  const Bad cases[] = {
      {"nothing", {}, ErrorCode::not_found, {"onehop launch", "RANK"}},
      {"the shell of sbatch", in_batch, ErrorCode::not_found, {"srun"}},
      {"the batch step",
       in_batch + Variables{{"SLURM_STEP_ID", "4294967291"}},
       ErrorCode::not_found,
       {"srun"}},
      {"rank without size",
       {{"ONEHOP_RANK", "3"}},
       ErrorCode::invalid_argument,
       {"ONEHOP_SIZE", "ONEHOP_RANK='3'"}},
      {"size without rank", {{"WORLD_SIZE", "3"}}, ErrorCode::invalid_argument, {"RANK", "WORLD_SIZE='3'"}},
      {"no store",
       {{"ONEHOP_RANK", "0"}, {"ONEHOP_SIZE", "2"}},
       ErrorCode::invalid_argument,
       {"ONEHOP_STORE"}},
      {"a rank that is no number",
       kTorchrun + Variables{{"RANK", "1x"}},
       ErrorCode::invalid_argument,
       {"RANK='1x'"}},
      {"a negative rank",
       kOpenMpi + Variables{{"OMPI_COMM_WORLD_RANK", "-1"}},
       ErrorCode::invalid_argument,
       {"OMPI_COMM_WORLD_RANK='-1'"}},
      {"a rank beyond the size",
       kOnehop + Variables{{"ONEHOP_RANK", "4"}},
       ErrorCode::invalid_argument,
       {"ONEHOP_RANK='4'", "ONEHOP_SIZE='4'"}},
      {"a size of zero",
       kSlurm + Variables{{"SLURM_STEP_NUM_TASKS", "0"}},
       ErrorCode::invalid_argument,
       {"SLURM_STEP_NUM_TASKS='0'"}},
      {"a local rank beyond the size",
       kTorchrun + Variables{{"LOCAL_RANK", "9"}},
       ErrorCode::invalid_argument,
       {"LOCAL_RANK='9'"}},
      {"more local ranks than ranks",
       kTorchrun + Variables{{"LOCAL_WORLD_SIZE", "8"}},
       ErrorCode::invalid_argument,
       {"LOCAL_WORLD_SIZE='8'", "WORLD_SIZE='4'"}},
      {"two machines under torchrun",
       kTorchrun + Variables{{"WORLD_SIZE", "8"}},
       ErrorCode::refused,
       {"one machine", "WORLD_SIZE='8'", "LOCAL_WORLD_SIZE='4'"}},
      {"two machines under mpirun",
       kOpenMpi + Variables{{"OMPI_COMM_WORLD_SIZE", "8"}},
       ErrorCode::refused,
       {"one machine", "OMPI_COMM_WORLD_SIZE='8'", "OMPI_COMM_WORLD_LOCAL_SIZE='4'"}},
      {"two machines under mpiexec",
       kIntelMpi + Variables{{"PMI_SIZE", "8"}},
       ErrorCode::refused,
       {"one machine", "PMI_SIZE='8'", "MPI_LOCALNRANKS='4'"}},
      {"a rank of MPICH without a size",
       kIntelMpi + Variables{{"PMI_SIZE", ""}},
       ErrorCode::invalid_argument,
       {"PMI_SIZE", "PMI_RANK='2'"}},
      {"a local rank beyond those of the machine",
       kIntelMpi + Variables{{"MPI_LOCALRANKID", "4"}},
       ErrorCode::invalid_argument,
       {"MPI_LOCALRANKID='4'"}},
      {"MPICH where nobody knows who started the ranks",
       kMpich,
       ErrorCode::invalid_argument,
       {"MPICH", "ONEHOP_STORE"}},
      {"a rank of PMIx, which has no variable for the size",
       {{"PMIX_RANK", "1"}, {"PMIX_NAMESPACE", "x"}},
       ErrorCode::not_found,
       {"PMIX_RANK='1'", "ONEHOP_SIZE"}},
      {"two machines under srun",
       kSlurm + Variables{{"SLURM_STEP_NUM_NODES", "2"}},
       ErrorCode::refused,
       {"one machine", "SLURM_STEP_NUM_NODES='2'"}},
      {"nothing to tell jobs apart",
       {{"RANK", "0"}, {"WORLD_SIZE", "2"}},
       ErrorCode::invalid_argument,
       {"MASTER_PORT", "ONEHOP_STORE"}},
      {"an unknown store",
       kOnehop + Variables{{"ONEHOP_STORE", "redis://x"}},
       ErrorCode::invalid_argument,
       {"ONEHOP_STORE='redis://x'"}},
      {"a relative directory",
       kOnehop + Variables{{"ONEHOP_STORE", "file:here"}},
       ErrorCode::invalid_argument,
       {"ONEHOP_STORE='file:here'", "absolute"}},
      {"no port", kOnehop + Variables{{"ONEHOP_STORE", "tcp://host"}}, ErrorCode::invalid_argument, {"port"}},
      {"a port too large",
       kOnehop + Variables{{"ONEHOP_STORE", "tcp://host:65536"}},
       ErrorCode::invalid_argument,
       {"65535"}},
      {"no host", kOnehop + Variables{{"ONEHOP_STORE", "tcp://:1"}}, ErrorCode::invalid_argument, {"host"}},
      {"no host in brackets",
       kOnehop + Variables{{"ONEHOP_STORE", "tcp://[]:1"}},
       ErrorCode::invalid_argument,
       {"host"}},
  };
  for (const Bad& bad : cases) {
    SCOPED_TRACE(bad.what);
    try {
      (void)read_environment(from(bad.variables));
      ADD_FAILURE() << "nothing was thrown";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), bad.code) << error.message();
      EXPECT_THAT(error.message(), Not(HasSubstr("\n")));
      for (const std::string& name : bad.named) EXPECT_THAT(error.message(), HasSubstr(name));
    }
  }
}

TEST(Environment, OnehopStoreWinsUnderEveryLauncher) {
  for (const Variables& launcher : {kOnehop, kTorchrun, kOpenMpi, kMpich, kIntelMpi, kSlurm}) {
    const auto store = [&](const char* text) {
      return read_environment(
                 from(launcher + Variables{{"ONEHOP_STORE", text}, {"ONEHOP_SECRET_FILE", "/s"}}))
          .store;
    };
    EXPECT_EQ(store("file:/a/b"), StoreSpec(FileStoreSpec{"/a/b"}));
    EXPECT_EQ(store("file:///a/b"), StoreSpec(FileStoreSpec{"/a/b"}));
    EXPECT_EQ(store("tcp://node:29501"), StoreSpec(TcpStoreSpec{"node", 29501, "/s"}));
    EXPECT_EQ(store("tcp://[::1]:80"), StoreSpec(TcpStoreSpec{"::1", 80, "/s"}));
  }
}

TEST(Environment, RanksOfOneJobShareAnIdentityAndOtherJobsAndRestartsDoNot) {
  EXPECT_EQ(identity(kTorchrun), identity(kTorchrun + Variables{{"RANK", "0"}, {"LOCAL_RANK", "0"}}));
  EXPECT_NE(identity(kTorchrun), identity(kTorchrun + Variables{{"TORCHELASTIC_RESTART_COUNT", "1"}}));
  EXPECT_NE(identity(kTorchrun), identity(kTorchrun + Variables{{"MASTER_PORT", "29501"}}));
  EXPECT_EQ(identity(kOpenMpi), identity(kOpenMpi + Variables{{"OMPI_COMM_WORLD_RANK", "0"}}));
  EXPECT_NE(identity(kOpenMpi), identity(kOpenMpi + Variables{{"PMIX_NAMESPACE", "1"}}));
  EXPECT_EQ(identity(kSlurm), identity(kSlurm + Variables{{"SLURM_PROCID", "0"}, {"SLURM_LOCALID", "0"}}));
  EXPECT_NE(identity(kSlurm), identity(kSlurm + Variables{{"SLURM_STEP_ID", "1"}}));
  EXPECT_NE(identity(kSlurm), identity(kOpenMpi));
  EXPECT_EQ(identity(kIntelMpi), identity(kIntelMpi + Variables{{"PMI_RANK", "0"}, {"PMI_FD", "6"}}));
  EXPECT_NE(identity(kIntelMpi), identity(kIntelMpi + Variables{{"I_MPI_HYDRA_UUID", "1"}}));
}

TEST(Environment, RanksOfMpichAreToldApartFromOtherJobsByTheProcessThatStartedThem) {
  const auto identity_of = [](const Variables& variables, const char* starter) {
    const Environment found = read_environment(from(variables), [&] { return std::string(starter); });
    return std::get<JobStoreSpec>(found.store).identity;
  };
  EXPECT_EQ(identity_of(kMpich, "17/99"), identity_of(kMpich + Variables{{"PMI_RANK", "0"}}, "17/99"));
  EXPECT_NE(identity_of(kMpich, "17/99"), identity_of(kMpich, "17/100"));
  EXPECT_NE(identity_of(kMpich, "17/99"), identity_of(kMpich, "18/99"));
  // Ranks in containers of their own find other ancestors, if any. So a variable that identifies the job is
  // used alone.
  EXPECT_EQ(identity_of(kIntelMpi, "17/99"), identity_of(kIntelMpi, "18/99"));
  EXPECT_EQ(identity_of(kIntelMpi, "17/99"), identity(kIntelMpi));
}

/// Keeps all files of a test in a new directory.
class OpenStore : public ::testing::Test {
 protected:
  OpenStore() {
    char name[] = "/tmp/onehop-environment-test-XXXXXX";
    base_ = ::mkdtemp(name);
    ::setenv("ONEHOP_RUNTIME_DIR", base_.c_str(), 1);
  }
  ~OpenStore() override {
    ::unsetenv("ONEHOP_RUNTIME_DIR");
    std::filesystem::remove_all(base_);
  }
  [[nodiscard]] std::filesystem::path user_directory() const {
    return base_ / ("onehop-" + std::to_string(::geteuid()));
  }
  [[nodiscard]] std::ptrdiff_t files() const {
    return std::distance(std::filesystem::directory_iterator(user_directory()), {});
  }
  static std::string error_of(const Environment& environment) {
    try {
      (void)open_store(environment, kDefaultTimeout);
    } catch (const Error& error) {
      return error.message();
    }
    ADD_FAILURE() << "nothing was thrown";
    return {};
  }
  std::filesystem::path base_;
};

TEST_F(OpenStore, RanksOfOneJobShareAStoreAndNothingIsLeftWhenTheLastHasGone) {
  const Environment environment = read_environment(from(kTorchrun));
  std::shared_ptr<Store> first = open_store(environment, kDefaultTimeout);
  std::shared_ptr<Store> second = open_store(environment, kDefaultTimeout);
  first->set("key", "value");
  EXPECT_EQ(second->get("key"), "value");
  first.reset();
  EXPECT_EQ(second->get("key"), "value");
  second.reset();
  EXPECT_EQ(files(), 0);
}

TEST_F(OpenStore, ALaterRunWithTheSameIdentityFindsAnEmptyStore) {
  const Environment environment = read_environment(from(kTorchrun));
  const pid_t child = ::fork();
  if (child == 0) {  // a run that is killed half-way
    open_store(environment, kDefaultTimeout)->set("key", "stale");
    const auto store = open_store(environment, kDefaultTimeout);
    store->set("key", "stale");
    ::_exit(store->get("key") == "stale" ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  EXPECT_EQ(files(), 2) << "the directory and its lock are still there";
  EXPECT_EQ(open_store(environment, kDefaultTimeout)->get_for("key", Duration{0}), std::nullopt);
}

TEST_F(OpenStore, OpeningAnyJobStoreRemovesWhatKilledRunsLeft) {
  const pid_t child = ::fork();
  if (child == 0) {
    const auto store = open_store(read_environment(from(kOpenMpi)), kDefaultTimeout);
    store->set("key", "stale");
    ::_exit(0);
  }
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_EQ(files(), 2);
  open_store(read_environment(from(kSlurm)), kDefaultTimeout).reset();
  EXPECT_EQ(files(), 0);
}

TEST_F(OpenStore, WhatAProcessWithoutDescriptorsCannotRemoveTheNextJobRemoves) {
#if ONEHOP_ADDRESS_SANITIZED
  GTEST_SKIP() << "UBSan needs descriptors itself: it looks at memory through a pipe";
#endif
  auto store = open_store(read_environment(from(kOpenMpi)), kDefaultTimeout);
  store->set("key", "value");
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit none = {.rlim_cur = 0, .rlim_max = limit.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  store.reset();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_EQ(files(), 2) << "the directory and its lock";
  open_store(read_environment(from(kSlurm)), kDefaultTimeout).reset();
  EXPECT_EQ(files(), 0);
}

TEST_F(OpenStore, OpeningAJobStoreLeavesWhatItDidNotMake) {
  const std::filesystem::path mine = user_directory() / "mine";
  std::filesystem::create_directories(mine);
  ASSERT_EQ(::chmod(user_directory().c_str(), 0700), 0);
  for (const char* name : {"mine.lock", "job-mine.lock", "mine/data"}) std::ofstream(user_directory() / name);
  std::filesystem::create_directory(user_directory() / "job-mine");
  ASSERT_EQ(::mkfifo((user_directory() / "job-0123456789abcdef.lock").c_str(), 0600), 0);
  open_store(read_environment(from(kSlurm)), kDefaultTimeout).reset();
  EXPECT_TRUE(std::filesystem::exists(mine / "data"));
  EXPECT_EQ(files(), 5);
}

TEST_F(OpenStore, TheRootDirectoryIsNoStore) {
  EXPECT_THAT(error_of(read_environment(from(kOnehop + Variables{{"ONEHOP_STORE", "file:/"}}))),
              HasSubstr("the store directory / is the root directory"));
}

TEST_F(OpenStore, RefusesADirectoryOthersCanEnterAndSaysWhich) {
  ASSERT_EQ(::mkdir(user_directory().c_str(), 0700), 0);
  ASSERT_EQ(::chmod(user_directory().c_str(), 0755), 0);
  EXPECT_THAT(error_of(read_environment(from(kTorchrun))),
              AllOf(HasSubstr(user_directory().string()), HasSubstr("755")));
  ASSERT_EQ(::rmdir(user_directory().c_str()), 0);
  ASSERT_EQ(::symlink("/tmp", user_directory().c_str()), 0);
  EXPECT_THAT(error_of(read_environment(from(kTorchrun))), HasSubstr("0700"));
}

TEST_F(OpenStore, RefusesASecretFileThatOthersCanReadOrThatIsEmpty) {
  const std::filesystem::path secret = base_ / "secret";
  const Environment environment = read_environment(from(
      kOnehop + Variables{{"ONEHOP_STORE", "tcp://127.0.0.1:1"}, {"ONEHOP_SECRET_FILE", secret.string()}}));
  EXPECT_THAT(error_of(environment), AllOf(HasSubstr(secret.string()), HasSubstr("ENOENT")));
  std::ofstream(secret) << "hunter2\n";
  ASSERT_EQ(::chmod(secret.c_str(), 0644), 0);
  EXPECT_THAT(error_of(environment), HasSubstr("chmod 600"));
  std::ofstream(secret, std::ios::trunc) << "\n";
  ASSERT_EQ(::chmod(secret.c_str(), 0600), 0);
  EXPECT_THAT(error_of(environment), HasSubstr("1 to 4096 bytes"));
}

TEST(JobFromEnv, IsNothingWithoutALauncher) {
  for (const Variables& launcher : {kOnehop, kTorchrun, kOpenMpi, kMpich, kIntelMpi, kSlurm}) {
    for (const auto& [name, value] : launcher) ::unsetenv(name.c_str());
  }
  EXPECT_EQ(job_from_env(), std::nullopt);
  for (const auto& [name, value] : kOnehop) ::setenv(name.c_str(), value.c_str(), 1);
  const std::optional<JobInfo> job = job_from_env();
  for (const auto& [name, value] : kOnehop) ::unsetenv(name.c_str());
  ASSERT_TRUE(job.has_value());
  EXPECT_EQ(job->launcher, "onehop");
  EXPECT_EQ(job->rank, Rank{1});
  EXPECT_EQ(job->size, 4);
}

// --- deadlines ---

constexpr Duration kTimeout{200};

/// Expects `body` to end with Error{timeout} by kTimeout; returns its message.
std::string expires(const std::function<void()>& body) {
  const Stopwatch watch;
  const std::string message = message_of(body, ErrorCode::timeout);
  EXPECT_LE(watch.elapsed(), kTimeout + kPromise + kBusyMachine);
  return message;
}

TEST_F(OpenStore, AJobLockThatAnotherProcessHoldsIsWaitedForUntilTheDeadline) {
  const Environment environment = read_environment(from(kTorchrun));
  std::filesystem::path lock;
  {
    const auto store = open_store(environment, kDefaultTimeout);
    for (const auto& entry : std::filesystem::directory_iterator(user_directory())) {
      if (entry.path().extension() == ".lock") lock = entry.path();
    }
  }
  const os::UniqueFd held(::open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  ASSERT_EQ(::flock(held.get(), LOCK_EX), 0);
  EXPECT_THAT(expires([&] { (void)open_store(environment, kTimeout); }),
              AllOf(HasSubstr(lock.string()), HasSubstr("200 ms")));
  ASSERT_EQ(::flock(held.get(), LOCK_UN), 0);
  open_store(environment, Duration{0})->set("key", "value");
}

JoinOptions within(Duration timeout) {
  JoinOptions options;
  options.timeout = timeout;
  return options;
}

TEST(FromEnv, AServerThatNobodyRunsIsWaitedForUntilTheDeadline) {
  const ReservedPort reserved;
  const testing::ScopedVariable rank("ONEHOP_RANK", "0");
  const testing::ScopedVariable size("ONEHOP_SIZE", "2");
  const testing::ScopedVariable store("ONEHOP_STORE", "tcp://127.0.0.1:" + std::to_string(reserved.port()));
  EXPECT_THAT(expires([] { (void)Group::from_env(within(kTimeout)); }), HasSubstr("200 ms"));
  (void)expires([] { (void)store_from_env(kTimeout); });
}

TEST(FromEnv, AServerThatIsStoppedIsWaitedForUntilTheDeadline) {
  const ServerProcess server;
  const testing::ScopedVariable rank("ONEHOP_RANK", "0");
  const testing::ScopedVariable size("ONEHOP_SIZE", "2");
  const testing::ScopedVariable store("ONEHOP_STORE", "tcp://127.0.0.1:" + std::to_string(server.port()));
  server.stop();
  (void)expires([] { (void)Group::from_env(within(kTimeout)); });
}

}  // namespace
}  // namespace onehop
