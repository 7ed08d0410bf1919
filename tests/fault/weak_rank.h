// SPDX-License-Identifier: Apache-2.0
// A job of three ranks, one of which is short of a resource or has a system call fail. Checks what every such
// job must achieve, whatever failed and wherever.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "fault/store_server.h"
#include "fault/world.h"
#include "support/ranks.h"

namespace onehop::fault {

enum class StoreKind {
  file,
  tcp,
  hosted,  ///< TCP, with the server in the process of rank 0
};
[[nodiscard]] const char* to_text(StoreKind kind);

enum class Outcome {
  recovered,   ///< all ranks succeeded
  same_error,  ///< all ranks got the same Error, whose origin is the weak rank
  named,       ///< the weak rank could not report; the others missed it by name, or saw it leave
  wrong,
};

class WeakRankJob {
 public:
  static constexpr int kRanks = 3;

  /// Rank `weak` runs `hamper` before it opens its store and `free` after it has left; `free` returns whether
  /// the fault struck.
  WeakRankJob(int weak, StoreKind kind, const StoreServer* server, std::function<void()> hamper,
              std::function<bool()> free);

  /// Waits and checks the result. Call once.
  Outcome finish();
  /// The problem that `finish` found, in one line; or an empty string.
  [[nodiscard]] const std::string& wrong() const { return wrong_; }
  [[nodiscard]] bool struck() const;
  /// Whether ranks that were too late for each other, on a busy machine, explain what is wrong. Prints it then.
  [[nodiscard]] bool is_inconclusive() const;
  /// The error of every rank, in one line.
  [[nodiscard]] std::string errors() const;

 private:
  enum Figure { kStruck, kLeaked, kPort, kGroups };
  /// Which group's rank numbers the error of the failed call uses.
  enum Groups { kWhole, kPart, kBoth };
  enum Event { kServerUp, kEnded };

  void live(World& world, Rank rank);
  void work(World& world, Rank rank, Attempt& attempt);
  [[nodiscard]] std::shared_ptr<Store> open_store(Duration timeout) const;
  [[nodiscard]] bool names_weak(Rank by) const;
  /// The weak rank runs the server, and a client lost its connection to it. The client fails with an error of
  /// its own, for which the others blame the client.
  [[nodiscard]] bool lost_server(Rank by) const;
  enum class Cause { defect, maybe_lateness };
  void complain(const std::string& what, Cause cause = Cause::defect);

  const int weak_;
  const StoreKind kind_;
  std::uint16_t port_ = 0;
  const testing::TempDir dir_;
  const std::string prefix_;  ///< of its keys in a TCP store: the directory's name
  const std::function<void()> hamper_;
  const std::function<bool()> free_;
  std::unique_ptr<World> world_;
  std::string wrong_;
  Cause cause_ = Cause::defect;  ///< of wrong_
};

}  // namespace onehop::fault
