// SPDX-License-Identifier: Apache-2.0
// Groups of calls that start together.
#pragma once

#include <cstddef>
#include <memory>

#include "onehop/export.h"

namespace onehop {

/// Calls of collectives.h that this thread makes during the lifetime of a GroupCall are queued and start
/// together at its end:
///
///   GroupCall scope;
///   send(group, to_right, count, DType::f32, right);
///   recv(group, from_left, count, DType::f32, left);
///   scope.end();
///
/// - The sends and receives of one group come first and progress concurrently. None waits for another of the
///   scope, whatever their sizes and their order, even if all ranks use the same order. Those between the
///   same pair of ranks keep their order. A rank may send to itself and receive from itself. On GPUs, the k-th
///   ones of all pairs progress together.
/// - Then come the collectives of that group, which all ranks make in the same order. They may run
///   concurrently, so none may access memory that another collective of the scope writes. On GPUs,
///   consecutive small all-reduces of the same type, reduction and algorithm are fused into one launch.
/// - On GPUs, all calls of a group in one scope run on the stream of its first call. They wait for what is on
///   their streams, and later work on each of these streams waits for all of them, as with NCCL.
/// - Different groups, including the ranks of one group (Group::join_local), proceed side by side. Each host
///   rank gets its own thread; GPUs are enqueued to in the order in which the groups first appeared in the
///   scope.
///
/// A queued call returns Algorithm::none, because nothing has run yet. Errors that do not depend on other
/// ranks (such as a send to a rank out of range) throw at once, and the call is not queued. The Group, data
/// and blocks of a queued call must stay valid and must not move until the end. Other calls (Group::barrier,
/// allocate, ...) are not queued: they execute immediately, before the queued calls.
/// When sends and receives of a group fail, the outputs of all its receives in the scope are undefined, except
/// that a receive that disagreed with its sender wrote nothing.
///
/// Scopes nest: only the end of the outermost scope starts the calls. A scope must be created, ended and
/// destroyed on the same thread, inner scopes first.
class ONEHOP_API GroupCall {
 public:
  GroupCall();
  /// If end() was not called, as when an exception unwinds the scope, drops the calls queued since this scope
  /// began.
  ~GroupCall();
  GroupCall(const GroupCall&) = delete;
  GroupCall& operator=(const GroupCall&) = delete;

  /// Executes the queued calls and returns when they have completed (on GPUs: when they are enqueued). In a
  /// nested scope, does nothing. After a call of a group fails, the group's remaining calls are skipped;
  /// other groups continue. Then throws the failure of the group that appeared first in the scope.
  void end();

  /// Internal, for the collective layer.
  class Queue;

 private:
  std::unique_ptr<Queue> own_;  ///< set only in the outermost scope
  Queue* queue_;
  std::size_t begin_;  ///< length of the queue when this scope began
  bool ended_ = false;
};

}  // namespace onehop
