// SPDX-License-Identifier: Apache-2.0
// Connects ranks that know each other's listening sockets into a mesh.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "group/mesh.h"
#include "os/random.h"

namespace onehop {

/// The parameters that a rank needs to connect to the others.
struct MeshPlan {
  os::Id id{};  ///< of the group: connections that name another one are turned away
  Rank rank;
  std::vector<std::string> paths;  ///< of every rank's listening socket
  int listener = -1;               ///< this rank's
  /// Called periodically while waiting; throws when another rank has given up. The argument is true before a
  /// rank is blamed for being late: then it also throws when the cause lies elsewhere.
  std::function<void(bool last)> poll_failure = [](bool) {};
};

/// Connects to all lower ranks and accepts all higher ones, concurrently. A connection counts once the
/// accepting rank has answered it; one that is dropped before that is made again. The error names the missing
/// rank.
[[nodiscard]] std::shared_ptr<IpcChannel::Mesh> connect_mesh(const MeshPlan& plan, const Deadline& deadline);

}  // namespace onehop
