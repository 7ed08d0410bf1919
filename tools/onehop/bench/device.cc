// SPDX-License-Identifier: Apache-2.0
#include "bench/device.h"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/check.h"
#include "base/deadline.h"
#include "rank_io.h"

namespace onehop::cli {
namespace {

constexpr int kDefaultHostRanks = 4;
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

bool use_gpus(DeviceChoice choice, const GpuCount& gpus, std::optional<int> ranks, bool may_share) {
  if (choice == DeviceChoice::host) return false;
  const int wanted = ranks.value_or(2);
  const bool fits = gpus.count >= wanted && wanted <= kMaxDevices;
  if (choice == DeviceChoice::automatic) return fits;
  if (gpus.count == 0) fail(ErrorCode::unsupported, "--device cuda: no GPU: {}", gpus.why);
  require(wanted <= kMaxDevices, "--ranks {}: a group has at most {} GPUs", wanted, kMaxDevices);
  require(fits || may_share,
          "--device cuda: {} rank{} but {} GPU{} in sight (CUDA_VISIBLE_DEVICES may hide some; "
          "ONEHOP_ALLOW_OVERLAPPING_DEVICES=1 lets ranks share one, for tests)",
          wanted, wanted == 1 ? "" : "s", gpus.count, gpus.count == 1 ? "" : "s");
  return true;
}

int default_ranks(bool cuda, const GpuCount& gpus) {
  return cuda ? std::clamp(gpus.count, 2, kMaxDevices) : kDefaultHostRanks;
}

DeviceId device_of(int local_rank, int gpus, bool may_share) {
  if (local_rank < gpus) return DeviceId{local_rank};
  require(gpus == 1 || (may_share && gpus > 0), "rank {} of this machine has no GPU: {} in sight", local_rank,
          gpus);
  return DeviceId{local_rank % gpus};
}

}  // namespace onehop::cli
