// SPDX-License-Identifier: Apache-2.0
#include "communicator.h"

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <system_error>
#include <thread>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "onehop/interrupt.h"

#include "base/check.h"
#include "base/env.h"
#include "base/log.h"
#include "driver.h"
#include "os/fork_guard.h"

namespace onehop::nccl {
namespace {

/// NCCL waits for ever; so programs let ranks wait for long, such as for one that writes a checkpoint. A rank that dies is
/// noticed at once.
constexpr long kDefaultTimeoutSeconds = 1800;
constexpr long kLongestTimeoutSeconds = 86400;

/// When the process ends, for a device that is still busy.
constexpr auto kExitLimit = std::chrono::seconds{5};

using Communicators = std::unordered_map<Comm, std::shared_ptr<Communicator>>;

/// Some of the communicators, by handle.
struct alignas(64) Shard {
  std::mutex mutex;
  Communicators entries;
  Communicators joining;  ///< beside NCCL's, to be carried
};

struct Table {
  /// Every call looks its communicator up, and threads with different communicators should not wait for each other there.
  std::array<Shard, 16> shards;
  std::mutex mutex;                               ///< of what follows; may be locked while one of a shard is
  std::uint32_t process = os::fork_generation();  ///< of what was added last
  int leaving = 0;                                ///< threads of leave_later()
  std::condition_variable changed;
};

Table& table() {
  static Table& instance =
      *new Table;  // leaked: programs may destroy communicators in their own static destructors
  return instance;
}

/// The communicators among which a handle's is, locked.
class LockedShard {
 public:
  explicit LockedShard(Comm handle) : shard_(shard_of(handle)), lock_(shard_.mutex) {}
  [[nodiscard]] Shard& operator*() const { return shard_; }
  [[nodiscard]] Shard* operator->() const { return &shard_; }

 private:
  [[nodiscard]] static Shard& shard_of(Comm handle) {
    // Fibonacci hashing: the upper bits of the product depend on all bits of an address, whose lowest ones are equal.
    constexpr std::uint64_t kGoldenRatio = 0x9e37'79b9'7f4a'7c15;
    static_assert(std::tuple_size_v<decltype(Table::shards)> == 16, "4 bits");
    return table().shards[reinterpret_cast<std::uintptr_t>(handle) * kGoldenRatio >> 60];
  }

  Shard& shard_;
  std::lock_guard<std::mutex> lock_;
};

/// Lets calls of other threads, which an abort has ended, return before the group is left: they report the abort.
void wait_for_calls(const std::shared_ptr<Communicator>& communicator) noexcept {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds{1};
  while (communicator.use_count() > 1 && std::chrono::steady_clock::now() < limit)
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
}

/// Leaves the group in a thread of its own, which is counted in the table: leaving may have to wait for the device.
void leave_later(std::shared_ptr<Communicator> communicator, bool aborted) noexcept {
  {
    const std::lock_guard lock(table().mutex);
    ++table().leaving;
  }
  const auto leave = [aborted](std::shared_ptr<Communicator> left) noexcept {
    const RelaxedCapture relaxed;
    if (aborted) wait_for_calls(left);
    left->leave();
    left.reset();
    const std::lock_guard lock(table().mutex);
    --table().leaving;
    table().changed.notify_all();
  };
  try {
    std::thread(leave, communicator).detach();
  } catch (const std::system_error&) {
    leave(std::move(communicator));
  }
}

/// At the end of the process. Peers take one that ends without leaving its groups for dead, and fail.
void leave_all() noexcept {
  // The child of a fork has nothing to say, and may have inherited the mutexes locked.
  if (table().process != os::fork_generation()) return;
  for (Shard& shard : table().shards) {
    // A copy: programs may destroy communicators in their own static destructors.
    Communicators entries;
    {
      const std::lock_guard lock(shard.mutex);
      entries = shard.entries;
    }
    for (const auto& [handle, communicator] : entries) leave_later(communicator, false);
  }
  std::unique_lock lock(table().mutex);
  table().changed.wait_for(lock, kExitLimit, [] { return table().leaving == 0; });
}

/// With the shard's mutex. Leaves in `communicator` what was there before, which must end when the mutex is free.
void exchange_entry(Shard& shard, Comm handle, std::shared_ptr<Communicator>& communicator) {
  // After CUDA's own handlers of the process's end, so that it runs before them.
  static const bool leaves_at_exit = std::atexit([] { leave_all(); }) == 0;
  (void)leaves_at_exit;
  {
    const std::lock_guard lock(table().mutex);
    if (table().process != os::fork_generation()) {
      table().process = os::fork_generation();
      table().leaving = 0;  // those threads are the parent's
    }
  }
  std::swap(shard.entries[handle], communicator);
}

/// While it exists, waits of this thread end once ends() returns true.
class Interruptible {
 public:
  explicit Interruptible(const std::function<bool()>& ends) {
    // ends() may ask a store, and that wait would check here again.
    set_interrupt_check([ends, asking = std::make_shared<bool>(false)] {
      if (*asking) return false;
      *asking = true;
      const bool ended = ends();
      *asking = false;
      return ended;
    });
  }
  ~Interruptible() { set_interrupt_check({}); }
  Interruptible(const Interruptible&) = delete;
  Interruptible& operator=(const Interruptible&) = delete;
};

bool on_host() {
  const std::string device = env::get("ONEHOP_NCCL_DEVICE").value_or("cuda");
  if (device != "cuda" && device != "cpu")
    fail(ErrorCode::invalid_argument, "ONEHOP_NCCL_DEVICE='{}' makes no sense; legal: cuda or cpu", device);
  return device == "cpu";
}

}  // namespace

Communicator::~Communicator() {
  try {
    log::debug("NCCL: rank {} of {}: {} calls were carried, {} forwarded", rank_, size_, carried_.load(),
               forwarded_.load());
  } catch (const std::exception&) {
    // Out of memory: it was only for information.
  }
}

Group& Communicator::group() {
  if (!joined())
    fail(ErrorCode::invalid_argument,
         "the communicator has not been set up: that is done by the outermost ncclGroupEnd");
  return *group_;
}

Members& Communicator::members() {
  (void)group();
  return *members_;
}

void Communicator::join(std::shared_ptr<Store> store, std::string name, Duration limit,
                        const std::function<bool()>& given_up) {
  const auto require_not_aborted = [this] {
    if (aborted_.load()) fail(ErrorCode::aborted, "rank {} was aborted while it was set up", rank_);
  };
  require_not_aborted();
  bool peer_gave_up = false;
  try {
    const Interruptible waits([&] { return aborted_.load() || (peer_gave_up = given_up()); });
    group_ = Group::join(
        std::move(store),
        {.rank = Rank{rank_}, .size = size_, .device = device_, .timeout = limit, .name = std::move(name)});
  } catch (const Error&) {
    require_not_aborted();
    if (peer_gave_up) fail(ErrorCode::aborted, "another rank gave up while rank {} was set up", rank_);
    throw;
  }
  formed_.store(true);
  if (aborted_.load()) group_->abort("the set-up");
  require_not_aborted();
  members_ = Members::exchange(*group_);
  joined_.store(true, std::memory_order_release);
}

void Communicator::abort(std::string_view function) noexcept {
  // seq_cst, as the store and the load in join(): at least one of the two threads sees the other's store.
  aborted_.store(true);
  if (formed_.load()) group_->abort(function);
}

void Communicator::revoke() noexcept {
  revoked_.store(true);
  abort("ncclCommRevoke");
}

void Communicator::leave() noexcept {
  if (formed_.load()) group_->leave();
}

Comm add(std::shared_ptr<Communicator> communicator) {
  Communicator* const comm = communicator.get();
  add(comm, std::move(communicator));
  return comm;
}

void add(Comm handle, std::shared_ptr<Communicator> communicator) {
  const LockedShard shard(handle);
  exchange_entry(*shard, handle, communicator);
}

void add_joining(Comm handle, std::shared_ptr<Communicator> communicator) {
  const LockedShard shard(handle);
  std::swap(shard->joining[handle], communicator);
}

bool add_joined(Comm handle, std::shared_ptr<Communicator> communicator) {
  const LockedShard shard(handle);
  const auto found = shard->joining.find(handle);
  if (found == shard->joining.end() || found->second != communicator) return false;
  shard->joining.erase(found);
  // Whoever ends the communicator forgets them, after having looked for it in the table.
  keep_members(handle, communicator->shared_members());
  exchange_entry(*shard, handle, communicator);
  return true;
}

std::shared_ptr<Communicator> remove_joining(Comm handle) noexcept {
  const LockedShard shard(handle);
  auto entry = shard->joining.extract(handle);
  return entry.empty() ? nullptr : std::move(entry.mapped());
}

bool remove_joining(Comm handle, const Communicator& communicator) noexcept {
  const LockedShard shard(handle);
  const auto found = shard->joining.find(handle);
  if (found == shard->joining.end() || found->second.get() != &communicator) return false;
  shard->joining.erase(found);
  return true;
}

bool is_carried(Comm handle) noexcept {
  const LockedShard shard(handle);
  return shard->entries.contains(handle);
}

bool has_reduction(Comm handle, RedOp op) noexcept {
  const LockedShard shard(handle);
  const auto found = shard->entries.find(handle);
  return found != shard->entries.end() && found->second->reductions().find(op).has_value();
}

void count_forwarded(Comm handle) noexcept {
  const LockedShard shard(handle);
  const auto found = shard->entries.find(handle);
  if (found != shard->entries.end()) found->second->count_forwarded();
}

std::shared_ptr<Communicator> find(Comm comm) {
  const LockedShard shard(comm);
  const auto found = shard->entries.find(comm);
  if (found == shard->entries.end())
    fail(ErrorCode::invalid_argument, "{} is no communicator, or it was destroyed",
         static_cast<const void*>(comm));
  return found->second;
}

std::shared_ptr<Communicator> release(Comm comm) {
  std::shared_ptr<Communicator> found = find(comm);
  const LockedShard shard(comm);
  shard->entries.erase(comm);
  return found;
}

void release_aborted(Comm comm, std::string_view function) {
  std::shared_ptr<Communicator> communicator = release(comm);
  communicator->abort(function);
  leave_later(std::move(communicator), true);
}

bool forget(const Communicator& communicator) noexcept {
  for (Shard& shard : table().shards) {
    const std::lock_guard lock(shard.mutex);
    if (std::erase_if(shard.entries,
                      [&](const auto& entry) { return entry.second.get() == &communicator; }) != 0)
      return true;
  }
  return false;
}

Duration call_timeout() {
  static const long seconds =
      env::get_int("ONEHOP_NCCL_TIMEOUT", 1, kLongestTimeoutSeconds).value_or(kDefaultTimeoutSeconds);
  return std::chrono::seconds{seconds};
}

DeviceId current_device() {
  return on_host() ? DeviceId::host : DeviceId{current_cuda_device()};
}

DeviceId device_of(int cuda_device) {
  return on_host() ? DeviceId::host : DeviceId{cuda_device};
}

}  // namespace onehop::nccl
