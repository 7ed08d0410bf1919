// SPDX-License-Identifier: Apache-2.0
#include "rank_io.h"

#include <fcntl.h>
#include <limits.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/check.h"

namespace onehop::cli {
namespace {

constexpr std::size_t kReadBytes = 16 << 10;
constexpr std::size_t kQueueLimit = 256 << 10;  // above it the ranks wait
constexpr std::size_t kLineLimit = 1 << 20;     // longer lines are cut here

}  // namespace

Pipe make_pipe(const char* purpose) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) fail_errno(errno, fmt::format("cannot make a pipe for {}", purpose));
  return {os::UniqueFd(ends[0]), os::UniqueFd(ends[1])};
}

os::UniqueFd RankOutput::add_rank() {
  Pipe pipe = make_pipe("a rank's output");
  // Only the read end: a rank's own stdout must stay blocking.
  if (::fcntl(pipe.read_end.get(), F_SETFL, O_NONBLOCK) != 0)
    fail_errno(errno, "cannot set up a pipe for a rank's output");
  sources_.push_back({std::move(pipe.read_end), {}});
  return std::move(pipe.write_end);
}

void RankOutput::add_polls(std::vector<pollfd>& polls) const {
  if (!queue_.empty()) polls.push_back({to_, POLLOUT, 0});
  if (queue_.size() >= kQueueLimit) return;
  for (const Source& source : sources_) {
    if (source.pipe) polls.push_back({source.pipe.get(), POLLIN, 0});
  }
}

void RankOutput::handle(const std::vector<pollfd>& polls) {
  for (const pollfd& poll : polls) {
    if (poll.revents == 0) continue;
    if (poll.fd == to_ && (poll.events & POLLOUT) != 0) {
      write_some();
      continue;
    }
    const auto source = std::find_if(sources_.begin(), sources_.end(), [&](const Source& each) {
      return each.pipe && each.pipe.get() == poll.fd;
    });
    if (source != sources_.end()) read_some(static_cast<std::size_t>(source - sources_.begin()));
  }
}

bool RankOutput::finished() const {
  if (broken()) return true;
  return queue_.empty() && std::none_of(sources_.begin(), sources_.end(),
                                        [](const Source& source) { return bool(source.pipe); });
}

void RankOutput::stop_reading() {
  for (std::size_t rank = 0; rank < sources_.size(); ++rank) {
    // A pipe of an unprivileged user holds at most 1 MiB (fs.pipe-max-size). The bound ends the loop for a
    // process that keeps writing.
    for (std::size_t taken = 0; sources_[rank].pipe && taken < (1u << 20); taken += kReadBytes)
      read_some(rank);
    if (!sources_[rank].line.empty()) emit(rank, sources_[rank].line);
    sources_[rank] = {};
  }
}

void RankOutput::read_some(std::size_t rank) {
  Source& source = sources_[rank];
  char bytes[kReadBytes];
  const ssize_t got = ::read(source.pipe.get(), bytes, sizeof bytes);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got <= 0) {
    if (!source.line.empty()) emit(rank, source.line);
    source = {};
    return;
  }
  std::string_view rest(bytes, static_cast<std::size_t>(got));
  for (std::size_t end = rest.find('\n'); end != std::string_view::npos; end = rest.find('\n')) {
    source.line.append(rest.substr(0, end));
    emit(rank, source.line);
    source.line.clear();
    rest.remove_prefix(end + 1);
  }
  source.line.append(rest);
  if (source.line.size() > kLineLimit) {
    emit(rank, source.line);
    source.line.clear();
  }
}

void RankOutput::emit(std::size_t rank, std::string_view line) {
  if (!broken()) queue_ += fmt::format("[{}] {}\n", rank, line);
}

void RankOutput::write_some() {
  // After POLLOUT a pipe takes PIPE_BUF bytes without blocking. The descriptor itself must stay blocking: the
  // parent process shares it.
  const ssize_t put = ::write(to_, queue_.data(), std::min<std::size_t>(queue_.size(), PIPE_BUF));
  if (put > 0) queue_.erase(0, static_cast<std::size_t>(put));
  if (put < 0 && errno != EAGAIN && errno != EINTR) {
    error_ = errno;
    queue_.clear();
  }
}

os::UniqueFd TerminalInput::start() {
  if (::isatty(STDIN_FILENO) == 0) return {};
  if (::tcgetpgrp(STDIN_FILENO) != ::getpgrp())
    return os::UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  Pipe pipe = make_pipe("rank 0's input");
  to_ = std::move(pipe.write_end);
  (void)::fcntl(to_.get(), F_SETFL, O_NONBLOCK);
  return std::move(pipe.read_end);
}

void TerminalInput::add_polls(std::vector<pollfd>& polls) const {
  if (!to_) return;
  // Without POLLOUT, poll still reports POLLERR: rank 0 has closed its input.
  polls.push_back({to_.get(), static_cast<short>(pending_.empty() ? 0 : POLLOUT), 0});
  if (pending_.empty() && !ended_) polls.push_back({STDIN_FILENO, POLLIN, 0});
}

void TerminalInput::handle(const std::vector<pollfd>& polls) {
  for (const pollfd& poll : polls) {
    if (!to_ || poll.revents == 0) continue;
    if (poll.fd == STDIN_FILENO) {
      char bytes[4096];
      const ssize_t got = ::read(STDIN_FILENO, bytes, sizeof bytes);
      if (got > 0) pending_.assign(bytes, static_cast<std::size_t>(got));
      ended_ = got == 0 || (got < 0 && errno != EINTR && errno != EAGAIN);
    } else if (poll.fd == to_.get()) {
      const ssize_t put =
          (poll.revents & POLLERR) != 0 ? -1 : ::write(to_.get(), pending_.data(), pending_.size());
      if (put > 0) pending_.erase(0, static_cast<std::size_t>(put));
      if (put < 0 && ((poll.revents & POLLERR) != 0 || errno == EPIPE)) to_.reset();
    }
    if (ended_ && pending_.empty()) to_.reset();
  }
}

}  // namespace onehop::cli
