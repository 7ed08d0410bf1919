// SPDX-License-Identifier: Apache-2.0
#include "store/tcp_room.h"

#include <algorithm>

namespace onehop::store {

void Newcomers::remove(const Session* session) {
  std::erase_if(all_, [&](const Entry& entry) { return entry.session == session; });
}

Newcomers::Clock::duration Newcomers::time_until_room() const {
  if (all_.size() < kMax) return Clock::duration::zero();
  return std::max<Clock::duration>(all_.front().since + kStay - Clock::now(), Clock::duration::zero());
}

bool ReceiveRoom::reserve(Session* session, std::size_t bytes) {
  waiting_.push_back({session, bytes, Clock::now()});
  return waiting_.size() == 1 && next() != nullptr;
}

void ReceiveRoom::release(const Session* session) {
  const auto is_its = [&](const Entry& entry) { return entry.session == session; };
  std::erase_if(waiting_, is_its);
  const auto held = std::find_if(holders_.begin(), holders_.end(), is_its);
  if (held == holders_.end()) return;
  held_ -= held->bytes;
  holders_.erase(held);
}

Session* ReceiveRoom::next() {
  if (waiting_.empty() || held_ + waiting_.front().bytes > kMax) return nullptr;
  Entry entry = waiting_.front();
  waiting_.pop_front();
  entry.since = Clock::now();
  held_ += entry.bytes;
  holders_.push_back(entry);
  return entry.session;
}

Session* ReceiveRoom::overdue() const {
  if (waiting_.empty() || holders_.empty()) return nullptr;
  return Clock::now() - holders_.front().since >= kStay ? holders_.front().session : nullptr;
}

}  // namespace onehop::store
