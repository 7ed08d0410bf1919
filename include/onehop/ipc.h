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
/// credentials checked). During set-up each rank listens in a private directory (mode 0700), which is removed
/// before `connect` returns. The death of a peer closes its sockets and is therefore detected in any PID
/// namespace.
///
/// Host memory (memfd) and CUDA memory (VMM) are both file descriptors, so one exchange serves both. All
/// calls except recv_fd and send_fd are collective, and all ranks make them in the same order. Each call is
/// thread-safe, but the order of different calls that two threads of one rank make concurrently is undefined.
///
/// An invalid argument throws Error{invalid_argument} on all ranks. After all_gather and barrier the channel
/// (and its group) stays usable; after the other calls it has failed. An invalid argument of recv_fd affects
/// only the caller, who may call it again.
class ONEHOP_API IpcChannel {
 public:
  /// Connects `size` ranks that find each other through `store` under `prefix`, which must be unique to this
  /// channel. Ranks may be threads of one process. Throws Error{timeout}, which names the missing ranks, and
  /// Error{refused} if the ranks are on different hosts or a peer runs as another user.
  [[nodiscard]] static IpcChannel connect(const std::shared_ptr<Store>& store, const std::string& prefix,
                                          Rank rank, int size, Duration timeout = kDefaultTimeout);

  IpcChannel(IpcChannel&&) noexcept;
  IpcChannel& operator=(IpcChannel&&) noexcept;
  ~IpcChannel();

  [[nodiscard]] Rank rank() const;
  [[nodiscard]] int size() const;

  /// Sends one descriptor to rank `to`, which receives it with `recv_fd`. The caller keeps its own. -1 means
  /// "none".
  void send_fd(Rank to, int fd, Duration timeout = kDefaultTimeout);
  /// Receives a descriptor from rank `from`: a new descriptor (close-on-exec) that the caller owns, or -1 if
  /// the peer sent -1 ("none").
  [[nodiscard]] int recv_fd(Rank from, Duration timeout = kDefaultTimeout);

  /// Returns the descriptors of all ranks in rank order. The caller's own entry is `fd`, unchanged; all
  /// others are new descriptors that the caller owns. Ring algorithm: size - 1 steps, send to the right,
  /// receive from the left.
  [[nodiscard]] std::vector<int> all_gather_fds(int fd, Duration timeout = kDefaultTimeout);
  /// Returns the root's descriptor on every rank; the root gets its own back. -1 may be broadcast and means
  /// "none".
  [[nodiscard]] int broadcast_fds(int fd, Rank root, Duration timeout = kDefaultTimeout);

  /// Returns the payloads of all ranks in rank order, at most 64 KiB each.
  [[nodiscard]] std::vector<std::string> all_gather(std::string_view payload,
                                                    Duration timeout = kDefaultTimeout);
  void barrier(Duration timeout = kDefaultTimeout);

  class Mesh;
  /// Internal: wraps sockets that are already connected (used by Group).
  explicit IpcChannel(std::shared_ptr<Mesh> mesh);
  [[nodiscard]] const std::shared_ptr<Mesh>& mesh() const { return mesh_; }

 private:
  std::shared_ptr<Mesh> mesh_;
};

}  // namespace onehop
