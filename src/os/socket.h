// SPDX-License-Identifier: Apache-2.0
// Unix sockets that keep message boundaries and carry descriptors. All sockets are SOCK_SEQPACKET,
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

/// Largest message: fits the default socket buffers whole.
inline constexpr std::size_t kMaxMessageBytes = 80 << 10;

struct Message {
  std::string bytes;
  UniqueFd fd;           ///< the descriptor that came along, if any
  bool closed = false;   ///< the peer is gone: no bytes
  bool fd_lost = false;  ///< a descriptor was sent but could not be received (MSG_CTRUNC: out of descriptors)
};

/// `path` must not exist and be shorter than 108 bytes.
[[nodiscard]] UniqueFd listen_unix(const std::string& path);
/// The next connection; an empty fd when the deadline passes.
[[nodiscard]] UniqueFd accept_unix(int listener, const Deadline& deadline);
enum class ConnectStatus { connected, nobody, busy };
/// One attempt. `nobody` listens there when the path is gone or refuses: its owner is dead, has closed it, or
/// never came. `busy`: the listener's backlog is full; try again.
[[nodiscard]] ConnectStatus try_connect_unix(const std::string& path, UniqueFd& socket);
/// An empty fd when nobody listens there (the path is gone or refuses): its owner is dead or never came.
[[nodiscard]] UniqueFd connect_unix(const std::string& path, const Deadline& deadline);
[[nodiscard]] std::pair<UniqueFd, UniqueFd> socket_pair();

/// User id of the process at the other end, as the kernel recorded it.
[[nodiscard]] uid_t peer_uid(int socket);

enum class SendStatus { sent, closed, timed_out };
/// Sends one message whole. `fd` < 0 sends none.
[[nodiscard]] SendStatus send_message(int socket, std::string_view bytes, int fd, const Deadline& deadline);
/// Receives one message whole. Error{timeout} never: `timed_out` is told by returning false.
[[nodiscard]] bool recv_message(int socket, Message& message, const Deadline& deadline);

/// True when the other end is closed (its process died or left); unread messages do not matter.
[[nodiscard]] bool peer_closed(int socket);

}  // namespace onehop::os
