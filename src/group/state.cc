// SPDX-License-Identifier: Apache-2.0
#include "group/state.h"

#include <algorithm>

#include "onehop/version.h"

#include "backend/host/reduce.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "base/units.h"
#include "os/fault_point.h"
#include "os/fork_guard.h"
#include "os/mapping.h"
#include "os/processors.h"

namespace onehop {

Group::State::State(JoinOptions options, std::string id, std::shared_ptr<IpcChannel::Mesh> mesh,
                    std::shared_ptr<const GroupTuning> tuning, bool checks_calls, const Deadline& deadline)
    : options_(std::move(options)),
      id_(std::move(id)),
      mesh_(std::move(mesh)),
      tuning_(std::move(tuning)),
      channel_(mesh_),
      host_memory_(make_host_backend()),
      checks_calls_(checks_calls) {
  // Ranks with GPUs have no data on the host, where they only make steps.
  const bool on_host = options_.device.is_host();
  const std::size_t staging = on_host ? options_.scratch_bytes : os::page_size();
  if (on_host) host_ = std::make_unique<HostRank>(size(), staging);
  const std::size_t before = sizeof(host::SegmentHeader) + (on_host ? host_->pair_bytes() : 0);
  SharedBlocks shared = exchange_blocks(
      *mesh_, *host_memory_, staging, before, deadline, "joining", nullptr, [&](std::byte* own) {
        reinterpret_cast<host::SegmentHeader*>(own)->processors.write(os::usable_processors());
        if (on_host) host_->announce(own);
      });
  segments_ = std::move(shared.blocks);
  one_process_ = shared.one_process;
  std::vector<host::StepBarrier::Member> members;
  std::vector<host::Progress*> progress;
  std::vector<os::Processors> processors;
  for (const std::shared_ptr<Block>& segment : segments_) {
    auto* const header = reinterpret_cast<host::SegmentHeader*>(segment->data());
    members.push_back({.header = header, .staging = segment->data() + before});
    progress.push_back(&header->progress);
    processors.push_back(header->processors.read());
  }
  step_barrier_ = host::StepBarrier(rank().value, std::move(members), staging,
                                    os::SpinPolicy::for_ranks(os::can_run_at_once(processors)));
  if (on_host) {
    host_->connect(*this, segments_, deadline);
  } else {
    device_ = std::make_unique<DeviceRank>(*this, mesh_, std::move(progress), deadline);
  }
  selector_.emplace(tuning_->table, on_host ? Backend::host : Backend::cuda, size(),
                    on_host ? Links::nvlink : device_->links());
}

Group::State::~State() {
  leave();
}

void Group::State::leave() noexcept {
  os::fault_point("leave", rank().value);
  if (device_ != nullptr && mesh_->usable()) {
    try {
      if (const std::optional<Error> refusal = device_->progress().open_refusal())
        mesh_->fail_group(*refusal);
    } catch (const std::exception&) {
      // Out of memory: the other ranks see this rank leave.
    }
  }
  // First completes the pending work while monitoring the peers. Peers depend on it, and it may end only when
  // they fail.
  if (device_ != nullptr && !mesh_->left() && generation_ == os::fork_generation()) {
    device_->end_work();
    if (device_->communicator().failed())
      device_->watch().look();  // for unreported(), and for the other ranks
  }
  mesh_->leave();
  if (device_ != nullptr && !device_->memory_is_free() && generation_ == os::fork_generation())
    free_device_memory();
}

void Group::State::free_device_memory() noexcept {
  // No call begins any more; one that another thread is in ends soon.
  if (!call_mutex_.try_lock_until(Deadline::after(DeviceWatch::kGrace))) return;
  const std::lock_guard turn(call_mutex_, std::adopt_lock);
  // Kernels of the user may still hold views of buffers, which refer to this memory: it then lives as long as they do.
  if (device_->memory_is_unused() &&
      std::ranges::all_of(buffers_, [](const BufferRange& each) { return each.state.expired(); }))
    device_->free_memory();
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
      if (device_ != nullptr && device_->communicator().failed()) device_->watch().look();
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

void Group::State::synchronize(Stream stream, Duration timeout) {
  if (device_ == nullptr) return mesh_->check("synchronize");
  device_->watch().synchronize(stream, timeout);
}

void Group::State::throw_given_up(Rank r, const char* phase) {
  mesh_->check(phase);  // it told the others why before it gave up
  fail_from(mesh_->named(r), ErrorCode::peer_lost, "{}: rank {} has given up this call", phase,
            mesh_->named(r).value);
}

void Group::State::log_beginning(const char* how, std::chrono::steady_clock::time_point begin) const {
  if (!log::enabled(log::Level::info)) return;
  const double ms =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  const bool on_host = options_.device.is_host();
  const std::string device = on_host ? fmt::format("host backend ({})", host::isa_name())
                                     : fmt::format("CUDA backend, device {} ({})", options_.device.value,
                                                   device_name(options_.device));
  const std::string tuning = tuning_->file.empty() ? "shipped" : fmt::format("'{}'", tuning_->file);
  log::info("onehop {}: {} '{}' as rank {} of {} in {:.1f} ms: {}, memory shared by {}, tuning {}", version(),
            how, options_.name, rank().value, size(), ms, device, sharing(), tuning);
  if (rank() != Rank{0}) return;
  log::info("group '{}': scratch {} per rank, timeout {} ms, calls compared {}{}{}", options_.name,
            format_size(options_.scratch_bytes), options_.timeout.count(),
            on_host || checks_calls_ ? "always" : "without waiting",
            !on_host                       ? ""
            : step_barrier_.spin().spins() ? ", waits spin"
                                           : ", waits yield (ranks share processors)",
            !on_host ? ""
            : host_->single_copy().works()
                ? ", large transfers copied once"
                : fmt::format(", large transfers copied twice ({})", host_->single_copy().obstacle()));
}

std::array<std::uint64_t, kAlgorithmCount> Group::State::usage() const {
  std::array<std::uint64_t, kAlgorithmCount> counts{};
  for (std::size_t i = 0; i < counts.size(); ++i) counts[i] = usage_[i].load(std::memory_order_relaxed);
  return counts;
}

}  // namespace onehop
