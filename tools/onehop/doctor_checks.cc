// SPDX-License-Identifier: Apache-2.0
#include "doctor_checks.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <sstream>
#include <thread>

#include "onehop/error.h"
#include "onehop/job.h"

#include "base/check.h"
#include "base/deadline.h"
#include "base/env.h"
#include "nccl_library.h"
#include "origin.h"
#include "os/private_dir.h"
#include "os/process_memory.h"
#include "os/socket.h"
#include "os/unique_fd.h"

namespace onehop::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMemory = "shared memory";
constexpr const char* kRendezvous = "rendezvous";
constexpr const char* kMachine = "machine";

constexpr const char* kSeccompRemedy =
    "a container's seccomp profile forbids it: run with the default profile or newer";

Finding works(const char* section, const char* name, std::string detail) {
  return {section, name, Health::works, std::move(detail), {}, false};
}
Finding fails(const char* section, const char* name, std::string detail, std::string remedy) {
  return {section, name, Health::fails, std::move(detail), std::move(remedy), false};
}
Finding information(const char* section, const char* name, std::string detail) {
  return {section, name, Health::not_applicable, std::move(detail), {}, false};
}
Finding essential(Finding finding) {
  finding.essential = true;
  return finding;
}

std::string first_line(const fs::path& path) {
  std::string line;
  std::ifstream file(path);
  std::getline(file, line);
  return line;
}

std::string failed_call(const char* call) {
  return fmt::format("{}: {}", call, errno_text(errno));
}

os::UniqueFd make_memfd() {
  return os::UniqueFd(static_cast<int>(::memfd_create("onehop-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING)));
}

constexpr std::size_t kProbeBytes = 1 << 20;

Finding check_memfd() {
  constexpr const char* kName = "sealed memfd";
  const os::UniqueFd memory = make_memfd();
  if (!memory) return fails(kMemory, kName, failed_call("memfd_create"), kSeccompRemedy);
  if (::ftruncate(memory.get(), kProbeBytes) != 0) return fails(kMemory, kName, failed_call("ftruncate"), {});
  if (::fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return fails(kMemory, kName, failed_call("F_ADD_SEALS"), "sealing needs Linux 3.17 or later");
  }
  if (::ftruncate(memory.get(), 0) == 0) {
    return fails(kMemory, kName, "a sealed memfd could be truncated",
                 "this kernel or sandbox does not enforce seals");
  }
  void* const mapped = ::mmap(nullptr, kProbeBytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory.get(), 0);
  if (mapped == MAP_FAILED) return fails(kMemory, kName, failed_call("mmap"), "check 'ulimit -v'");
  std::memset(mapped, 1, kProbeBytes);
  (void)::munmap(mapped, kProbeBytes);
  return works(kMemory, kName, "create, seal, map and write");
}

Finding check_fallocate() {
  constexpr const char* kName = "fallocate";
  const os::UniqueFd memory = make_memfd();
  if (!memory) return fails(kMemory, kName, failed_call("memfd_create"), kSeccompRemedy);
  if (::fallocate(memory.get(), 0, 0, kProbeBytes) != 0) {
    return fails(kMemory, kName, failed_call("fallocate on a memfd"),
                 "raise the memory limit of this cgroup");
  }
  struct stat info {};
  if (::fstat(memory.get(), &info) != 0) return fails(kMemory, kName, failed_call("fstat"), {});
  if (static_cast<std::size_t>(info.st_blocks) * 512 < kProbeBytes) {
    return fails(kMemory, kName, "fallocate reserves nothing",
                 "out of memory would show as a crash, not an error");
  }
  return works(kMemory, kName,
               "memory is reserved before it is used, so running out is an error and not a crash");
}

Finding check_dev_shm() {
  struct statvfs info {};
  if (::statvfs("/dev/shm", &info) != 0)
    return information(kMemory, "/dev/shm", "absent; onehop does not use it");
  const double gib = static_cast<double>(info.f_blocks) * static_cast<double>(info.f_frsize) / (1 << 30);
  return information(
      kMemory, "/dev/shm",
      fmt::format("{:.2f} GiB; onehop does not use it, its memory counts against the cgroup only", gib));
}

/// Makes the system calls itself: os::futex_wait() hides their errors.
Finding check_futex() {
  constexpr const char* kName = "futex between processes";
  constexpr const char* kCall = "FUTEX_WAIT";
  void* const shared = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) return fails(kMemory, kName, failed_call("mmap"), {});
  const pid_t child = ::fork();
  if (child == 0) {
    const timespec limit{2, 0};
    ::_exit(::syscall(SYS_futex, shared, FUTEX_WAIT, 0, &limit, nullptr, 0) == 0 ? 0 : errno);
  }
  if (child < 0) {
    const std::string reason = failed_call("fork");
    (void)::munmap(shared, 4096);
    return fails(kMemory, kName, reason, "check 'ulimit -u' and the cgroup's limit of processes");
  }
  bool woken = false;
  const Deadline deadline = Deadline::after(std::chrono::seconds{10});
  int status = 1;
  bool ended = false;
  while (!woken && !ended && !deadline.expired()) {
    woken = ::syscall(SYS_futex, shared, FUTEX_WAKE, 1, nullptr, nullptr, 0) == 1;
    if (woken) break;
    ended = ::waitpid(child, &status, WNOHANG) == child;
    std::this_thread::yield();
  }
  if (!ended) (void)::waitpid(child, &status, 0);
  (void)::munmap(shared, 4096);
  if (woken && status == 0) return works(kMemory, kName, "one process sleeps, another wakes it");
  if (const int reason = WIFEXITED(status) ? WEXITSTATUS(status) : 0; reason != 0 && reason != ETIMEDOUT) {
    return fails(kMemory, kName, fmt::format("{}: {}", kCall, errno_text(reason)), kSeccompRemedy);
  }
  return fails(kMemory, kName, fmt::format("{} in one process was not woken from another", kCall),
               kSeccompRemedy);
}

/// Two children of one process, as a launcher's ranks are: one reads the other's memory.
Finding check_single_copy() {
  constexpr const char* kName = "single copy";
  constexpr const char* kStaged = "host ranks copy large data twice, through shared memory";
  if (!env::get_flag("ONEHOP_SINGLE_COPY", true))
    return information(kMemory, kName, fmt::format("ONEHOP_SINGLE_COPY=0: {}", kStaged));
  // Shared, so that the reader learns when the owner is ready; the word is in each process's own memory.
  void* const shared = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) return fails(kMemory, kName, failed_call("mmap"), {});
  std::atomic_ref ready(*static_cast<std::uint32_t*>(shared));
  constexpr std::uint64_t kMark = 0x6f6e65686f70;
  std::uint64_t word = 0;
  const auto start = [](auto&& body) {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(body());
    return child;
  };
  const pid_t owner = start([&] {
    os::permit_siblings_to_read();
    word = kMark;
    ready.store(1);
    while (true) ::pause();
    return 0;
  });
  const pid_t reader = owner < 0 ? -1 : start([&] {
    const Deadline deadline = Deadline::after(std::chrono::seconds{10});
    while (ready.load() == 0 && !deadline.expired()) std::this_thread::yield();
    std::uint64_t seen = 0;
    const int error = os::read_process(owner, reinterpret_cast<std::uint64_t>(&word), &seen, sizeof seen);
    return error == 0 && seen != kMark ? EIO : error;
  });
  const std::string fork_failed = reader < 0 ? failed_call("fork") : "";
  int status = 0;
  if (reader > 0) (void)::waitpid(reader, &status, 0);
  if (owner > 0) {
    (void)::kill(owner, SIGKILL);
    (void)::waitpid(owner, nullptr, 0);
  }
  (void)::munmap(shared, 4096);
  if (reader < 0)
    return fails(kMemory, kName, fork_failed, "check 'ulimit -u' and the cgroup's limit of processes");
  const int error = WIFEXITED(status) ? WEXITSTATUS(status) : EINTR;
  if (error == 0)
    return works(kMemory, kName,
                 "process_vm_readv: host ranks read large data in each other's memory, where that is faster");
  const std::string yama = first_line("/proc/sys/kernel/yama/ptrace_scope");
  const bool by_yama = error == EPERM && (yama == "2" || yama == "3");
  return fails(
      kMemory, kName, fmt::format("process_vm_readv: {}; {}", errno_text(error), kStaged),
      by_yama ? fmt::format("kernel.yama.ptrace_scope is {}; 1 or 0 permits it", yama) : kSeccompRemedy);
}

Finding check_huge_pages() {
  constexpr const char* kName = "huge pages for shared memory";
  const std::string modes = first_line("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
  const std::size_t open = modes.find('[');
  if (open == std::string::npos) return information(kMemory, kName, "not in this kernel");
  const std::string mode = modes.substr(open + 1, modes.find(']') - open - 1);
  if (mode == "never" || mode == "deny") {
    return information(kMemory, kName,
                       fmt::format("shmem_enabled is '{}'; large buffers map faster with: echo advise > "
                                   "/sys/kernel/mm/transparent_hugepage/shmem_enabled",
                                   mode));
  }
  return works(kMemory, kName, fmt::format("shmem_enabled is '{}'", mode));
}

Finding check_private_directory() {
  constexpr const char* kName = "private directory";
  try {
    const os::PrivateDir dir = os::PrivateDir::create("launch");
    const std::string path = dir.path() + "/socket";
    // Leaves room for the socket names of groups, which are longer.
    if (path.size() + 32 > sizeof sockaddr_un::sun_path) {
      return fails(kRendezvous, kName, fmt::format("{} is too long for a socket's name", dir.path()),
                   "set ONEHOP_RUNTIME_DIR to a shorter path");
    }
    try {
      const os::UniqueFd server = os::listen_unix(path);
      os::UniqueFd client;
      if (os::try_connect_unix(path, client) != os::ConnectStatus::connected)
        fail(ErrorCode::system, "the new socket {} accepts no connection", path);
    } catch (const Error& error) {
      return fails(kRendezvous, kName, fmt::format("a Unix socket in {}: {}", dir.path(), error.message()),
                   "set ONEHOP_RUNTIME_DIR to a directory on a local file system");
    }
    return works(
        kRendezvous, kName,
        fmt::format("sockets can live below {} (ONEHOP_RUNTIME_DIR changes it)", env::runtime_base()));
  } catch (const Error& error) {
    return fails(kRendezvous, kName, error.message(),
                 "set ONEHOP_RUNTIME_DIR to a directory you can write to");
  }
}

Finding check_passing_descriptors() {
  constexpr const char* kName = "descriptors over sockets";
  try {
    const auto [left, right] = os::socket_pair();
    const os::UniqueFd memory = make_memfd();
    if (!memory) return fails(kRendezvous, kName, failed_call("memfd_create"), kSeccompRemedy);
    const Deadline deadline = Deadline::after(std::chrono::seconds{10});
    os::Message message;
    if (os::send_message(left.get(), "x", memory.get(), deadline) != os::SendStatus::sent ||
        !os::recv_message(right.get(), message, deadline) || message.fd_lost || !message.fd) {
      return fails(kRendezvous, kName, "the descriptor did not arrive", "raise 'ulimit -n'");
    }
    struct stat a {};
    struct stat b {};
    if (::fstat(memory.get(), &a) != 0 || ::fstat(message.fd.get(), &b) != 0)
      return fails(kRendezvous, kName, failed_call("fstat"), {});
    if (a.st_ino != b.st_ino) {
      return fails(kRendezvous, kName, "another file arrived than was sent",
                   "this sandbox does not pass descriptors");
    }
    if (os::peer_uid(right.get()) != ::geteuid()) {
      return fails(kRendezvous, kName, "SO_PEERCRED does not tell who the peer is",
                   "ranks of one job must share a user namespace");
    }
  } catch (const Error& error) {
    return fails(kRendezvous, kName, error.message(), kSeccompRemedy);
  }
  return works(kRendezvous, kName, "SCM_RIGHTS passes memory, SO_PEERCRED tells who sent it");
}

Finding check_pidfd() {
  constexpr const char* kName = "pidfd";
  const os::UniqueFd process(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
  if (!process) return information(kRendezvous, kName, failed_call("pidfd_open") + "; not needed");
  const os::UniqueFd copy(static_cast<int>(::syscall(SYS_pidfd_getfd, process.get(), STDERR_FILENO, 0)));
  if (!copy) return information(kRendezvous, kName, failed_call("pidfd_getfd") + "; not needed");
  return works(kRendezvous, kName,
               "pidfd_open and pidfd_getfd (not needed: descriptors travel over sockets)");
}

Finding check_launcher() {
  constexpr const char* kName = "launcher";
  try {
    const std::optional<JobInfo> job = job_from_env();
    if (!job)
      return information(kRendezvous, kName, "no launcher's variables are set; 'onehop launch' sets them");
    return works(kRendezvous, kName,
                 fmt::format("rank {} of {}, started by {}", job->rank.value, job->size, job->launcher));
  } catch (const Error& error) {
    return fails(kRendezvous, kName, error.message(), "correct or unset the variable");
  }
}

std::string format_limit(rlim_t limit) {
  return limit == RLIM_INFINITY ? "unlimited" : fmt::format("{}", limit);
}

std::vector<Finding> check_limits() {
  std::vector<Finding> findings;
  rlimit files{};
  rlimit space{};
  rlimit locked{};
  (void)::getrlimit(RLIMIT_NOFILE, &files);
  (void)::getrlimit(RLIMIT_AS, &space);
  (void)::getrlimit(RLIMIT_MEMLOCK, &locked);
  constexpr rlim_t kFewFiles =
      256;  // 64 ranks take a socket and a memfd per peer and rank, and programs have their own
  const std::string open_files =
      fmt::format("{} (hard limit {})", format_limit(files.rlim_cur), format_limit(files.rlim_max));
  findings.push_back(files.rlim_cur >= kFewFiles
                         ? works(kMachine, "open files", open_files)
                         : fails(kMachine, "open files", open_files, "raise it: ulimit -n 1024"));
  findings.push_back(space.rlim_cur == RLIM_INFINITY
                         ? works(kMachine, "address space", "unlimited")
                         : fails(kMachine, "address space",
                                 fmt::format("limited to {} bytes", space.rlim_cur),
                                 "every rank maps every rank's buffers: ulimit -v unlimited"));
  findings.push_back(information(kMachine, "locked memory",
                                 fmt::format("{} bytes; onehop locks none", format_limit(locked.rlim_cur))));
  return findings;
}

std::vector<Finding> check_processor() {
  const MachineInfo& machine = machine_info();
  std::vector<Finding> findings;
  findings.push_back(
      works(kMachine, "cores",
            fmt::format("{} usable{}", machine.cpus,
                        machine.cpus < 4 ? "; more ranks than cores take turns, which costs latency" : "")));
  std::set<std::string> flags;
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("flags") && !line.starts_with("Features")) continue;
    std::istringstream words(line.substr(line.find(':') + 1));
    for (std::string word; words >> word;) flags.insert(word);
    break;
  }
  std::string used;
  for (const char* flag :
       {"avx2", "f16c", "avx512f", "avx512bw", "avx512_bf16", "avx512_fp16", "asimd", "asimdhp", "bf16"}) {
    if (flags.contains(flag)) used += fmt::format("{}{}", used.empty() ? "" : " ", flag);
  }
  findings.push_back(works(kMachine, "processor",
                           fmt::format("{}; {}", machine.cpu, used.empty() ? "baseline only" : used)));
  return findings;
}

std::vector<Finding> check_confinement() {
  std::vector<Finding> findings;
  std::error_code ignored;
  const bool container = fs::exists("/.dockerenv", ignored) || fs::exists("/run/.containerenv", ignored);
  std::string seccomp = "0";
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("Seccomp:")) seccomp = line.substr(line.find_last_of(" \t") + 1);
  }
  findings.push_back(information(
      kMachine, "confinement",
      fmt::format("{}, seccomp filter {}{}", container ? "in a container" : "no container seen",
                  seccomp == "0" ? "off" : "on",
                  container ? "; ranks in different containers need a shared ONEHOP_RUNTIME_DIR" : "")));
  const std::string yama = first_line("/proc/sys/kernel/yama/ptrace_scope");
  if (!yama.empty()) {
    findings.push_back(
        information(kMachine, "yama ptrace_scope",
                    fmt::format("{}; onehop does not use ptrace, but it decides about 'single copy'", yama)));
  }
  return findings;
}

Finding check_nccl_library() {
  constexpr const char* kName = "libonehop_nccl";
  const auto library = find_nccl_library();
  if (!library)
    return information(kMachine, kName, "not installed; it makes programs that use NCCL use onehop");
  // The path is last: a line of a terminal ends before it, however long it is.
  return works(kMachine, kName,
               fmt::format("'onehop nccl-run -- PROGRAM' puts it in NCCL's place: {}", library->string()));
}

}  // namespace

std::vector<Finding> check_machine() {
  std::vector<Finding> findings = {
      essential(check_memfd()),
      essential(check_fallocate()),
      essential(check_futex()),
      check_single_copy(),
      check_huge_pages(),
      check_dev_shm(),
      essential(check_private_directory()),
      essential(check_passing_descriptors()),
      check_pidfd(),
      check_launcher(),
  };
  for (auto* const part : {&check_processor, &check_limits, &check_confinement}) {
    for (Finding& finding : (*part)()) findings.push_back(std::move(finding));
  }
  findings.push_back(check_nccl_library());
  return findings;
}

}  // namespace onehop::cli
