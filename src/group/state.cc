// SPDX-License-Identifier: Apache-2.0
#include "group/state.h"

#include "onehop/version.h"

#include "base/interrupt.h"
#include "base/log.h"
#include "base/units.h"
#include "group/device_rank.h"
#include "group/host_rank.h"
#include "os/fault_point.h"

namespace onehop {

Group::State::State(JoinOptions options, std::string id, std::shared_ptr<IpcChannel::Mesh> mesh,
                    std::shared_ptr<const GroupTuning> tuning, bool checks_calls, const Deadline& deadline)
    : options_(std::move(options)),
      id_(std::move(id)),
      mesh_(std::move(mesh)),
      tuning_(std::move(tuning)),
      channel_(mesh_),
      checks_calls_(checks_calls) {
  if (options_.device.is_host()) {
    local_ = std::make_unique<HostRank>(*mesh_, options_.scratch_bytes, deadline);
  } else {
    local_ = std::make_unique<DeviceRank>(*this, mesh_, deadline);
  }
  selector_.emplace(tuning_->table, local_->backend(), size(), local_->links());
}

Group::State::~State() {
  leave();
}

void Group::State::leave() noexcept {
  os::fault_point("leave", rank().value);
  local_->before_leaving();
  mesh_->leave();
  local_->after_leaving(call_mutex_, buffers_);
}

void Group::State::wait_for_turn(const Deadline& deadline, Duration timeout, const char* phase) {
  try {
    if (call_mutex_.try_lock_until(deadline, [&] { throw_if_interrupted(phase); })) return;
  } catch (const Error& error) {
    fail_call(error, phase);
  }
  fail_call(mesh_->out_of_turn(timeout, phase), phase);
}

std::optional<Error> Group::State::unreported() {
  try {
    if (!mesh_->left()) {
      local_->look_for_failure();
      (void)mesh_->look("a look at the group");
    }
  } catch (const Error&) {
    // It has left, or is the copy of a forked child; or a peer sent nonsense, which the next call reports.
  }
  return mesh_->unreported();
}

std::string Group::State::title() const {
  return fmt::format("rank {} of '{}'", rank().value, options_.name);
}

void Group::State::log_beginning(const char* how, std::chrono::steady_clock::time_point begin) const {
  if (!log::enabled(log::Level::info)) return;
  const double ms =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  const LocalRank::Description own = local_->describe();
  const std::string tuning = tuning_->file.empty() ? "shipped" : fmt::format("'{}'", tuning_->file);
  log::info("onehop {}: {} '{}' as rank {} of {} in {:.1f} ms: {}, memory shared by {}, tuning {}", version(),
            how, options_.name, rank().value, size(), ms, own.device, own.sharing, tuning);
  if (rank() != Rank{0}) return;
  log::info("group '{}': scratch {} per rank, timeout {} ms, calls compared {}", options_.name,
            format_size(options_.scratch_bytes), options_.timeout.count(), own.calls);
}

std::array<std::uint64_t, kAlgorithmCount> Group::State::usage() const {
  std::array<std::uint64_t, kAlgorithmCount> counts{};
  for (std::size_t i = 0; i < counts.size(); ++i) counts[i] = usage_[i].load(std::memory_order_relaxed);
  return counts;
}

}  // namespace onehop
