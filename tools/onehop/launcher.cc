// SPDX-License-Identifier: Apache-2.0
#include "launcher.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>

#include "base/check.h"
#include "base/deadline.h"
#include "base/env.h"
#include "commands.h"
#include "guard.h"
#include "os/private_dir.h"
#include "os/unique_fd.h"
#include "output.h"
#include "rank_io.h"

extern char** environ;

namespace onehop::cli {
namespace {

constexpr const char* kFailureVariable = "ONEHOP_FAILURE_FILE";

/// Forwarded to the ranks. SIGINT, SIGTERM and SIGHUP also start the grace period.
constexpr std::array kForwarded = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGTSTP};

bool requests_end(int signal) {
  return signal == SIGINT || signal == SIGTERM || signal == SIGHUP;
}

std::string signal_name(int signal) {
  const char* name = ::sigabbrev_np(signal);
  return name != nullptr ? fmt::format("SIG{}", name) : fmt::format("signal {}", signal);
}

/// Ctrl-C leaves "^C", or a line of progress, before the shell's next prompt.
void end_line_of_terminal() {
  for (const int fd : {STDERR_FILENO, STDOUT_FILENO}) {
    if (::isatty(fd) == 0) continue;
    (void)!::write(fd, "\n", 1);
    return;
  }
}

/// A TCP port that was free a moment ago, for programs that expect MASTER_PORT. onehop does not use it.
int free_port() {
  const os::UniqueFd probe(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  if (!probe || ::bind(probe.get(), generic, size) != 0 || ::getsockname(probe.get(), generic, &size) != 0) {
    fail_errno(errno, "cannot find a free TCP port on 127.0.0.1");
  }
  return ntohs(address.sin_port);
}

/// NAME=value strings: this process's, and `extra` in place of those with the same names.
std::vector<std::string> environment_with(const std::map<std::string, std::string>& extra) {
  std::vector<std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    if (!extra.contains(std::string(text.substr(0, text.find('='))))) all.emplace_back(text);
  }
  for (const auto& [name, value] : extra) all.push_back(name + "=" + value);
  return all;
}

/// While this object lives, signals of the job arrive through a descriptor.
class SignalFd {
 public:
  SignalFd() {
    sigset_t set;
    sigemptyset(&set);
    for (const int signal : kForwarded) {
      // A signal that the parent process ignores (nohup ignores SIGHUP) stays ignored, here and in the ranks.
      struct sigaction now {};
      if (::sigaction(signal, nullptr, &now) == 0 && now.sa_handler != SIG_IGN) sigaddset(&set, signal);
    }
    if (const int error = ::pthread_sigmask(SIG_BLOCK, &set, &before_); error != 0) {
      fail_errno(error, "cannot block signals");
    }
    fd_ = os::UniqueFd(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!fd_) fail_errno(errno, "signalfd");
    // When the reader of the output is gone, the ranks must end in order, not this process at once.
    struct sigaction ignore {};
    ignore.sa_handler = SIG_IGN;
    ::sigaction(SIGPIPE, &ignore, &pipe_before_);
  }
  ~SignalFd() { restore(); }
  SignalFd(const SignalFd&) = delete;
  SignalFd& operator=(const SignalFd&) = delete;

  /// Async-signal-safe: the child calls it between fork and exec.
  void restore() const {
    ::sigaction(SIGPIPE, &pipe_before_, nullptr);
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  [[nodiscard]] int get() const { return fd_.get(); }
  [[nodiscard]] std::optional<int> next() const {
    signalfd_siginfo info{};
    if (::read(fd_.get(), &info, sizeof info) != sizeof info) return std::nullopt;
    return static_cast<int>(info.ssi_signo);
  }

 private:
  sigset_t before_{};
  struct sigaction pipe_before_ {};
  os::UniqueFd fd_;
};

class Job {
 public:
  explicit Job(const LaunchOptions& options)
      : options_(options), ranks_(static_cast<std::size_t>(options.ranks)) {}
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  LaunchOutcome run() {
    if (!options_.log_folder.empty() && ::mkdir(options_.log_folder.c_str(), 0777) != 0 && errno != EEXIST)
      fail_errno(errno, fmt::format("cannot make '{}'", options_.log_folder));
    // Absolute, since ONEHOP_STORE must be, and since ranks may change their directory.
    const std::string store = std::filesystem::absolute(scratch_.path() + "/store").string();
    if (::mkdir(store.c_str(), 0700) != 0) fail_errno(errno, fmt::format("cannot make {}", store));
    const int port = free_port();
    std::vector<RankProgram> programs;
    for (int rank = 0; rank < options_.ranks; ++rank) programs.push_back(program_of(rank, store, port));
    guard_.start(options_.command, std::move(programs), [this] { signals_.restore(); });
    take_starts();
    while (!all_ended()) wait_for_events();
    guard_.end();
    drain_output();
    note_lost_output();
    if (lost_output_ != 0) fail_errno(lost_output_, "cannot write the output of the ranks");
    if (options_.collect_failures) read_failures();
    return outcome_;
  }

 private:
  struct Process {
    pid_t pid = -1;  ///< also its process group
    bool ended = true;
  };

  [[nodiscard]] static int start_code(const StartError& error) {
    return error.binding ? kExitFailed : error.number == ENOENT ? 127 : 126;
  }
  [[nodiscard]] std::string failure_file(int rank) const {
    return fmt::format("{}/failure-{}", scratch_.path(), rank);
  }

  [[nodiscard]] os::UniqueFd open_log(int rank) const {
    const std::string path = fmt::format("{}/rank-{}.log", options_.log_folder, rank);
    os::UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0666));
    if (!file) fail_errno(errno, fmt::format("cannot write '{}'", path));
    return file;
  }

  RankProgram program_of(int rank, const std::string& store, int port) {
    const std::string number = std::to_string(rank);
    const std::string size = std::to_string(options_.ranks);
    std::map<std::string, std::string> variables = {
        {"RANK", number},        {"LOCAL_RANK", number},
        {"WORLD_SIZE", size},    {"LOCAL_WORLD_SIZE", size},
        {"GROUP_RANK", "0"},     {"MASTER_ADDR", "127.0.0.1"},
        {"ONEHOP_RANK", number}, {"MASTER_PORT", std::to_string(port)},
        {"ONEHOP_SIZE", size},   {"ONEHOP_STORE", "file:" + store},
    };
    if (options_.collect_failures) variables[kFailureVariable] = failure_file(rank);
    os::UniqueFd output, errors;
    if (!options_.log_folder.empty()) {
      output = open_log(rank);
      errors = os::UniqueFd(::fcntl(output.get(), F_DUPFD_CLOEXEC, 0));
      if (!errors) fail_errno(errno, "cannot duplicate the descriptor of a log");
    } else if (options_.tag_output) {
      output = out_.add_rank();
      errors = err_.add_rank();
    }
    // Python keeps what it writes to a pipe or a file until it ends. A rank that is killed would lose its last words.
    if (output && !env::get("PYTHONUNBUFFERED")) variables["PYTHONUNBUFFERED"] = "1";
    return {.environment = environment_with(variables),
            .input = rank == 0 ? terminal_.start() : os::UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC)),
            .output = std::move(output),
            .errors = std::move(errors),
            .processors =
                options_.processors.empty() ? nullptr : &options_.processors[static_cast<std::size_t>(rank)]};
  }

  /// Waits until all ranks are started, or one could not be.
  void take_starts() {
    for (int rank = 0; rank < options_.ranks; ++rank) {
      const std::optional<RankNews> news = guard_.next();
      if (!news) fail(ErrorCode::system, "the process that starts the ranks was ended");
      if (news->pid < 0) fail_errno(news->error.number, fmt::format("cannot start rank {}", rank));
      ranks_[static_cast<std::size_t>(rank)] = {news->pid, false};
      if (const StartError& error = news->error; error.number != 0) {
        outcome_.exit_code = start_code(error);
        outcome_.failed_rank = rank;
        outcome_.how = error.binding ? fmt::format(
                                           "could not be bound to its processors: {}; were they taken "
                                           "from this job since it began?",
                                           errno_text(error.number))
                                     : fmt::format("cannot run '{}': {}", options_.command.front(),
                                                   errno_text(error.number));
        return end_all();
      }
    }
  }

  [[nodiscard]] bool all_ended() const {
    for (const Process& process : ranks_) {
      if (!process.ended) return false;
    }
    return true;
  }

  void wait_for_events() {
    std::vector<pollfd> polls = {{guard_.fd(), POLLIN, 0}, {signals_.get(), POLLIN, 0}};
    terminal_.add_polls(polls);
    out_.add_polls(polls);
    err_.add_polls(polls);
    const int timeout = kill_at_ && !killed_ ? kill_at_->poll_ms() : -1;
    if (::poll(polls.data(), polls.size(), timeout) < 0 && errno != EINTR) fail_errno(errno, "poll");
    if (polls[0].revents != 0) take_news();
    while (const auto signal = signals_.next()) on_signal(*signal);
    terminal_.handle(polls);
    out_.handle(polls);
    err_.handle(polls);
    note_lost_output();
    if (out_.broken() || err_.broken()) end_all();
    if (kill_at_ && kill_at_->expired() && !killed_) {
      killed_ = true;
      outcome_.killed = outcome_.stopped_by != 0;
      signal_all(SIGKILL);
    }
  }

  void on_signal(int signal) {
    if (signal == SIGTSTP) {
      signal_all(SIGTSTP);
      (void)::raise(SIGSTOP);  // returns when the shell continues us
      signal_all(SIGCONT);
    } else {
      const bool again = requests_end(signal) && outcome_.stopped_by != 0;
      if (requests_end(signal)) {
        outcome_.stopped_by = signal;
        if (!kill_at_) kill_at_ = Deadline::after(options_.grace);
      }
      outcome_.killed = outcome_.killed || again;
      if (requests_end(signal))
        end_ranks(again ? SIGKILL : signal);  // the second request does not wait
      else
        signal_all(signal);
      if (signal == SIGINT) end_line_of_terminal();
    }
  }

  void take_news() {
    if (const std::optional<RankNews> news = guard_.next()) return on_end(*news);
    // The guard was killed. Its children die with it, and their numbers may be reused.
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      Process& process = ranks_[rank];
      process.pid = -1;
      if (!process.ended) on_end({.rank = static_cast<int>(rank), .code = CLD_KILLED, .status = SIGKILL});
    }
  }

  void on_end(const RankNews& news) {
    ranks_[static_cast<std::size_t>(news.rank)].ended = true;
    const bool exited = news.code == CLD_EXITED;
    if (exited && news.status == 0) return;
    const std::string how = exited ? fmt::format("exited with code {}", news.status)
                                   : fmt::format("was killed by {}{}", signal_name(news.status),
                                                 news.code == CLD_DUMPED ? " (core dumped)" : "");
    if (outcome_.failed_rank < 0) {
      outcome_.failed_rank = news.rank;
      outcome_.exit_code = exited ? news.status : 128 + news.status;
      outcome_.how = how;
    }
    if (!options_.keep_going) return end_all();
    // At once: the others may go on for days.
    if (outcome_.stopped_by == 0) print_error(fmt::format("onehop: rank {} {}\n", news.rank, how));
  }

  void end_all() {
    if (kill_at_) return;
    kill_at_ = Deadline::after(options_.grace);
    end_ranks(SIGTERM);
  }

  void end_ranks(int signal) {
    signal_all(signal);
    signal_all(SIGCONT);  // a stopped process takes the signal only once it continues
  }

  void signal_all(int signal) {
    for (const Process& process : ranks_) {
      if (process.pid > 0) (void)::kill(-process.pid, signal);
    }
  }

  /// Before ranks are ended for it. A reader that is gone wants no more: that is no error of its own.
  void note_lost_output() {
    if (lost_output_ != 0 || outcome_.failed_rank >= 0) return;
    for (const int error : {out_.error(), err_.error()}) {
      if (error != 0 && error != EPIPE) lost_output_ = error;
    }
  }

  void drain_output() {
    out_.stop_reading();
    err_.stop_reading();
    while (!out_.finished() || !err_.finished()) {
      std::vector<pollfd> polls = {{signals_.get(), POLLIN, 0}};
      out_.add_polls(polls);
      err_.add_polls(polls);
      if (::poll(polls.data(), polls.size(), -1) < 0 && errno != EINTR) return;
      while (const auto signal = signals_.next()) {
        if (requests_end(*signal)) return;
      }
      out_.handle(polls);
      err_.handle(polls);
    }
  }

  void read_failures() {
    for (int rank = 0; rank < options_.ranks; ++rank) {
      std::ifstream file(failure_file(rank));
      int code = 0;
      std::string message;
      if (file >> code && file.get() == '\n' && std::getline(file, message)) {
        outcome_.failures.push_back({rank, static_cast<ErrorCode>(code), message});
      }
    }
  }

  const LaunchOptions& options_;
  os::PrivateDir scratch_ = os::PrivateDir::create("launch");
  SignalFd signals_;
  TerminalInput terminal_;
  RankOutput out_{STDOUT_FILENO};
  RankOutput err_{STDERR_FILENO};
  Guard guard_;  ///< after what the ranks use: ends first
  std::vector<Process> ranks_;
  LaunchOutcome outcome_;
  /// The errno with which the output of ranks was lost; 0 if it was not, or if a rank had failed before.
  int lost_output_ = 0;
  std::optional<Deadline> kill_at_;  ///< set once the job is being ended
  bool killed_ = false;
};

}  // namespace

void end_as(const LaunchOutcome& outcome) {
  if (outcome.stopped_by == 0) return;
  if (outcome.exit_code != 128 + outcome.stopped_by && !outcome.killed) return;
  (void)std::fflush(nullptr);
  (void)::signal(outcome.stopped_by, SIG_DFL);
  (void)::raise(outcome.stopped_by);
}

LaunchOutcome launch(const LaunchOptions& options) {
  require(options.ranks >= 1 && options.ranks <= kMaxHostRanks, "the number of ranks must be 1 to {}, got {}",
          kMaxHostRanks, options.ranks);
  require(!options.command.empty(), "there is no program to launch");
  require(options.processors.empty() || options.processors.size() == static_cast<std::size_t>(options.ranks),
          "{} ranks need as many sets of processors, got {}", options.ranks, options.processors.size());
  return Job(options).run();
}

bool report_failure(const Error& error) noexcept {
  try {
    const auto path = env::get(kFailureVariable);
    if (!path) return false;
    std::ofstream file(*path);
    file << static_cast<int>(error.code()) << '\n' << error.message() << '\n';
    file.flush();
    return file.good();
  } catch (...) {
    return false;
  }
}

const RankFailure* root_cause(const std::vector<RankFailure>& failures) {
  const auto weight = [](const RankFailure& failure) {
    switch (failure.code) {
      case ErrorCode::peer_lost:
      case ErrorCode::aborted:
        return 2;
      case ErrorCode::timeout:
        return 1;
      default:
        return 0;
    }
  };
  const RankFailure* cause = nullptr;
  for (const RankFailure& failure : failures) {
    if (cause == nullptr || weight(failure) < weight(*cause)) cause = &failure;
  }
  return cause;
}

}  // namespace onehop::cli
