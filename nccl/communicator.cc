// SPDX-License-Identifier: Apache-2.0
#include "communicator.h"

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <system_error>
#include <thread>
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

struct Table {
  std::mutex mutex;
  std::unordered_map<Comm, std::shared_ptr<Communicator>> entries;
  std::unordered_map<Comm, std::shared_ptr<Communicator>> joining;  ///< beside NCCL's, to be carried
  std::uint32_t process = os::fork_generation();                    ///< of what was added last
  int leaving = 0;                                                  ///< threads of leave_later()
  std::condition_variable changed;
};

Table& table() {
  static Table& instance =
      *new Table;  // leaked: programs may destroy communicators in their own static destructors
  return instance;
}

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
  // The child of a fork has nothing to say, and may have inherited the mutex locked.
  if (table().process != os::fork_generation()) return;
  std::unordered_map<Comm, std::shared_ptr<Communicator>> entries;
  {
    // A copy: programs may destroy communicators in their own static destructors.
    const std::lock_guard lock(table().mutex);
    entries = table().entries;
  }
  for (const auto& [handle, communicator] : entries) leave_later(communicator, false);
  std::unique_lock lock(table().mutex);
  table().changed.wait_for(lock, kExitLimit, [] { return table().leaving == 0; });
}

/// With the table's mutex. Leaves in `communicator` what was there before, which must end when the mutex is free.
void exchange_entry(Comm handle, std::shared_ptr<Communicator>& communicator) {
  // After CUDA's own handlers of the process's end, so that it runs before them.
  static const bool leaves_at_exit = std::atexit([] { leave_all(); }) == 0;
  (void)leaves_at_exit;
  if (table().process != os::fork_generation()) {
    table().process = os::fork_generation();
    table().leaving = 0;  // those threads are the parent's
  }
  std::swap(table().entries[handle], communicator);
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
  const std::lock_guard lock(table().mutex);
  exchange_entry(handle, communicator);
}

void add_joining(Comm handle, std::shared_ptr<Communicator> communicator) {
  const std::lock_guard lock(table().mutex);
  std::swap(table().joining[handle], communicator);
}

bool add_joined(Comm handle, std::shared_ptr<Communicator> communicator) {
  const std::lock_guard lock(table().mutex);
  const auto found = table().joining.find(handle);
  if (found == table().joining.end() || found->second != communicator) return false;
  table().joining.erase(found);
  // Whoever ends the communicator forgets them, after having looked for it in the table.
  keep_members(handle, communicator->shared_members());
  exchange_entry(handle, communicator);
  return true;
}

std::shared_ptr<Communicator> remove_joining(Comm handle) noexcept {
  const std::lock_guard lock(table().mutex);
  auto entry = table().joining.extract(handle);
  return entry.empty() ? nullptr : std::move(entry.mapped());
}

bool remove_joining(Comm handle, const Communicator& communicator) noexcept {
  const std::lock_guard lock(table().mutex);
  const auto found = table().joining.find(handle);
  if (found == table().joining.end() || found->second.get() != &communicator) return false;
  table().joining.erase(found);
  return true;
}

bool is_carried(Comm handle) noexcept {
  const std::lock_guard lock(table().mutex);
  return table().entries.contains(handle);
}

bool has_reduction(Comm handle, RedOp op) noexcept {
  const std::lock_guard lock(table().mutex);
  const auto found = table().entries.find(handle);
  return found != table().entries.end() && found->second->reductions().find(op).has_value();
}

void count_forwarded(Comm handle) noexcept {
  const std::lock_guard lock(table().mutex);
  const auto found = table().entries.find(handle);
  if (found != table().entries.end()) found->second->count_forwarded();
}

std::shared_ptr<Communicator> find(Comm comm) {
  const std::lock_guard lock(table().mutex);
  const auto found = table().entries.find(comm);
  if (found == table().entries.end())
    fail(ErrorCode::invalid_argument, "{} is no communicator, or it was destroyed",
         static_cast<const void*>(comm));
  return found->second;
}

std::shared_ptr<Communicator> release(Comm comm) {
  std::shared_ptr<Communicator> found = find(comm);
  const std::lock_guard lock(table().mutex);
  table().entries.erase(comm);
  return found;
}

void release_aborted(Comm comm, std::string_view function) {
  std::shared_ptr<Communicator> communicator = release(comm);
  communicator->abort(function);
  leave_later(std::move(communicator), true);
}

bool forget(const Communicator& communicator) noexcept {
  const std::lock_guard lock(table().mutex);
  return std::erase_if(table().entries,
                       [&](const auto& entry) { return entry.second.get() == &communicator; }) != 0;
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
