// SPDX-License-Identifier: Apache-2.0
// The group of the ranks that survive a failure.
#include <chrono>

#include "base/log.h"
#include "group/state.h"
#include "os/fault_point.h"

namespace onehop {
namespace {

constexpr const char* kShrinking = "shrink";

std::string list(const std::vector<Rank>& ranks) {
  std::string text;
  for (const Rank r : ranks) text += fmt::format("{}{}", text.empty() ? "" : ", ", r.value);
  return text;
}

}  // namespace

Group Group::State::shrink(Duration timeout) {
  const Range range(kShrinking);
  const auto begin = std::chrono::steady_clock::now();
  const Deadline deadline = Deadline::after(timeout);
  os::fault_point(kShrinking, rank().value);
  if (!shrink_mutex_.try_lock_until(deadline, [] { throw_if_interrupted(kShrinking); })) {
    fail_from(rank(), ErrorCode::timeout,
              "{}: rank {} waited {} ms for another of its threads that shrinks this group", kShrinking,
              rank().value, timeout.count());
  }
  const std::lock_guard turn(shrink_mutex_, std::adopt_lock);
  require(!last_.succeeded, "{}: rank {} has the group of the survivors already; shrink that one", kShrinking,
          rank().value);
  if (last_.mesh == nullptr) {
    last_.mesh = mesh_;
    for (int r = 0; r < size(); ++r) last_.ranks.emplace_back(r);
  }
  while (true) {
    IpcChannel::Mesh::Successor next = last_.mesh->succeed(deadline, kShrinking);
    os::fault_point("shrink.form", rank().value);
    for (Rank& each : next.ranks) each = last_.ranks[static_cast<std::size_t>(each.value)];
    // From here on a failure is the successor's: some survivors may have formed the group already, and find it
    // failed. They shrink that one, over the same sockets.
    last_ = {.mesh = next.mesh, .ranks = next.ranks};
    try {
      const std::shared_ptr<State> survivors = form_survivors(next, deadline);
      os::fault_point("shrink.formed", rank().value);
      survivors->parent_ranks_ = next.ranks;
      next.mesh->use_own_numbers();
      last_.succeeded = true;
      survivors->log_beginning("shrunk", begin);
      log::info("'{}': rank {} of {} is now rank {} of the {} that are left: {}", options_.name, rank().value,
                size(), survivors->rank().value, survivors->size(), list(next.ranks));
      return Group(survivors);
    } catch (const Error& error) {
      // A rank that had formed the group may have shrunk it already, while this one had not.
      const bool superseded = error.code() == ErrorCode::aborted && next.mesh->superseded();
      if (error.code() != ErrorCode::peer_lost && !superseded) throw;
    }
  }
}

std::shared_ptr<Group::State> Group::State::form_survivors(const IpcChannel::Mesh::Successor& next,
                                                           const Deadline& deadline) {
  JoinOptions options = options_;
  options.rank = next.mesh->rank();
  options.size = next.mesh->size();
  try {
    return std::make_shared<State>(std::move(options), os::to_hex(next.id), next.mesh, tuning_, checks_calls_,
                                   deadline);
  } catch (const Error& error) {
    if (found_by_all(error.code())) throw;
    next.mesh->fail_call(error, kShrinking);
  } catch (const std::exception& other) {
    next.mesh->fail_call(Error(ErrorCode::out_of_resources, other.what()), kShrinking);
  }
}

}  // namespace onehop
