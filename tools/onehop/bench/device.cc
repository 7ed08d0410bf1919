// SPDX-License-Identifier: Apache-2.0
#include "bench/device.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/check.h"
#include "fd.h"

namespace onehop::cli {
namespace {

constexpr int kDefaultHostRanks = 4;
constexpr int kCountTimeoutMs = 60000;  // a driver that nobody has used yet takes seconds per GPU

/// All that comes through the pipe until its other end closes; nullopt when that takes too long.
std::optional<std::string> read_all(int fd) {
  std::string text;
  while (true) {
    pollfd item{fd, POLLIN, 0};
    const int ready = ::poll(&item, 1, kCountTimeoutMs);
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return std::nullopt;
    char buffer[512];
    const ssize_t got = ::read(fd, buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return text;
    text.append(buffer, static_cast<std::size_t>(got));
  }
}

}  // namespace

GpuCount count_gpus_apart() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) fail_errno(errno, "pipe2");
  const Fd reader(ends[0]);
  Fd writer(ends[1]);
  const pid_t child = ::fork();
  if (child < 0) fail_errno(errno, "fork");
  if (child == 0) {
    const GpuCount own = count_gpus();
    const std::string text = fmt::format("{} {}", own.count, own.why);
    (void)!::write(writer.get(), text.data(), text.size());
    ::_exit(0);
  }
  writer.reset();
  const std::optional<std::string> text = read_all(reader.get());
  if (!text) (void)::kill(child, SIGKILL);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!text) return {0, fmt::format("the driver did not answer within {} s", kCountTimeoutMs / 1000)};
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
