// SPDX-License-Identifier: Apache-2.0
#include "guard.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string_view>

#include "base/check.h"
#include "base/deadline.h"
#include "rank_io.h"

extern char** environ;

namespace onehop::cli {
namespace {

/// A child of this process, as /proc shows it.
struct Child {
  pid_t pid;
  bool zombie;
};

/// Empty if there is no /proc.
std::vector<Child> children() {
  std::vector<Child> found;
  DIR* const directory = ::opendir("/proc");
  if (directory == nullptr) return found;
  while (const dirent* const entry = ::readdir(directory)) {
    const std::string_view name(entry->d_name);
    pid_t pid = 0;
    if (std::from_chars(name.data(), name.data() + name.size(), pid).ptr != name.data() + name.size())
      continue;
    std::ifstream file(fmt::format("/proc/{}/stat", pid));
    const std::string line{std::istreambuf_iterator<char>(file), {}};
    // "PID (NAME) STATE PPID ...". The name may contain anything, including parentheses.
    const std::size_t close = line.rfind(')');
    if (close == std::string::npos || close + 4 >= line.size()) continue;
    pid_t parent = 0;
    (void)std::from_chars(line.data() + close + 4, line.data() + line.size(), parent);
    if (parent == ::getpid()) found.push_back({pid, line[close + 2] == 'Z'});
  }
  (void)::closedir(directory);
  return found;
}

void close_range(unsigned first, unsigned last) {
  if (first > last || ::syscall(SYS_close_range, first, last, 0U) == 0) return;
  const long open_max = ::sysconf(_SC_OPEN_MAX);  // a kernel before 5.9
  for (unsigned fd = first; fd <= last && static_cast<long>(fd) < open_max; ++fd)
    (void)::close(static_cast<int>(fd));
}

/// In particular pipes of the ranks and the lock of the launcher's directory, which end with their owners.
void close_all_but(std::vector<int> kept) {
  std::sort(kept.begin(), kept.end());
  unsigned first = 0;
  for (const int fd : kept) {
    if (fd > 0) close_range(first, static_cast<unsigned>(fd) - 1);
    first = static_cast<unsigned>(fd) + 1;
  }
  close_range(first, ~0U);
}

/// The process that the launcher forks.
class GuardProcess {
 public:
  GuardProcess(int news, int lifeline) : news_(news), lifeline_(lifeline) {}

  [[noreturn]] void run(const std::vector<std::string>& command, std::vector<RankProgram>& programs,
                        const std::function<void()>& restore_signals) noexcept {
    // A signal to the launcher's process group, such as the shell's "kill -9 %1", must not reach this process.
    (void)::setpgid(0, 0);
    // Processes whose parents have ended become children of this one.
    (void)::prctl(PR_SET_CHILD_SUBREAPER, 1);
    sigset_t all;
    sigfillset(&all);
    (void)::pthread_sigmask(SIG_BLOCK, &all, nullptr);
    sigset_t deaths;
    sigemptyset(&deaths);
    sigaddset(&deaths, SIGCHLD);
    deaths_ = ::signalfd(-1, &deaths, SFD_CLOEXEC | SFD_NONBLOCK);
    for (std::size_t rank = 0; deaths_ >= 0 && rank < programs.size(); ++rank) {
      if (!start(static_cast<int>(rank), command, programs[rank], restore_signals)) break;
    }
    programs.clear();
    close_all_but({news_, lifeline_, deaths_});
    if (deaths_ >= 0) watch();
    kill_all();
    ::_exit(0);
  }

 private:
  void tell(const RankNews& news) const {
    // Shorter than PIPE_BUF. If it cannot be written, the launcher is gone.
    (void)!::write(news_, &news, sizeof news);
  }

  bool start(int rank, const std::vector<std::string>& command, RankProgram& program,
             const std::function<void()>& restore_signals) {
    std::vector<std::string> words = command;
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    std::vector<char*> variables;
    for (std::string& variable : program.environment) variables.push_back(variable.data());
    variables.push_back(nullptr);

    // The end of file says that exec worked, a StartError that it did not.
    std::array<int, 2> result{-1, -1};
    const pid_t parent = ::getpid();
    const pid_t pid = ::pipe2(result.data(), O_CLOEXEC) == 0 ? ::fork() : -1;
    if (pid < 0) {
      tell({.rank = rank, .error = {.number = errno}});
      return false;
    }
    if (pid == 0) {
      (void)::setpgid(0, 0);
      // Ranks end with the guard even if that is killed. The check closes the gap before prctl.
      (void)::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::getppid() != parent) ::_exit(1);
      if (program.input) (void)::dup2(program.input.get(), STDIN_FILENO);
      if (program.output) (void)::dup2(program.output.get(), STDOUT_FILENO);
      if (program.errors) (void)::dup2(program.errors.get(), STDERR_FILENO);
      restore_signals();
      environ = variables.data();
      const bool bound = program.processors == nullptr ||
                         ::sched_setaffinity(0, sizeof *program.processors, program.processors) == 0;
      if (bound) ::execvp(argv[0], argv.data());
      const StartError error{.number = errno, .binding = !bound};
      (void)!::write(result[1], &error, sizeof error);
      ::_exit(127);
    }
    (void)::setpgid(pid, pid);  // in parent and child, since either may run first
    (void)::close(result[1]);
    StartError error;
    ssize_t got = 0;
    do {
      got = ::read(result[0], &error, sizeof error);
    } while (got < 0 && errno == EINTR);
    (void)::close(result[0]);
    if (got != sizeof error) error = {};
    ranks_.push_back({pid, false});
    tell({.rank = rank, .pid = pid, .error = error});
    return error.number == 0;
  }

  /// Returns when the launcher has ended, or asks for the end.
  void watch() {
    bool died = true;  // some child may have, since the last look for strangers
    while (true) {
      std::array<pollfd, 2> polls = {{{deaths_, POLLIN, 0}, {lifeline_, POLLIN, 0}}};
      constexpr int kLookForStrangers = 1000;
      const int ready = ::poll(polls.data(), polls.size(), died ? kLookForStrangers : -1);
      if (polls[1].revents != 0) return;
      if (ready == 0) {
        reap_strangers();
        died = false;
      }
      if (ready <= 0) continue;
      died = true;
      drain_deaths();
      tell_ends();
    }
  }

  void drain_deaths() const {
    signalfd_siginfo info{};
    while (::read(deaths_, &info, sizeof info) == sizeof info) {
    }
  }

  /// Tells of ranks that were killed before those that exited, perhaps because they had noticed it. The killed ones are
  /// looked for last: whatever made another rank exit has happened by then.
  void tell_ends() {
    std::vector<RankNews> exited;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      const std::optional<RankNews> end = end_of(rank);
      if (end && end->code == CLD_EXITED) exited.push_back(*end);
    }
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      const std::optional<RankNews> end = end_of(rank);
      if (end && end->code != CLD_EXITED) tell_end(*end);
    }
    for (const RankNews& each : exited) tell_end(each);
  }

  /// How a rank ended that has not been told yet.
  [[nodiscard]] std::optional<RankNews> end_of(std::size_t rank) const {
    const Rank& each = ranks_[rank];
    siginfo_t info{};
    // WNOWAIT: once reaped, the number could be reused, and kill(-pid) would signal other processes.
    if (each.ended || ::waitid(P_PID, static_cast<id_t>(each.pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
        info.si_pid == 0)
      return std::nullopt;
    return RankNews{.rank = static_cast<int>(rank),
                    .ended = true,
                    .pid = each.pid,
                    .code = info.si_code,
                    .status = info.si_status};
  }
  void tell_end(const RankNews& end) {
    ranks_[static_cast<std::size_t>(end.rank)].ended = true;
    tell(end);
  }

  /// Processes whose parents have ended, and which have ended themselves.
  void reap_strangers() const {
    for (const Child& child : children()) {
      const bool is_rank =
          std::ranges::any_of(ranks_, [&](const Rank& rank) { return rank.pid == child.pid; });
      if (child.zombie && !is_rank) (void)::waitpid(child.pid, nullptr, WNOHANG | __WALL);
    }
  }

  void kill_all() const {
    for (const Rank& rank : ranks_) (void)::kill(-rank.pid, SIGKILL);  // works without /proc
    // Whoever is left becomes a child of this process when its parent dies. Processes that may not be killed, or
    // that /proc does not show, are given up.
    constexpr Duration kGiveUp{1000};
    Deadline end = Deadline::after(kGiveUp);
    while (true) {
      for (const Child& child : children()) {
        if (!child.zombie && ::kill(child.pid, SIGKILL) == 0) end = Deadline::after(kGiveUp);
      }
      pid_t reaped = 0;
      do {
        reaped = ::waitpid(-1, nullptr, WNOHANG | __WALL);
      } while (reaped > 0);
      if (reaped < 0 || end.expired()) return;
      constexpr int kPause = 5;
      pollfd next{deaths_, POLLIN, 0};
      (void)::poll(&next, 1, kPause);
      drain_deaths();
    }
  }

  struct Rank {
    pid_t pid;
    bool ended;
  };
  int news_;
  int lifeline_;
  int deaths_ = -1;
  std::vector<Rank> ranks_;
};

}  // namespace

void Guard::start(const std::vector<std::string>& command, std::vector<RankProgram> programs,
                  const std::function<void()>& restore_signals) {
  Pipe news = make_pipe("news of the ranks");
  Pipe lifeline = make_pipe("the process that starts the ranks");
  pid_ = ::fork();
  if (pid_ < 0) fail_errno(errno, "cannot start the process that starts the ranks");
  if (pid_ == 0) {
    lifeline.write_end.reset();
    GuardProcess(news.write_end.get(), lifeline.read_end.get()).run(command, programs, restore_signals);
  }
  news_ = std::move(news.read_end);
  lifeline_ = std::move(lifeline.write_end);
}

std::optional<RankNews> Guard::next() {
  RankNews news;
  ssize_t got = 0;
  do {
    got = ::read(news_.get(), &news, sizeof news);
  } while (got < 0 && errno == EINTR);
  if (got != sizeof news) return std::nullopt;
  return news;
}

void Guard::end() noexcept {
  if (pid_ < 0) return;
  lifeline_.reset();
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
}

}  // namespace onehop::cli
