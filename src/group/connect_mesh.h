// SPDX-License-Identifier: Apache-2.0
// How ranks that know each other's listening sockets become a mesh.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "group/mesh.h"
#include "os/random.h"

namespace onehop {

/// What a rank needs to know to be connected.
struct MeshPlan {
  os::Id id{};  ///< of the group: connections that name another are turned away
  Rank rank;
  std::vector<std::string> paths;  ///< of every rank's listening socket
  int listener = -1;               ///< this rank's
  /// Asked now and then while waiting; throws when another rank has given up. Asked with `true` before a rank
  /// is blamed for being late; throws then also when something else is to blame.
  std::function<void(bool last)> poll_failure = [](bool) {};
};

/// Connects to all lower ranks and accepts all higher ones, all at the same time. A connection counts once
/// the accepting rank has answered it; one that is dropped before is made again. Error names the rank that is
/// missing.
[[nodiscard]] std::shared_ptr<IpcChannel::Mesh> connect_mesh(const MeshPlan& plan, const Deadline& deadline);

}  // namespace onehop
