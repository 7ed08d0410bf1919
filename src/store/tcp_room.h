// SPDX-License-Identifier: Apache-2.0
// Limits of the TCP store's server that its clients share, so that none of them can exhaust them for others.
// Only the loop's thread uses them.
#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <list>

namespace onehop::store {

class Session;

/// Connections that have not authenticated, oldest first. A new one is always admitted: the oldest is closed
/// for it after a time in which an honest client completes many handshakes.
class Newcomers {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::size_t kMax = 256;
  static constexpr std::chrono::milliseconds kStay{20};

  void add(Session* session) { all_.push_back({session, Clock::now()}); }
  void remove(const Session* session);
  [[nodiscard]] std::size_t size() const { return all_.size(); }
  /// Null if there is none.
  [[nodiscard]] Session* oldest() const { return all_.empty() ? nullptr : all_.front().session; }
  /// How long the next connection must wait before the oldest may be closed for it; zero: no wait.
  [[nodiscard]] Clock::duration time_until_room() const;

 private:
  struct Entry {
    Session* session;
    Clock::time_point since;
  };
  std::deque<Entry> all_;
};

/// Limits the memory for requests of more than kFree bytes while they arrive. A session without room waits
/// for its turn. A session that holds room for longer than kStay while others wait must give it up.
class ReceiveRoom {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::size_t kFree = std::size_t{64} << 10;
  static constexpr std::size_t kMax = std::size_t{192} << 20;
  static constexpr std::chrono::milliseconds kStay{1000};

  /// Returns true if the room is available now; otherwise next() grants it later.
  [[nodiscard]] bool reserve(Session* session, std::size_t bytes);
  /// Releases the room that the session holds or waits for. Does nothing for other sessions.
  void release(const Session* session);
  /// Returns the longest-waiting session, to which room has now been granted; null: none. Call it until it
  /// returns null after each release.
  [[nodiscard]] Session* next();
  /// Returns the session that must release its room for the waiting ones; null: none.
  [[nodiscard]] Session* overdue() const;

 private:
  struct Entry {
    Session* session;
    std::size_t bytes;
    Clock::time_point since;
  };
  std::list<Entry> holders_;  ///< the longest-holding session first
  std::deque<Entry> waiting_;
  std::size_t held_ = 0;
};

}  // namespace onehop::store
