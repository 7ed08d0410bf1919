// SPDX-License-Identifier: Apache-2.0
// Passing file descriptors and small messages between the ranks of one machine.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "onehop/error.h"
#include "onehop/export.h"
#include "onehop/store.h"
#include "onehop/types.h"

namespace onehop {

/// A full mesh of connected Unix sockets between the ranks of a group (SOCK_SEQPACKET, close-on-exec, peer
/// credentials checked). While it is being set up each rank listens inside a private 0700 directory, which is
/// gone again before `connect` returns. A peer's death shows as the end of its sockets, whatever the PID
/// namespaces are.
///
/// Host memory (memfd) and CUDA memory (VMM) are both file descriptors, so one exchange serves both.
/// All calls are collective and made in the same order by all ranks; each is thread-safe, but two threads of
/// one rank that make different calls at the same time have no defined order.
///
/// Unusable arguments are Error{invalid_argument} on all ranks. After all_gather and barrier the channel (and
/// its group) is usable; after the other calls it has failed. recv_fd alone concerns nobody else: the caller
/// may call it again.
class ONEHOP_API IpcChannel {
 public:
  /// Connects `size` ranks that meet in `store` under `prefix`, which must be unique to this channel. Ranks
  /// that are threads of one process are fine. Error{timeout} names the ranks that did not come;
  /// Error{refused} when the ranks are not on one host or a peer runs as another user.
  [[nodiscard]] static IpcChannel connect(const std::shared_ptr<Store>& store, const std::string& prefix,
                                          Rank rank, int size, Duration timeout = kDefaultTimeout);

  IpcChannel(IpcChannel&&) noexcept;
  IpcChannel& operator=(IpcChannel&&) noexcept;
  ~IpcChannel();

  [[nodiscard]] Rank rank() const;
  [[nodiscard]] int size() const;

  /// Sends one descriptor to a rank; the caller keeps its own. The peer takes it with `recv_fd`.
  void send_fd(Rank to, int fd, Duration timeout = kDefaultTimeout);
  /// A new descriptor (close-on-exec) that the caller owns; -1 when the peer sent -1 ("none").
  [[nodiscard]] int recv_fd(Rank from, Duration timeout = kDefaultTimeout);

  /// Everyone's descriptor in rank order. The caller's own slot is its own descriptor, unchanged; all others
  /// are new and owned by the caller. Ring order: size-1 steps, send to the right, receive from the left.
  [[nodiscard]] std::vector<int> all_gather_fds(int fd, Duration timeout = kDefaultTimeout);
  /// Root's descriptor on every rank; root gets its own back. -1 may be broadcast and means "none".
  [[nodiscard]] int broadcast_fds(int fd, Rank root, Duration timeout = kDefaultTimeout);

  /// Everyone's bytes in rank order, at most 64 KiB each.
  [[nodiscard]] std::vector<std::string> all_gather(std::string_view payload,
                                                    Duration timeout = kDefaultTimeout);
  void barrier(Duration timeout = kDefaultTimeout);

  class Mesh;
  /// Internal: wraps sockets that are connected already (used by Group).
  explicit IpcChannel(std::shared_ptr<Mesh> mesh);
  [[nodiscard]] const std::shared_ptr<Mesh>& mesh() const { return mesh_; }

 private:
  std::shared_ptr<Mesh> mesh_;
};

}  // namespace onehop
