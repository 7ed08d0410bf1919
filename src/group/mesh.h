// The sockets between the ranks of one group: messages, descriptors, and who is still alive. Also the group's
// failure domain: the first failure any rank reports ends every rank's waits with that same error.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "onehop/ipc.h"

#include "base/deadline.h"
#include "group/messages.h"
#include "os/fork_guard.h"
#include "os/socket.h"
#include "os/unique_fd.h"

namespace onehop {

/// Thread-safe. Collectives (all_gather, barrier, all_gather_fds, broadcast_fds) of one mesh are serialised
/// and end for all ranks when they end badly for one; point-to-point calls end for their caller alone.
class IpcChannel::Mesh {
 public:
  /// `sockets[r]` is connected to rank r; the own slot is empty.
  Mesh(Rank rank, int size, std::vector<os::UniqueFd> sockets);
  Mesh(const Mesh&) = delete;
  Mesh& operator=(const Mesh&) = delete;
  ~Mesh();  ///< leaves

  [[nodiscard]] Rank rank() const { return rank_; }
  [[nodiscard]] int size() const { return size_; }

  void send(Rank to, std::string_view payload, const Deadline& deadline, const char* phase);
  [[nodiscard]] std::string recv(Rank from, const Deadline& deadline, const char* phase);
  void send_fd(Rank to, int fd, const Deadline& deadline);
  [[nodiscard]] os::UniqueFd recv_fd(Rank from, const Deadline& deadline);

  [[nodiscard]] std::vector<std::string> all_gather(std::string_view payload, const Deadline& deadline,
                                                    const char* phase);
  /// The own slot stays empty: the caller has that descriptor already.
  [[nodiscard]] std::vector<os::UniqueFd> all_gather_fds(int fd, const Deadline& deadline);
  [[nodiscard]] os::UniqueFd broadcast_fds(int fd, Rank root, const Deadline& deadline);

  /// Makes this the failure of the whole group, unless there is one already: every rank's waits end with it.
  void fail_group(const Error& error) noexcept;
  /// Reads what has arrived and throws the group's failure or the loss of a peer, naming `phase`. Called by
  /// everyone who waits for peers, however they wait.
  void check(const char* phase);
  /// The same for one who waits for something that rank `awaited` does elsewhere, in shared memory: throws
  /// also when that rank has left without doing it.
  template <class Done>
  void check_for(Rank awaited, Done&& done, const char* phase) {
    require_not_forked(phase);
    const std::lock_guard lock(state_mutex_);
    check_locked(phase);
    // In this order: what a rank does comes before its leaving.
    if (peers_[static_cast<std::size_t>(awaited.value)].closed && !done()) throw_gone(awaited, phase);
  }
  /// Whether rank r has closed its end, as far as has been read: what it did for this group, it did before.
  [[nodiscard]] bool has_left(Rank r) {
    const std::lock_guard lock(state_mutex_);
    return peers_[static_cast<std::size_t>(r.value)].closed;
  }
  /// A cheap look at whether `check` would throw, by what was found out earlier.
  [[nodiscard]] bool usable() const {
    return !failed_.load(std::memory_order_relaxed) && !left() && generation_ == os::fork_generation();
  }

  /// Says goodbye and closes the sockets. Idempotent.
  void leave() noexcept;
  [[nodiscard]] bool left() const { return left_.load(std::memory_order_relaxed); }

 private:
  struct Received {
    MeshMessage message;
    os::UniqueFd fd;
  };
  struct Peer {
    os::UniqueFd socket;
    std::optional<os::ForkGuard> guard;
    std::deque<Received> inbox;
    std::uint64_t sent = 0;
    std::uint64_t received = 0;
    bool said_bye = false;
    bool closed = false;
  };

  Peer& peer(Rank r);
  void transmit(Rank to, MeshMessage message, int fd, const Deadline& deadline, const char* phase);
  /// The next message of `from`; Error{mismatch} when it is of another kind or belongs to another call.
  [[nodiscard]] Received take(Rank from, MessageKind kind, const char* call, const Deadline& deadline,
                              const char* phase);
  void give_fd(Rank to, int fd, const char* call, const Deadline& deadline);
  [[nodiscard]] os::UniqueFd take_fd(Rank from, const char* call, const Deadline& deadline);
  void check_locked(const char* phase);
  void report_locked();
  void pump(Peer& from);
  /// Before any lock: the child of a fork may have inherited it locked by a thread that it does not have.
  void require_not_forked(const char* phase) const;
  void require_usable(const char* phase) const;
  /// Sleeps until a peer has something to say or `writable` takes a message, but never long.
  void wait_for_news(Rank writable, const Deadline& deadline);
  [[nodiscard]] std::string failure_message(const Error& error) const;
  [[noreturn]] void throw_gone(Rank who, const char* phase);
  template <class F>
  auto collective(F&& body);

  const Rank rank_;
  const int size_;
  const std::uint32_t generation_ = os::fork_generation();
  std::mutex call_mutex_;   ///< one collective at a time; taken before state_mutex_
  std::mutex state_mutex_;  ///< guards what follows, sockets included
  std::vector<Peer> peers_;
  std::optional<Error> failure_;
  bool reported_ = false;  ///< this rank has told the others
  std::atomic<bool> failed_{false};
  std::atomic<bool> left_{false};
};

}  // namespace onehop
