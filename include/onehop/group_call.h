// SPDX-License-Identifier: Apache-2.0
// Several calls made as one.
#pragma once

#include <cstddef>
#include <memory>

#include "onehop/export.h"

namespace onehop {

/// Calls of collectives.h that this thread makes while a GroupCall lives are queued and start together at its
/// end:
///
///   GroupCall scope;
///   send(group, to_right, count, DType::f32, right);
///   recv(group, from_left, count, DType::f32, left);
///   scope.end();
///
/// - The sends and receives of one group come first and progress together: in whatever order they are made,
///   also on all ranks alike, and however long they are, none waits for another one of the scope. Those of
///   one pair keep their order. A rank may send to itself what it receives from itself. On GPUs a group's
///   sends and receives are on one stream (a scope for each), and the k-th ones of all pairs progress
///   together.
/// - Then come the collectives of that group, which all ranks make in the same order. None reads or writes
///   what another one of the scope writes: they may run at the same time. On GPUs, small all-reduces that
///   follow each other, of one type, reduction and algorithm and on one stream, go in one launch; so all
///   ranks change streams at the same calls.
/// - Several groups, which may be the ranks of one (Group::join_local), run side by side: host ranks on a
///   thread each, while GPUs are queued to in the order in which the groups first came.
///
/// A call that is queued returns Algorithm::none, since nothing has run yet; what does not depend on other
/// ranks (a send to a rank that is none, say) throws at once and queues nothing. Its Group, data and blocks
/// stay where they are until the end. Other calls (Group::barrier, allocate, ...) are not queued: they take
/// place at once, before what is.
///
/// Scopes nest: only the end of the outermost one starts anything. Made, ended and destroyed on one thread,
/// the inner ones first.
class ONEHOP_API GroupCall {
 public:
  GroupCall();
  /// Without end(), which is how an exception leaves: what was queued since this scope began is dropped.
  ~GroupCall();
  GroupCall(const GroupCall&) = delete;
  GroupCall& operator=(const GroupCall&) = delete;

  /// Makes all that was queued, and returns when that is done (on GPUs: queued). A group's calls end with the
  /// first of them that fails; the other groups' go on. Then the first failure is thrown, in the order in
  /// which the groups first came.
  void end();

  /// Internal, for the collective layer.
  class Queue;

 private:
  std::unique_ptr<Queue> own_;  ///< of the outermost scope
  Queue* queue_;
  std::size_t begin_;  ///< length of the queue when this scope began
  bool ended_ = false;
};

}  // namespace onehop
