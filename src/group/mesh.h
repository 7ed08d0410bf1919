// SPDX-License-Identifier: Apache-2.0
// The sockets between the ranks of one group. They carry messages and descriptors, and show which ranks are
// alive. They are also the group's failure domain: the first failure that any rank reports ends every rank's
// waits with the same error.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "onehop/ipc.h"

#include "base/deadline.h"
#include "base/interrupt.h"
#include "group/messages.h"
#include "group/survivors.h"
#include "os/fork_guard.h"
#include "os/process_watch.h"
#include "os/socket.h"
#include "os/timed_mutex.h"
#include "os/unique_fd.h"

namespace onehop {

/// Thread-safe. Collectives (all_gather, barrier, all_gather_fds, broadcast_fds) of one mesh are serialized;
/// if one fails on one rank, it fails on all. Point-to-point calls fail for their caller alone.
class IpcChannel::Mesh {
 public:
  class Wait;

  /// A sub-group's link to the group that it was split off from.
  struct Parent {
    std::weak_ptr<Mesh> mesh;
    std::vector<Rank> ranks;  ///< the parent's number of each rank
  };
  /// A question to the other ranks, asked over both groups' sockets. Ranks of a sub-group may still be inside
  /// the split that made it, where they read the parent's sockets only.
  struct Question {
    std::uint64_t number = 0;     ///< 0: not asked
    std::uint64_t in_parent = 0;  ///< its number in the parent
  };
  /// The rank to blame for a wait that timed out.
  struct Blame {
    Rank origin;          ///< as errors name it
    std::string awaited;  ///< "rank 3", or "rank 0, which waits for rank 3": the end of "rank 1 waited for"
  };
  /// The mesh of the survivors of this one.
  struct Successor {
    std::shared_ptr<Mesh> mesh;
    std::vector<Rank> ranks;  ///< by rank in the new mesh: its number in this one
    os::Id id{};              ///< agreed on, for the new group
  };

  /// `sockets[r]` is connected to rank r; the own slot is empty. A sub-group is made inside a call of its
  /// `parent`, whose caller knows the parent's rank numbers only, so errors use those until
  /// `use_own_numbers`. `processes` detect a death even if a stray child holds copies of the sockets; it may
  /// be empty.
  Mesh(Rank rank, int size, std::vector<os::UniqueFd> sockets, std::vector<os::ProcessWatch> processes = {},
       Parent parent = {});
  Mesh(const Mesh&) = delete;
  Mesh& operator=(const Mesh&) = delete;
  ~Mesh();  ///< leaves

  [[nodiscard]] Rank rank() const { return rank_; }
  [[nodiscard]] int size() const { return size_; }
  /// The number by which errors name rank r.
  [[nodiscard]] Rank named(Rank r) const;
  /// The process behind rank r's socket. The mesh of a sub-group needs it, since its sockets do not tell.
  [[nodiscard]] os::ProcessWatch process_of(Rank r) const {
    return peers_[static_cast<std::size_t>(r.value)].process.share();
  }
  [[nodiscard]] bool is_split_off() const { return !parent_.ranks.empty(); }
  void use_own_numbers() { own_numbers_.store(true, std::memory_order_relaxed); }

  void send(Rank to, std::string_view payload, const Deadline& deadline, const char* phase);
  [[nodiscard]] std::string recv(Rank from, const Deadline& deadline, const char* phase);
  /// `call`: the collective that they are part of, if any.
  void send_fd(Rank to, int fd, const Deadline& deadline, const char* call = "");
  [[nodiscard]] os::UniqueFd recv_fd(Rank from, const Deadline& deadline, const char* call = "");

  /// A rank that refuses its arguments takes part with `refusal` instead of a payload, and all ranks throw
  /// that error. A refusal leaves the mesh usable.
  [[nodiscard]] std::vector<std::string> all_gather(std::string_view payload, const Deadline& deadline,
                                                    const char* phase, Status refusal = {});
  /// The own slot stays empty, since the caller already has that descriptor.
  [[nodiscard]] std::vector<os::UniqueFd> all_gather_fds(int fd, const Deadline& deadline);
  [[nodiscard]] os::UniqueFd broadcast_fds(int fd, Rank root, const Deadline& deadline);

  /// Makes this the failure of the whole group, unless it has failed already. It ends every rank's waits.
  void fail_group(const Error& error) noexcept;
  /// Fails a sub-group whose split failed on this rank when other members already had the group. They hear of
  /// the parent's failure, and not only that this rank has left. The error names a member, or none().
  void fail_with_parent(const Error& error) noexcept;
  /// Like fail_group, for an error that ends a call of this rank; the error names this rank unless it names
  /// another one. Throws the error that the other ranks see.
  [[noreturn]] void fail_call(const Error& error, const char* phase);
  /// Reads what has arrived and throws the group's failure or the loss of a peer, naming `phase`. Every wait
  /// for peers calls it, however it waits.
  void check(const char* phase);
  /// Reads what has arrived. Whether the group has failed; never counts as telling the caller.
  [[nodiscard]] bool look(const char* phase);
  /// The group's failure if nothing has thrown it yet. Also after leaving. Does not read what has arrived.
  [[nodiscard]] std::optional<Error> unreported() const;
  /// Like check, for a wait on something that rank `awaited` does elsewhere, in shared memory. It throws as
  /// well when that rank has left without doing it. What is done counts, whatever happened since: a rank that was not
  /// scheduled meanwhile must not fail in a call that has succeeded on the others.
  template <class Done>
  void check_for(Rank awaited, Done&& done, const char* phase) {
    require_not_forked(phase);
    throw_if_interrupted(phase);
    const std::lock_guard lock(state_mutex_);
    const bool failed = look_locked(phase);
    if (done()) return;  // the order matters: a rank acts before it leaves, or fails
    if (failed) throw_failure_locked();
    if (peers_[static_cast<std::size_t>(awaited.value)].closed) throw gone(awaited, phase);
  }
  /// True if rank r has closed its end, as far as has been read. Whatever it did for this group happened
  /// before.
  [[nodiscard]] bool has_left(Rank r) {
    const std::lock_guard lock(state_mutex_);
    return peers_[static_cast<std::size_t>(r.value)].closed;
  }
  /// A cheap test of whether `check` would throw, from what is already known.
  [[nodiscard]] bool usable() const {
    return !failed_.load(std::memory_order_relaxed) && !left() && generation_ == os::fork_generation();
  }

  /// Asks every peer which rank it waits for. Answers arrive with later reads; a stopped process gives none.
  [[nodiscard]] Question ask();
  /// The ranks that have not answered, as far as has been read.
  [[nodiscard]] RankSet silent(const Question& question);
  /// Blames `awaited`, or whichever rank holds it up according to the answers. If that is a rank of the
  /// parent only, throws that as this group's failure.
  [[nodiscard]] Blame blame(Rank awaited, const Question& question, const char* phase);

  /// The error of a call that could not begin before its deadline because another thread's call was still
  /// running. Names the rank that the running call waits for.
  [[nodiscard]] Error out_of_turn(Duration timeout, const char* phase);

  /// Fails the group, if it has not failed yet, and connects the ranks that then call this and live. Until its
  /// `use_own_numbers`, the successor's errors have this mesh's rank numbers. Ranks in it may have died since.
  /// After a timeout, which names a rank that is alive and has not come, it can be called again.
  [[nodiscard]] Successor succeed(const Deadline& deadline, const char* phase);
  /// Whether the group has failed because a rank called `succeed`, and for no earlier reason.
  [[nodiscard]] bool superseded() const;

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
    os::ProcessWatch process;  ///< never changed
    std::deque<Received> inbox;
    std::uint64_t sent = 0;
    std::uint64_t received = 0;
    std::uint64_t answered = 0;  ///< the newest query that it answered
    RankSet awaits = 0;          ///< what it answered then
    bool said_bye = false;
    bool closed = false;
    std::deque<std::pair<std::string, os::UniqueFd>> unsent;  ///< what `succeed` has to tell it
    Received successor;                                       ///< its socket to this rank, from a lower rank
  };

  Peer& peer(Rank r);
  void transmit(Rank to, MeshMessage message, int fd, const Deadline& deadline, const char* phase);
  /// The next message of `from`; Error{mismatch} when it is of another kind or belongs to another call.
  [[nodiscard]] Received take(Rank from, MessageKind kind, const char* call, const Deadline& deadline,
                              const char* phase);
  void check_locked(const char* phase);
  /// Reads what has arrived and sets failure_ if the group has failed; returns whether it has.
  [[nodiscard]] bool look_locked(const char* phase);
  [[noreturn]] void throw_failure_locked();
  void report_locked();
  /// The rank that a wait for `awaited` really waits for, found by following the answers. That is a rank that
  /// did not answer, or else one that waits for nobody. none() when there is neither.
  [[nodiscard]] Rank holds_up(RankSet awaited, std::uint64_t query);
  /// The rank that `held_up`, which holds this group up, waits for in the split that made the group, in the
  /// parent's numbers. none() if it does not wait there.
  [[nodiscard]] Rank awaited_in_split(Rank held_up, const Question& question);
  void record_failure(const Error& error, Rank origin, bool superseded) noexcept;
  /// Fails the group, if it has not failed yet, since this rank calls `succeed`.
  void supersede(const char* phase) noexcept;
  /// Reads what has arrived from all peers, and which of them are gone.
  void read_all_locked();
  [[nodiscard]] RankSet gone_locked() const;
  /// One step of `succeed`, without waiting: what can be told and sent. Returns the ranks that it waits for; none:
  /// it has ended.
  [[nodiscard]] RankSet advance_succession_locked(const char* phase);
  void tell_all_locked(const SurvivorsMessage& message);
  void connect_survivors_locked();
  void send_unsent_locked();
  void pump(Peer& from);
  void receive(Peer& from, Received received);
  [[nodiscard]] RankSet awaited_locked() const;
  /// Called before any lock: the child of a fork may have inherited a mutex that a thread of the parent
  /// holds.
  void require_not_forked(const char* phase) const;
  void require_usable(const char* phase) const;
  /// Sleeps until a peer has something to read or `writable` takes a message, but at most for a short slice.
  void wait_for_news(Rank writable, const Deadline& deadline);
  [[nodiscard]] std::string failure_message() const;
  [[nodiscard]] Error gone(Rank who, const char* phase) const;
  template <class F>
  auto collective(const Deadline& deadline, const char* phase, F&& body);

  const Rank rank_;
  const int size_;
  const std::uint32_t generation_ = os::fork_generation();
  const Parent parent_;
  std::atomic<bool> own_numbers_;
  os::TimedMutex call_mutex_;       ///< one collective at a time; taken before state_mutex_
  mutable std::mutex state_mutex_;  ///< guards what follows, sockets included
  std::vector<Peer> peers_;
  std::vector<const Wait*> waits_;  ///< the waits that have become slow
  std::uint64_t last_query_ = 0;
  Survivors survivors_;
  std::vector<os::UniqueFd>
      successor_sockets_;  ///< by rank, to higher ranks; made once survivors_ has decided
  std::optional<Error> failure_;
  bool superseded_ = false;  ///< see superseded(); set with failure_
  bool reported_ = false;    ///< this rank has told the others
  bool thrown_ = false;      ///< the failure was thrown on this rank
  std::atomic<bool> failed_{false};
  std::atomic<bool> left_{false};
};

/// One wait for other ranks, registered once it has become slow. It tells ranks that ask which rank this one
/// awaits, and asks the others shortly before its own deadline. A rank that waits is not the one to blame for
/// a timeout.
class IpcChannel::Mesh::Wait {
 public:
  explicit Wait(Mesh& mesh) : mesh_(mesh) {}
  ~Wait() {
    if (awaited_ != 0) end();
  }
  Wait(const Wait&) = delete;
  Wait& operator=(const Wait&) = delete;

  /// To be called periodically.
  void look(RankSet awaited, const Deadline& deadline);
  /// After the deadline has passed in a wait for `awaited`: see Mesh::blame.
  [[nodiscard]] Blame blame(Rank awaited, const char* phase) {
    return mesh_.blame(awaited, question_, phase);
  }
  /// Throws the error that says so, in a wait for `awaited` that had `timeout`.
  [[noreturn]] void throw_timeout(Rank awaited, Duration timeout, const char* phase);
  [[nodiscard]] const Question& question() const { return question_; }
  [[nodiscard]] RankSet awaited() const { return awaited_; }

 private:
  void end();

  Mesh& mesh_;
  RankSet awaited_ = 0;  ///< guarded by the mesh's state_mutex_ once it is registered there
  Question question_;
};

}  // namespace onehop
