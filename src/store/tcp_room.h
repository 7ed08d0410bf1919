// SPDX-License-Identifier: Apache-2.0
// Limits of the TCP store's server that its clients share, so that none of them can use them up for others.
// Touched by the loop's thread only.
#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <list>

namespace onehop::store {

class Session;

/// Connections that have not proved that they know the secret, oldest first. There is always room for one
/// more: the oldest goes, after a stay in which an honest client completes its handshake many times over.
class Newcomers {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::size_t kMax = 256;
  static constexpr std::chrono::milliseconds kStay{20};

  void add(Session* session) { all_.push_back({session, Clock::now()}); }
  void remove(const Session* session);
  [[nodiscard]] std::size_t size() const { return all_.size(); }
  /// Null when there is none.
  [[nodiscard]] Session* oldest() const { return all_.empty() ? nullptr : all_.front().session; }
  /// How long the next connection has to wait before the oldest may be closed for it; zero: not at all.
  [[nodiscard]] Clock::duration time_until_room() const;

 private:
  struct Entry {
    Session* session;
    Clock::time_point since;
  };
  std::deque<Entry> all_;
};

/// Room for requests of more than kFree bytes while they arrive. Who finds none waits for its turn; who holds
/// some for longer than kStay while others wait has to give it up.
class ReceiveRoom {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::size_t kFree = std::size_t{64} << 10;
  static constexpr std::size_t kMax = std::size_t{192} << 20;
  static constexpr std::chrono::milliseconds kStay{1000};

  /// True when the room is there now; otherwise next() hands it out later.
  [[nodiscard]] bool reserve(Session* session, std::size_t bytes);
  /// Gives back what the session holds or waits for. Does nothing for others.
  void release(const Session* session);
  /// The session that has waited for longest and has its room now; null: none. Call until null after each
  /// release.
  [[nodiscard]] Session* next();
  /// The session that must make room for those who wait; null: none.
  [[nodiscard]] Session* overdue() const;

 private:
  struct Entry {
    Session* session;
    std::size_t bytes;
    Clock::time_point since;
  };
  std::list<Entry> holders_;  ///< the one that has held for longest first
  std::deque<Entry> waiting_;
  std::size_t held_ = 0;
};

}  // namespace onehop::store
