// SPDX-License-Identifier: Apache-2.0
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "base/check.h"
#include "base/deadline.h"
#include "bench/device.h"
#include "rank_io.h"

namespace onehop::cli {
namespace {

constexpr Duration kCountTimeout = std::chrono::seconds{60};  // a cold driver takes seconds per GPU

/// Reads until the other end of the pipe closes; nullopt at the deadline.
std::optional<std::string> read_all(int fd, const Deadline& deadline) {
  std::string text;
  while (true) {
    pollfd item{fd, POLLIN, 0};
    const int ready = ::poll(&item, 1, deadline.poll_ms());
    if (ready < 0 && errno != EINTR) return std::nullopt;
    if (ready <= 0) {
      if (deadline.expired()) return std::nullopt;
      continue;
    }
    char buffer[512];
    const ssize_t got = ::read(fd, buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return text;
    text.append(buffer, static_cast<std::size_t>(got));
  }
}

}  // namespace

GpuCount count_gpus_in_child() {
  Pipe pipe = make_pipe("the number of GPUs");
  const pid_t child = ::fork();
  if (child < 0) fail_errno(errno, "fork");
  if (child == 0) {
    const GpuCount own = count_gpus();
    const std::string text = fmt::format("{} {}", own.count, own.why);
    (void)!::write(pipe.write_end.get(), text.data(), text.size());
    ::_exit(0);
  }
  pipe.write_end.reset();
  const std::optional<std::string> text = read_all(pipe.read_end.get(), Deadline::after(kCountTimeout));
  if (!text) (void)::kill(child, SIGKILL);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!text) return {0, fmt::format("the driver did not answer within {} s", kCountTimeout.count() / 1000)};
  const std::size_t space = text->find(' ');
  if (space == std::string::npos) return {0, "the process that asked the driver for them died"};
  return {std::stoi(*text), text->substr(space + 1)};
}

}  // namespace onehop::cli
