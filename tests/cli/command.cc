// SPDX-License-Identifier: Apache-2.0
#include "cli/command.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <thread>

extern char** environ;

namespace onehop::test {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kDeadline{90};

bool is_launcher_variable(std::string_view name) {
  for (const std::string_view prefix : {"ONEHOP_", "OMPI_", "PMIX_", "SLURM_", "TORCHELASTIC_"}) {
    if (name.starts_with(prefix)) return true;
  }
  return name == "RANK" || name == "WORLD_SIZE" || name == "LOCAL_RANK" || name == "LOCAL_WORLD_SIZE";
}

std::vector<std::string> make_environment(const CommandOptions& options) {
  std::vector<std::string> out;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::string name(text.substr(0, text.find('=')));
    if (!is_launcher_variable(name) && !options.environment.contains(name)) out.emplace_back(text);
  }
  for (const auto& [name, value] : options.environment) out.push_back(name + "=" + value);
  return out;
}

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> out;
  for (std::string& text : strings) out.push_back(text.data());
  out.push_back(nullptr);
  return out;
}

}  // namespace

Command::Command(const std::vector<std::string>& arguments, const CommandOptions& options) {
  std::vector<std::string> strings = {options.program};
  strings.insert(strings.end(), arguments.begin(), arguments.end());
  std::vector<std::string> environment = make_environment(options);
  const std::vector<char*> argv = pointers(strings);
  const std::vector<char*> envp = pointers(environment);
  if (options.on_terminal) {
    start_on_terminal(argv.data(), envp.data());
    type(options.input);
    return;
  }
  int in[2];
  int out[2];
  int err[2];
  if (::pipe2(in, O_CLOEXEC) != 0 || ::pipe2(out, O_CLOEXEC) != 0 || ::pipe2(err, O_CLOEXEC) != 0) {
    throw std::runtime_error("pipe2 failed");
  }
  pid_ = ::fork();
  if (pid_ == 0) {
    (void)::dup2(in[0], STDIN_FILENO);
    (void)::dup2(out[1], STDOUT_FILENO);
    (void)::dup2(err[1], STDERR_FILENO);
    ::execve(argv[0], argv.data(), envp.data());
    ::_exit(99);
  }
  for (const int fd : {in[0], out[1], err[1]}) (void)::close(fd);
  // Inputs of tests fit into a pipe.
  (void)!::write(in[1], options.input.data(), options.input.size());
  (void)::close(in[1]);
  out_ = out[0];
  err_ = err[0];
}

void Command::start_on_terminal(char* const* argv, char* const* envp) {
  const winsize size{.ws_row = 24, .ws_col = 80, .ws_xpixel = 0, .ws_ypixel = 0};
  pid_ = ::forkpty(&out_, nullptr, nullptr, &size);
  if (pid_ == 0) {
    ::execve(argv[0], argv, envp);
    ::_exit(99);
  }
  if (pid_ < 0) throw std::runtime_error("forkpty failed");
}

void Command::type(const std::string& text) const {
  ASSERT_EQ(::write(out_, text.data(), text.size()), static_cast<ssize_t>(text.size()));
}

Command::~Command() {
  if (pid_ > 0) {
    (void)::kill(pid_, SIGKILL);
    (void)::waitpid(pid_, nullptr, 0);
  }
  for (const int fd : {out_, err_}) {
    if (fd >= 0) (void)::close(fd);
  }
}

bool Command::read_more() {
  pollfd polls[] = {{out_, POLLIN, 0}, {err_, POLLIN, 0}};
  if (::poll(polls, 2, static_cast<int>(std::chrono::milliseconds(kDeadline).count())) <= 0) {
    ADD_FAILURE() << "the command neither wrote nor ended; so far: " << result_.out << result_.err;
    return false;
  }
  const auto take = [](const pollfd& ready, int& fd, std::string& to) {
    if (ready.revents == 0) return;
    char bytes[4096];
    const ssize_t got = ::read(fd, bytes, sizeof bytes);
    if (got > 0) {
      to.append(bytes, static_cast<std::size_t>(got));
    } else if (got == 0 || errno != EINTR) {
      (void)::close(fd);
      fd = -1;
    }
  };
  take(polls[0], out_, result_.out);
  take(polls[1], err_, result_.err);
  return out_ >= 0 || err_ >= 0;
}

std::vector<std::string> Command::wait_for_lines(std::size_t count) {
  while (lines_of(result_.out).size() < count) {
    if (!read_more()) {
      ADD_FAILURE() << "the command ended after: " << result_.out << result_.err;
      break;
    }
  }
  return lines_of(result_.out);
}

void Command::wait_for_error(const std::string& text) {
  while (result_.err.find(text) == std::string::npos && result_.out.find(text) == std::string::npos) {
    if (!read_more()) {
      ADD_FAILURE() << "the command ended after: " << result_.out << result_.err;
      break;
    }
  }
}

void Command::signal(int number) const {
  ASSERT_EQ(::kill(pid_, number), 0);
}

Result Command::finish() {
  while (read_more()) {
  }
  int status = 0;
  (void)::waitpid(pid_, &status, 0);
  pid_ = -1;
  result_.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  return result_;
}

Result run(const std::vector<std::string>& arguments, const CommandOptions& options) {
  return Command(arguments, options).finish();
}

bool disappears(pid_t pid) {
  const auto until = Clock::now() + kDeadline;
  while (Clock::now() < until) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
    std::string stat;
    if (!std::getline(file, stat)) return true;
    const std::size_t name_end = stat.rfind(") ");
    if (name_end != std::string::npos && (stat[name_end + 2] == 'Z' || stat[name_end + 2] == 'X'))
      return true;
    std::this_thread::yield();
  }
  return false;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::size_t from = 0;
  for (std::size_t end = text.find('\n'); end != std::string::npos; end = text.find('\n', from)) {
    lines.push_back(text.substr(from, end - from));
    from = end + 1;
  }
  return lines;
}

std::string read(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

CommandTest::CommandTest() {
  char name[] = "/tmp/onehop-command-test-XXXXXX";
  base_ = ::mkdtemp(name);
  std::filesystem::create_directory(base_ / "run");
  options_.environment["ONEHOP_RUNTIME_DIR"] = (base_ / "run").string();
}

CommandTest::~CommandTest() {
  std::filesystem::remove_all(base_);
}

std::ptrdiff_t CommandTest::left_behind() const {
  return std::distance(std::filesystem::directory_iterator(base_ / "run"), {});
}

}  // namespace onehop::test
