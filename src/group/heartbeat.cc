// SPDX-License-Identifier: Apache-2.0
#include "group/heartbeat.h"

namespace onehop {

void HeartbeatSender::send(const os::Id& nonce, const std::vector<int>& missing, Duration timeout) {
  last_ = encode(Waiting{.nonce = nonce,
                         .beat = ++beat_,
                         .size = size_,
                         .ranks = std::vector<std::int32_t>(missing.begin(), missing.end())});
  store_.set(key_, last_, timeout);
}

void HeartbeatListener::hear(const std::optional<std::string>& raw, Deadline::Clock::time_point now) {
  // The first value may be left from an earlier run: only a change shows that rank 0 is alive.
  if (started_ && raw && raw != last_) changed_ = now;
  started_ = true;
  if (raw) last_ = raw;
}

std::optional<Waiting> HeartbeatListener::believed(Deadline::Clock::time_point now) const {
  if (!changed_ || now - *changed_ > kHeartbeatBelieved) return std::nullopt;
  try {
    return parse_waiting(*last_);
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace onehop
