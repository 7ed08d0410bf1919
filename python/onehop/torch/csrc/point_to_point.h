// SPDX-License-Identifier: Apache-2.0
// Sends and receives of host tensors.
#pragma once

#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>
#include <vector>

#include "engine.h"
#include "executor.h"

namespace onehop_torch {

/// isend and irecv of torch are independent of each other, of other peers and of collectives: two ranks may
/// both send first, and a send may wait while collectives run. One group of onehop makes a rank's calls one
/// after the other. Hence each ordered pair of ranks has a small group and a thread of its own, made at its
/// first message. The messages of a pair keep their order; tags do not matter, as with NCCL.
class PointToPoint {
 public:
  PointToPoint(c10::intrusive_ptr<c10d::Store> store, int rank, Membership members, Cancellation cancelled)
      : store_(std::move(store)),
        rank_(rank),
        members_(std::move(members)),
        cancelled_(std::move(cancelled)) {}

  /// Runs `call`, a send or recv whose root is the peer, on the pair's thread, then `finished`.
  void post(Call call, int64_t timeout_ms, std::function<void(std::exception_ptr)> finished) {
    Channel& channel = find(call);
    channel.executor.post(
        [this, &channel, call = std::move(call), timeout_ms, finished = std::move(finished)]() mutable {
          std::exception_ptr error;
          try {
            run(channel, call, timeout_ms);
          } catch (...) {
            error = std::current_exception();
          }
          finished(error);
        });
  }

  void abort(const std::string& reason) {
    const std::lock_guard lock(mutex_);
    for (auto& [key, channel] : channels_) {
      const std::lock_guard joined(channel.mutex);
      channel.aborted = reason;
      if (channel.engine) channel.engine->abort(reason);
    }
  }

  /// Finishes all messages and leaves the pairs' groups.
  void stop() {
    std::vector<Channel*> open;
    {
      const std::lock_guard lock(mutex_);
      for (auto& [key, channel] : channels_) open.push_back(&channel);
    }
    // Without the lock, so that abort() can end what the threads wait for.
    for (Channel* const channel : open) channel->executor.stop();
    const std::lock_guard lock(mutex_);
    channels_.clear();
  }

  bool idle() {
    const std::lock_guard lock(mutex_);
    for (auto& [key, channel] : channels_) {
      if (!channel.executor.idle()) return false;
    }
    return true;
  }

 private:
  struct Channel {
    int from = 0;
    int to = 0;
    std::mutex mutex;  ///< guards engine and aborted against abort()
    std::unique_ptr<Engine> engine;
    std::string aborted;
    Executor executor;
  };

  static constexpr int64_t kScratchBytes = 1 << 20;  // the largest slots of a pair (64 KiB) and no more

  Channel& find(const Call& call) {
    const bool sends = call.collective == ONEHOP_COLLECTIVE_SEND;
    const std::lock_guard lock(mutex_);
    const auto [found, created] = channels_.try_emplace({sends, call.root});
    Channel& channel = found->second;
    if (created) {
      channel.from = sends ? rank_ : call.root;
      channel.to = sends ? call.root : rank_;
    }
    return channel;
  }

  /// In the pair's group, rank 0 is the sender.
  void run(Channel& channel, Call& call, int64_t timeout_ms) {
    const bool sends = call.collective == ONEHOP_COLLECTIVE_SEND;
    Engine* engine = joined(channel);
    if (engine == nullptr) {
      auto fresh = std::make_unique<GroupEngine>(
          store_, c10::str("pair-", channel.from, "-", channel.to), sends ? 0 : 1, 2, ONEHOP_DEVICE_HOST,
          JoinSettings{kScratchBytes}, timeout_ms, pair_members(channel), cancelled_);
      const std::lock_guard lock(channel.mutex);
      channel.engine = std::move(fresh);
      engine = channel.engine.get();
      if (!channel.aborted.empty()) engine->abort(channel.aborted);
    }
    call.root = sends ? 1 : 0;
    engine->run(call, nullptr, timeout_ms);
  }

  Engine* joined(Channel& channel) {
    const std::lock_guard lock(channel.mutex);
    TORCH_CHECK_WITH(DistBackendError, channel.engine || channel.aborted.empty(), "onehop: process group '",
                     members_.group, "' was aborted: ", channel.aborted);
    return channel.engine.get();
  }

  /// The library's message counts ranks within the pair; the addition in brackets names them in the job.
  Membership pair_members(const Channel& channel) const {
    return {c10::str(members_.group, ", pair of sender ", channel.from, " and receiver ", channel.to),
            {members_.global(channel.from), members_.global(channel.to)}};
  }

  c10::intrusive_ptr<c10d::Store> store_;
  int rank_;
  Membership members_;
  Cancellation cancelled_;
  std::mutex mutex_;  ///< guards the map
  std::map<std::pair<bool, int>, Channel> channels_;
};

}  // namespace onehop_torch
