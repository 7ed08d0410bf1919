// SPDX-License-Identifier: Apache-2.0
// Unix sockets that preserve message boundaries and carry descriptors. All sockets are SOCK_SEQPACKET,
// close-on-exec and non-blocking; every wait has a deadline.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "base/deadline.h"
#include "os/unique_fd.h"

namespace onehop::os {

/// The largest message; it fits into the default socket buffers.
inline constexpr std::size_t kMaxMessageBytes = 80 << 10;

struct Message {
  std::string bytes;
  UniqueFd fd;           ///< the descriptor received with the message, if any
  bool closed = false;   ///< the peer has closed its end; no bytes
  bool fd_lost = false;  ///< a descriptor was sent but could not be received (MSG_CTRUNC: out of descriptors)
};

/// Requires that `path` does not exist and is shorter than 108 bytes.
[[nodiscard]] UniqueFd listen_unix(const std::string& path);
/// Accepts the next connection; returns an empty fd if the deadline passes.
[[nodiscard]] UniqueFd accept_unix(int listener, const Deadline& deadline);
enum class ConnectStatus { connected, nobody, busy };
/// Makes one attempt. `nobody`: no process listens at the path (it is missing or refuses), because the owner
/// is dead, has closed it or never arrived. `busy`: the listener's backlog is full; try again.
[[nodiscard]] ConnectStatus try_connect_unix(const std::string& path, UniqueFd& socket);
/// Returns an empty fd if no process listens at the path (it is missing or refuses): the owner is dead or
/// never arrived.
[[nodiscard]] UniqueFd connect_unix(const std::string& path, const Deadline& deadline);
[[nodiscard]] std::pair<UniqueFd, UniqueFd> socket_pair();

/// The user id of the process at the other end, as recorded by the kernel.
[[nodiscard]] uid_t peer_uid(int socket);

enum class SendStatus { sent, closed, timed_out };
/// Sends one message completely. `fd` < 0 sends no descriptor.
[[nodiscard]] SendStatus send_message(int socket, std::string_view bytes, int fd, const Deadline& deadline);
/// Receives one message completely. Returns false if the deadline passes; never throws Error{timeout}.
[[nodiscard]] bool recv_message(int socket, Message& message, const Deadline& deadline);

/// Whether the other end is closed (its process died or left), even if unread messages remain.
[[nodiscard]] bool peer_closed(int socket);

}  // namespace onehop::os
