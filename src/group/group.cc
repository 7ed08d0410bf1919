// SPDX-License-Identifier: Apache-2.0
#include "onehop/group.h"

#include <algorithm>
#include <chrono>
#include <system_error>
#include <thread>

#include "backend/host/reduce.h"
#include "base/env.h"
#include "base/range.h"
#include "base/variables.h"
#include "group/device_rank.h"
#include "group/environment.h"
#include "group/group_tuning.h"
#include "group/rendezvous.h"
#include "group/state.h"
#include "os/host_id.h"

namespace onehop {
namespace {

constexpr std::size_t kDefaultHostScratch = 10 << 20;
constexpr std::size_t kDefaultDeviceScratch = 16 << 20;

/// Checks that must pass before this rank can reach the others.
void require_rank(const JoinOptions& options) {
  require(options.size >= 1, "rank {} of a group of {}: the size is the number of ranks, 1 to {}",
          options.rank.value, options.size, kMaxHostRanks);
  require(options.rank.value >= 0 && options.rank.value < options.size,
          "rank {} of a group of {}: ranks count from 0 to size - 1", options.rank.value, options.size);
  require(options.size <= kMaxHostRanks,
          "rank {} of a group of {}: a group holds at most {} host ranks or {} GPUs", options.rank.value,
          options.size, kMaxHostRanks, kMaxDevices);
  require(!options.name.empty() && options.name.size() <= 128 && options.name.find('/') == std::string::npos,
          "group name '{}' must have 1 to 128 characters and no '/'",
          std::string_view(options.name).substr(0, 128));
}

/// The store that the environment names. Sets the rank and size that it names, too.
std::shared_ptr<Store> store_of_environment(JoinOptions& options, const Deadline& deadline) {
  const Environment environment = read_environment();
  options.rank = Rank{environment.rank};
  options.size = environment.size;
  return open_store(environment, deadline.left());
}

/// All ranks refuse a negative timeout. To reach them, this rank needs a usable one.
Duration usable_timeout(const JoinOptions& options) {
  return options.timeout.count() < 0 ? kDefaultTimeout : options.timeout;
}

/// The kind of memory sharing that this rank requests, by its options or else its environment.
ShareBy share_asked_for(const JoinOptions& options) {
  const auto number = static_cast<int>(options.share_by);
  require(number >= 0 && number < kShareByCount, "unknown way to share memory: {}", number);
  if (options.share_by != ShareBy::automatic) return options.share_by;
  const std::optional<std::string> text = env::get("ONEHOP_SHARE");
  if (!text) return ShareBy::automatic;
  try {
    return parse_share_by(*text);
  } catch (const Error&) {
    fail(ErrorCode::invalid_argument,
         "environment variable ONEHOP_SHARE='{}' must be auto, fd, fabric or ipc", *text);
  }
}

/// Host memory is always shared as a memfd.
ShareMethods host_share_methods(ShareBy wanted) {
  if (wanted != ShareBy::automatic && wanted != ShareBy::posix_fd) {
    fail(ErrorCode::unsupported,
         "host ranks share memory by file descriptors; '{}' is for GPUs: use ONEHOP_SHARE=auto or fd",
         to_string(wanted));
  }
  ShareMethods usable;
  usable.add(ShareBy::posix_fd);
  return usable;
}

/// Checks the remaining options and collects what the others must know about the device. Runs inside the
/// rendezvous, so that a failure reaches the other ranks.
Prepared prepare(JoinOptions& options) {
  require(options.timeout.count() >= 0, "the timeout must not be negative, got {} ms",
          options.timeout.count());
  require(options.device.is_host() || options.device.value >= 0,
          "device {} is neither a device ordinal nor DeviceId::host", options.device.value);
  if (options.scratch_bytes == 0) {
    options.scratch_bytes = options.device.is_host() ? kDefaultHostScratch : kDefaultDeviceScratch;
  }
  require(options.scratch_bytes >= (64 << 10) && options.scratch_bytes <= (std::size_t{1} << 40),
          "scratch_bytes {} is not within 64 KiB..1 TiB", options.scratch_bytes);
  options.require_verified_peers =
      options.require_verified_peers || env::get_flag("ONEHOP_REQUIRE_VERIFIED_PEERS");
  options.allow_overlapping_devices =
      options.allow_overlapping_devices || env::get_flag("ONEHOP_ALLOW_OVERLAPPING_DEVICES");
  options.share_by = share_asked_for(options);
  if (!options.device.is_host()) {
    (void)DeviceRank::most_blocks();  // whose error reaches the other ranks from here
    std::string identity = identify_device(options.device);
    return {.device = std::move(identity), .share_methods = share_methods(options.device, options.share_by)};
  }
  host::require_known_isa();
  return {.device = "host", .share_methods = host_share_methods(options.share_by)};
}

/// Runs body(0) to body(n - 1) on n threads; rethrows the error of the lowest i that threw.
void run_together(std::size_t n, const std::function<void(std::size_t)>& body) {
  std::vector<std::exception_ptr> errors(n);
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < n; ++i) {
      const auto run = [&, i] {
        try {
          body(i);
        } catch (...) {
          errors[i] = std::current_exception();
        }
      };
      try {
        threads.emplace_back(run);
      } catch (const std::system_error& error) {
        // The threads that already run wait for the missing ones no longer than their deadlines.
        fail(ErrorCode::out_of_resources, "starting the thread of rank {}: {}", i, error.what());
      }
    }
  }
  for (const std::exception_ptr& error : errors) {
    if (error != nullptr) std::rethrow_exception(error);
  }
}

}  // namespace

// --- Group ---

Group::Group(std::shared_ptr<State> state) : state_(std::move(state)) {}
Group::Group(Group&&) noexcept = default;
Group& Group::operator=(Group&& other) noexcept {
  if (this != &other) {
    leave();
    state_ = std::move(other.state_);
  }
  return *this;
}
Group::~Group() {
  leave();
}

Group Group::join(std::shared_ptr<Store> store, JoinOptions options) {
  const Deadline deadline = Deadline::after(usable_timeout(options));
  return join_until(deadline, std::move(store), std::move(options));
}

Group Group::join_until(const Deadline& deadline, std::shared_ptr<Store> store, JoinOptions options) {
  const auto begin = std::chrono::steady_clock::now();
  check_environment();
  start_ranges();
  require(store != nullptr, "Group::join needs a store");
  require_rank(options);
  TuningText tuning;
  const auto prepare_all = [&] {
    Prepared prepared = prepare(options);
    if (options.rank == Rank{0}) tuning = choose_tuning(options);
    return prepared;
  };
  Rendezvous joined = rendezvous(*store, options, prepare_all, deadline);
  options.share_by = joined.share_by;  // also for the groups split off
  std::shared_ptr<const GroupTuning> shared = share_tuning(*joined.mesh, options.rank, tuning, deadline);
  const auto state =
      std::make_shared<State>(std::move(options), os::to_hex(joined.id), std::move(joined.mesh),
                              std::move(shared), joined.checks_calls, deadline);
  state->log_beginning("joined", begin);
  return Group(state);
}

std::vector<Group> Group::join_local(const std::vector<DeviceId>& devices, JoinOptions defaults) {
  require(!devices.empty() && devices.size() <= static_cast<std::size_t>(kMaxHostRanks),
          "join_local: a group of {} devices; a group holds 1 to {} host ranks or {} GPUs", devices.size(),
          kMaxHostRanks, kMaxDevices);
  const std::shared_ptr<Store> store = memory_store();
  std::vector<std::optional<Group>> joined(devices.size());
  run_together(devices.size(), [&](std::size_t r) {
    JoinOptions options = defaults;
    options.rank = Rank{static_cast<int>(r)};
    options.size = static_cast<int>(devices.size());
    options.device = devices[r];
    joined[r] = join(store, std::move(options));
  });
  std::vector<Group> groups;
  for (std::optional<Group>& each : joined) groups.push_back(*std::move(each));
  return groups;
}

void on_every_rank(std::vector<Group>& groups, const std::function<void(Group&)>& body) {
  run_together(groups.size(), [&](std::size_t r) { body(groups[r]); });
}

std::string host_id() {
  return os::boot_id();
}

Group Group::from_env(JoinOptions defaults) {
  const Deadline deadline = Deadline::after(usable_timeout(defaults));
  std::shared_ptr<Store> store = store_of_environment(defaults, deadline);
  return join_until(deadline, std::move(store), std::move(defaults));
}

Group::State& Group::state() const {
  require(state_ != nullptr, "this group was moved from");
  return *state_;
}

Rank Group::rank() const {
  return state().rank();
}
int Group::size() const {
  return state().size();
}
DeviceId Group::device() const {
  return state().options().device;
}
const std::string& Group::id() const {
  return state().id();
}
const std::string& Group::name() const {
  return state().options().name;
}
Duration Group::timeout() const {
  return state().options().timeout;
}
const std::string& Group::tuning_file() const {
  return state().tuning().file;
}
ShareBy Group::share_by() const {
  return state().options().share_by;
}
SymmetricBuffer Group::allocate(std::size_t bytes, const BufferOptions& options) {
  return state().allocate(bytes, options);
}
SymmetricBuffer Group::register_buffer(void* data, std::size_t bytes, const BufferOptions& options) {
  return state().local().register_buffer(data, bytes, options);
}
IpcChannel& Group::channel() {
  return state().channel();
}
std::array<std::uint64_t, kAlgorithmCount> Group::usage() const {
  return state().usage();
}
void Group::check() const {
  state().check_now("check");
  state().mesh().check("check");
}

void Group::watch(std::optional<Duration> grace) {
  require(!grace || grace->count() >= 0, "watch: the grace is {} ms; it must not be negative",
          grace.value_or(Duration{0}).count());
  FailureWatch::instance().add(state().shared_from_this(), grace);
}
std::optional<Error> Group::unreported_failure() const {
  return state().unreported();
}

void Group::synchronize(Stream stream) {
  state().local().synchronize(stream, timeout());
}
void Group::synchronize(Stream stream, Duration timeout) {
  state().local().synchronize(stream, timeout);
}

std::vector<std::string> Group::all_gather(std::string_view payload) {
  State& self = state();
  return self.call("all_gather", self.options().timeout, [&](os::CallDeadline& deadline) {
    return self.mesh().all_gather(payload, deadline.arm(), "all_gather");
  });
}

void Group::abort(std::string_view reason) noexcept {
  if (state_ == nullptr) return;
  try {
    state_->mesh().fail_group(Error(
        ErrorCode::aborted, fmt::format("rank {} aborted the group: {}", rank().value, reason), rank()));
  } catch (const std::exception&) {
    // Out of memory for the message: leaving ends the others' waits as well.
    state_->leave();
  }
}

void Group::leave() noexcept {
  if (state_ != nullptr) state_->leave();
}

std::optional<Group> Group::split(int color, int key) {
  return state().split(color, key);
}

Group Group::shrink() {
  return state().shrink(timeout());
}
Group Group::shrink(Duration timeout) {
  return state().shrink(timeout);
}
const std::vector<Rank>& Group::parent_ranks() const {
  return state().parent_ranks();
}

}  // namespace onehop
