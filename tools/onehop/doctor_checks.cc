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
#include <memory>
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

constexpr const char* kYama = "/proc/sys/kernel/yama/ptrace_scope";

constexpr const char* kSeccompRemedy =
    "a container's seccomp profile forbids it: run with the default profile or newer";
constexpr const char* kForkRemedy = "check 'ulimit -u' and the cgroup's limit of processes";

Finding works(std::string detail) {
  return {{}, {}, Health::works, std::move(detail), {}, false};
}
Finding fails(std::string detail, std::string remedy) {
  return {{}, {}, Health::fails, std::move(detail), std::move(remedy), false};
}
Finding information(std::string detail) {
  return {{}, {}, Health::not_applicable, std::move(detail), {}, false};
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

/// A page that this process shares with its children.
using SharedPage = std::unique_ptr<void, decltype([](void* page) { (void)::munmap(page, 4096); })>;

/// Empty, with errno, if there is none.
SharedPage make_shared_page() {
  void* const page = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return SharedPage(page == MAP_FAILED ? nullptr : page);
}

constexpr std::size_t kProbeBytes = 1 << 20;

Finding check_memfd() {
  const os::UniqueFd memory = make_memfd();
  if (!memory) return fails(failed_call("memfd_create"), kSeccompRemedy);
  if (::ftruncate(memory.get(), kProbeBytes) != 0) return fails(failed_call("ftruncate"), {});
  if (::fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return fails(failed_call("F_ADD_SEALS"), "sealing needs Linux 3.17 or later");
  }
  if (::ftruncate(memory.get(), 0) == 0) {
    return fails("a sealed memfd could be truncated", "this kernel or sandbox does not enforce seals");
  }
  void* const mapped = ::mmap(nullptr, kProbeBytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory.get(), 0);
  if (mapped == MAP_FAILED) return fails(failed_call("mmap"), "check 'ulimit -v'");
  std::memset(mapped, 1, kProbeBytes);
  (void)::munmap(mapped, kProbeBytes);
  return works("create, seal, map and write");
}

Finding check_fallocate() {
  const os::UniqueFd memory = make_memfd();
  if (!memory) return fails(failed_call("memfd_create"), kSeccompRemedy);
  if (::fallocate(memory.get(), 0, 0, kProbeBytes) != 0) {
    return fails(failed_call("fallocate on a memfd"), "raise the memory limit of this cgroup");
  }
  struct stat info {};
  if (::fstat(memory.get(), &info) != 0) return fails(failed_call("fstat"), {});
  if (static_cast<std::size_t>(info.st_blocks) * 512 < kProbeBytes) {
    return fails("fallocate reserves nothing", "out of memory would show as a crash, not an error");
  }
  return works("memory is reserved before it is used, so running out is an error and not a crash");
}

Finding check_dev_shm() {
  struct statvfs info {};
  if (::statvfs("/dev/shm", &info) != 0) return information("absent; onehop does not use it");
  const double gib = static_cast<double>(info.f_blocks) * static_cast<double>(info.f_frsize) / (1 << 30);
  return information(
      fmt::format("{:.2f} GiB; onehop does not use it, its memory counts against the cgroup only", gib));
}

/// Makes the system calls itself: os::futex_wait() hides their errors.
Finding check_futex() {
  constexpr const char* kCall = "FUTEX_WAIT";
  const SharedPage shared = make_shared_page();
  if (!shared) return fails(failed_call("mmap"), {});
  const pid_t child = ::fork();
  if (child == 0) {
    const timespec limit{2, 0};
    ::_exit(::syscall(SYS_futex, shared.get(), FUTEX_WAIT, 0, &limit, nullptr, 0) == 0 ? 0 : errno);
  }
  if (child < 0) return fails(failed_call("fork"), kForkRemedy);
  bool woken = false;
  const Deadline deadline = Deadline::after(std::chrono::seconds{10});
  int status = 1;
  bool ended = false;
  while (!woken && !ended && !deadline.expired()) {
    woken = ::syscall(SYS_futex, shared.get(), FUTEX_WAKE, 1, nullptr, nullptr, 0) == 1;
    if (woken) break;
    ended = ::waitpid(child, &status, WNOHANG) == child;
    std::this_thread::yield();
  }
  if (!ended) (void)::waitpid(child, &status, 0);
  if (woken && status == 0) return works("one process sleeps, another wakes it");
  if (const int reason = WIFEXITED(status) ? WEXITSTATUS(status) : 0; reason != 0 && reason != ETIMEDOUT) {
    return fails(fmt::format("{}: {}", kCall, errno_text(reason)), kSeccompRemedy);
  }
  return fails(fmt::format("{} in one process was not woken from another", kCall), kSeccompRemedy);
}

/// Two children of one process, as a launcher's ranks are: one reads the other's memory.
Finding check_single_copy() {
  constexpr const char* kStaged = "host ranks copy large data twice, through shared memory";
  if (!env::get_flag("ONEHOP_SINGLE_COPY", true))
    return information(fmt::format("ONEHOP_SINGLE_COPY=0: {}", kStaged));
  // Shared, so that the reader learns when the owner is ready; the word is in each process's own memory.
  const SharedPage shared = make_shared_page();
  if (!shared) return fails(failed_call("mmap"), {});
  std::atomic_ref ready(*static_cast<std::uint32_t*>(shared.get()));
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
  if (reader < 0) return fails(fork_failed, kForkRemedy);
  const int error = WIFEXITED(status) ? WEXITSTATUS(status) : EINTR;
  if (error == 0)
    return works("process_vm_readv: host ranks read large data in each other's memory, where that is faster");
  const std::string yama = first_line(kYama);
  const bool by_yama = error == EPERM && (yama == "2" || yama == "3");
  return fails(
      fmt::format("process_vm_readv: {}; {}", errno_text(error), kStaged),
      by_yama ? fmt::format("kernel.yama.ptrace_scope is {}; 1 or 0 permits it", yama) : kSeccompRemedy);
}

Finding check_huge_pages() {
  const std::string modes = first_line("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
  const std::size_t open = modes.find('[');
  if (open == std::string::npos) return information("not in this kernel");
  const std::string mode = modes.substr(open + 1, modes.find(']') - open - 1);
  if (mode == "never" || mode == "deny") {
    return information(
        fmt::format("shmem_enabled is '{}'; large buffers map faster with: echo advise > "
                    "/sys/kernel/mm/transparent_hugepage/shmem_enabled",
                    mode));
  }
  return works(fmt::format("shmem_enabled is '{}'", mode));
}

Finding check_private_directory() {
  try {
    const os::PrivateDir dir = os::PrivateDir::create("launch");
    const std::string path = dir.path() + "/socket";
    // Leaves room for the socket names of groups, which are longer.
    if (path.size() + 32 > sizeof sockaddr_un::sun_path) {
      return fails(fmt::format("{} is too long for a socket's name", dir.path()),
                   "set ONEHOP_RUNTIME_DIR to a shorter path");
    }
    try {
      const os::UniqueFd server = os::listen_unix(path);
      os::UniqueFd client;
      if (os::try_connect_unix(path, client) != os::ConnectStatus::connected)
        fail(ErrorCode::system, "the new socket {} accepts no connection", path);
    } catch (const Error& error) {
      return fails(fmt::format("a Unix socket in {}: {}", dir.path(), error.message()),
                   "set ONEHOP_RUNTIME_DIR to a directory on a local file system");
    }
    return works(
        fmt::format("sockets can live below {} (ONEHOP_RUNTIME_DIR changes it)", env::runtime_base()));
  } catch (const Error& error) {
    return fails(error.message(), "set ONEHOP_RUNTIME_DIR to a directory you can write to");
  }
}

Finding check_passing_descriptors() {
  try {
    const auto [left, right] = os::socket_pair();
    const os::UniqueFd memory = make_memfd();
    if (!memory) return fails(failed_call("memfd_create"), kSeccompRemedy);
    const Deadline deadline = Deadline::after(std::chrono::seconds{10});
    os::Message message;
    if (os::send_message(left.get(), "x", memory.get(), deadline) != os::SendStatus::sent ||
        !os::recv_message(right.get(), message, deadline) || message.fd_lost || !message.fd) {
      return fails("the descriptor did not arrive", "raise 'ulimit -n'");
    }
    struct stat a {};
    struct stat b {};
    if (::fstat(memory.get(), &a) != 0 || ::fstat(message.fd.get(), &b) != 0)
      return fails(failed_call("fstat"), {});
    if (a.st_ino != b.st_ino) {
      return fails("another file arrived than was sent", "this sandbox does not pass descriptors");
    }
    if (os::peer_uid(right.get()) != ::geteuid()) {
      return fails("SO_PEERCRED does not tell who the peer is",
                   "ranks of one job must share a user namespace");
    }
  } catch (const Error& error) {
    return fails(error.message(), kSeccompRemedy);
  }
  return works("SCM_RIGHTS passes memory, SO_PEERCRED tells who sent it");
}

Finding check_pidfd() {
  const os::UniqueFd process(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
  if (!process) return information(failed_call("pidfd_open") + "; not needed");
  const os::UniqueFd copy(static_cast<int>(::syscall(SYS_pidfd_getfd, process.get(), STDERR_FILENO, 0)));
  if (!copy) return information(failed_call("pidfd_getfd") + "; not needed");
  return works("pidfd_open and pidfd_getfd (not needed: descriptors travel over sockets)");
}

Finding check_launcher() {
  try {
    const std::optional<JobInfo> job = job_from_env();
    if (!job) return information("no launcher's variables are set; 'onehop launch' sets them");
    return works(fmt::format("rank {} of {}, started by {}", job->rank.value, job->size, job->launcher));
  } catch (const Error& error) {
    return fails(error.message(), "correct or unset the variable");
  }
}

std::string format_limit(rlim_t limit) {
  return limit == RLIM_INFINITY ? "unlimited" : fmt::format("{}", limit);
}

rlimit limit_of(__rlimit_resource resource) {
  rlimit limit{};
  (void)::getrlimit(resource, &limit);
  return limit;
}

Finding check_open_files() {
  // 64 ranks take a socket and a memfd per peer and rank, and programs have their own.
  constexpr rlim_t kFew = 256;
  const rlimit files = limit_of(RLIMIT_NOFILE);
  const std::string both =
      fmt::format("{} (hard limit {})", format_limit(files.rlim_cur), format_limit(files.rlim_max));
  return files.rlim_cur >= kFew ? works(both) : fails(both, "raise it: ulimit -n 1024");
}

Finding check_address_space() {
  const rlim_t space = limit_of(RLIMIT_AS).rlim_cur;
  if (space == RLIM_INFINITY) return works("unlimited");
  return fails(fmt::format("limited to {} bytes", space),
               "every rank maps every rank's buffers: ulimit -v unlimited");
}

Finding check_locked_memory() {
  const rlimit locked = limit_of(RLIMIT_MEMLOCK);
  return information(fmt::format("{} bytes; onehop locks none", format_limit(locked.rlim_cur)));
}

Finding check_cores() {
  const int cores = machine_info().cpus;
  return works(fmt::format("{} usable{}", cores,
                           cores < 4 ? "; more ranks than cores take turns, which costs latency" : ""));
}

Finding check_processor() {
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
  return works(fmt::format("{}; {}", machine_info().cpu, used.empty() ? "baseline only" : used));
}

Finding check_confinement() {
  std::error_code ignored;
  const bool container = fs::exists("/.dockerenv", ignored) || fs::exists("/run/.containerenv", ignored);
  std::string seccomp = "0";
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("Seccomp:")) seccomp = line.substr(line.find_last_of(" \t") + 1);
  }
  return information(
      fmt::format("{}, seccomp filter {}{}", container ? "in a container" : "no container seen",
                  seccomp == "0" ? "off" : "on",
                  container ? "; ranks in different containers need a shared ONEHOP_RUNTIME_DIR" : ""));
}

/// No detail where the kernel has no yama.
Finding check_yama() {
  const std::string yama = first_line(kYama);
  if (yama.empty()) return information({});
  return information(fmt::format("{}; onehop does not use ptrace, but it decides about 'single copy'", yama));
}

Finding check_nccl_library() {
  const auto library = find_nccl_library();
  if (!library) return information("not installed; it makes programs that use NCCL use onehop");
  // The path is last: a line of a terminal ends before it, however long it is.
  return works(fmt::format("'onehop nccl-run -- PROGRAM' puts it in NCCL's place: {}", library->string()));
}

struct Check {
  const char* section;
  const char* name;
  Finding (*run)();
  bool essential = false;
};
constexpr Check kChecks[] = {{kMemory, "sealed memfd", check_memfd, true},
                             {kMemory, "fallocate", check_fallocate, true},
                             {kMemory, "futex between processes", check_futex, true},
                             {kMemory, "single copy", check_single_copy},
                             {kMemory, "huge pages for shared memory", check_huge_pages},
                             {kMemory, "/dev/shm", check_dev_shm},
                             {kRendezvous, "private directory", check_private_directory, true},
                             {kRendezvous, "descriptors over sockets", check_passing_descriptors, true},
                             {kRendezvous, "pidfd", check_pidfd},
                             {kRendezvous, "launcher", check_launcher},
                             {kMachine, "cores", check_cores},
                             {kMachine, "processor", check_processor},
                             {kMachine, "open files", check_open_files},
                             {kMachine, "address space", check_address_space},
                             {kMachine, "locked memory", check_locked_memory},
                             {kMachine, "confinement", check_confinement},
                             {kMachine, "yama ptrace_scope", check_yama},
                             {kMachine, "libonehop_nccl", check_nccl_library}};

}  // namespace

std::vector<Finding> check_machine() {
  std::vector<Finding> findings;
  for (const Check& check : kChecks) {
    Finding finding = check.run();
    if (finding.detail.empty()) continue;
    finding.section = check.section;
    finding.name = check.name;
    finding.essential = check.essential;
    findings.push_back(std::move(finding));
  }
  return findings;
}

}  // namespace onehop::cli
