// SPDX-License-Identifier: Apache-2.0
#include "group/device_rank.h"

#include <algorithm>
#include <climits>
#include <cstring>
#include <mutex>
#include <new>
#include <utility>

#include "base/check.h"
#include "base/env.h"
#include "base/log.h"
#include "group/exchange_blocks.h"
#include "os/fork_guard.h"
#include "os/mapping.h"

namespace onehop {
namespace {

/// Keeps memory that a device still uses mapped until the process ends.
void keep_for_ever(MappedBlocks& blocks) noexcept {
  auto* const kept = new (std::nothrow) MappedBlocks;
  if (kept != nullptr) kept->swap(blocks);  // else there is no memory even for that
}

}  // namespace

DeviceRank::DeviceRank(Group::State& group, std::shared_ptr<IpcChannel::Mesh> mesh, const Deadline& deadline)
    : LocalRank(*mesh, Backend::cuda), group_(group) {
  // Ranks with GPUs have no data on the host, where they only make steps.
  make_segments(0, os::page_size(), deadline);
  std::vector<host::Progress*> progress;
  for (const std::shared_ptr<Block>& segment : host_segments())
    progress.push_back(&header_of(*segment).progress);
  const JoinOptions& options = group.options();
  const Devices devices = compare_devices(deadline);
  links_ = devices.links;
  memory_ = make_cuda_backend(options.device, options.share_by, deadline.left());
  segments_ =
      exchange_blocks(mesh_, *memory_, Communicator::segment_bytes(devices.shape), 0, deadline, "joining")
          .blocks;
  Status status;
  try {
    std::vector<std::byte*> segments;
    for (const std::shared_ptr<Block>& segment : segments_) segments.push_back(segment->data());
    communicator_ = Communicator::create({.device = options.device,
                                          .rank = group.rank().value,
                                          .shape = devices.shape,
                                          .segments = std::move(segments),
                                          .alone = devices.alone,
                                          .poison = env::get_flag("ONEHOP_POISON", true)});
    progress_ = std::make_unique<DeviceProgress>(group.rank(), std::move(progress));
    set_kernels(*communicator_);
    watch_ = std::make_unique<DeviceWatch>(std::move(mesh), *communicator_, *progress_, options.timeout);
  } catch (const Error& error) {
    status = Status::of(error, group.own_name());
  } catch (const std::exception& other) {
    status = {ErrorCode::out_of_resources, group.own_name(), other.what()};
  }
  agree(mesh_, status, deadline, "joining");
}

DeviceRank::~DeviceRank() {
  if (generation_ != os::fork_generation()) {
    // This is the child of a fork. The driver does not work here, and the resources to release are the
    // parent's.
    (void)watch_.release();
    (void)communicator_.release();
    return;
  }
  watch_.reset();
  if (!memory_is_unused()) {
    // Kernels still use the memory that is about to be freed. Freeing it would destroy the whole context.
    (void)communicator_.release();
    keep_for_ever(segments_);
  }
}

std::optional<int> DeviceRank::most_blocks() {
  const std::optional<std::int64_t> blocks = env::get_int("ONEHOP_MAX_BLOCKS", 1, 65535);
  return blocks ? std::optional(static_cast<int>(*blocks)) : std::nullopt;
}

DeviceRank::Devices DeviceRank::compare_devices(const Deadline& deadline) const {
  struct Device {
    char identity[40] = {};
    std::int32_t blocks = 0;
  };
  const JoinOptions& options = group_.options();
  Device own;
  const std::string identity = identify_device(options.device);
  identity.copy(own.identity, sizeof own.identity);
  const int sms = multiprocessors(options.device);
  own.blocks = std::min(most_blocks().value_or(sms), 2 * sms);  // sync/call.cuh
  std::vector<Device> devices;
  std::vector<std::string> identities;
  for (const std::string& raw :
       mesh_.all_gather({reinterpret_cast<const char*>(&own), sizeof own}, deadline, "joining")) {
    if (raw.size() != sizeof(Device)) fail(ErrorCode::protocol, "joining: a rank sent {} bytes", raw.size());
    std::memcpy(&devices.emplace_back(), raw.data(), sizeof(Device));
    identities.emplace_back(devices.back().identity, ::strnlen(devices.back().identity, sizeof own.identity));
  }
  Devices answer{
      .shape = {.ranks = group_.size(), .staging_bytes = options.scratch_bytes, .blocks = INT_MAX}};
  const auto users = [&](const std::string& device) {
    return static_cast<int>(std::ranges::count(identities, device));
  };
  for (std::size_t r = 0; r < devices.size(); ++r) {
    answer.shape.blocks = std::min(
        answer.shape.blocks, static_cast<unsigned>(std::max(1, devices[r].blocks / users(identities[r]))));
  }
  answer.alone = users(identity) == 1;
  // A rank may not see all devices, so all say what they see.
  const char pcie = has_peer_without_nvlink(options.device, identities) ? 1 : 0;
  for (const std::string& raw : mesh_.all_gather({&pcie, 1}, deadline, "joining")) {
    if (raw != std::string_view("\0", 1)) answer.links = Links::pcie;
  }
  return answer;
}

LocalRank::Description DeviceRank::describe() const {
  const JoinOptions& options = group_.options();
  return {.device =
              fmt::format("CUDA backend, device {} ({})", options.device.value, device_name(options.device)),
          .sharing = sharing_by(to_string(options.share_by)),
          .calls = group_.checks_calls() ? "always" : "without waiting"};
}

void DeviceRank::before_leaving() noexcept {
  if (mesh_.usable()) {
    try {
      if (const std::optional<Error> refusal = progress_->open_refusal()) mesh_.fail_group(*refusal);
    } catch (const std::exception&) {
      // Out of memory: the other ranks see this rank leave.
    }
  }
  // Completes the pending work while monitoring the peers. Peers depend on it, and it may end only when they fail.
  if (mesh_.left() || generation_ != os::fork_generation()) return;
  end_work();
  look_for_failure();  // for unreported(), and for the other ranks
}

void DeviceRank::after_leaving(os::TimedMutex& turn, const std::vector<BufferRange>& buffers) noexcept {
  if (segments_.empty() || generation_ != os::fork_generation()) return;
  // No call begins any more; one that another thread is in ends soon.
  if (!turn.try_lock_until(Deadline::after(DeviceWatch::kGrace))) return;
  const std::lock_guard lock(turn, std::adopt_lock);
  // Kernels of the user may still hold views of buffers, which refer to this memory: it then lives as long as they do.
  if (memory_is_unused() &&
      std::ranges::all_of(buffers, [](const BufferRange& each) { return each.state.expired(); }))
    segments_.clear();
}

void DeviceRank::before_unmapping(MappedBlocks& owners) noexcept {
  // Kernels may still use the mappings. Unmapping under them would end the whole context.
  const Duration limit = group_.options().timeout;
  if (communicator_->quiesce(limit)) return;
  log::warn("{}", unended_work("freeing a buffer", "this buffer", limit));
  keep_for_ever(owners);
}

Communicator& DeviceRank::require_communicator(const char* what) const {
  if (!mesh_.usable()) mesh_.check(what);
  return *communicator_;
}

void DeviceRank::end_work() noexcept {
  const Duration limit = std::max(group_.options().timeout, communicator_->longest_timeout());
  ended_calls_ = communicator_->calls();
  work_ended_ = communicator_->finish(limit);
  if (work_ended_) return;
  // This rank's waits should have ended by now; work that still runs afterwards is not the group's.
  communicator_->abort();
  work_ended_ = communicator_->finish(DeviceWatch::kGrace);
  if (!work_ended_) log::warn("{}", unended_work("leave", "the group", limit));
}

bool DeviceRank::memory_is_unused() noexcept {
  // A call that another thread was in, when this one left, may have queued its work since.
  if (communicator_->calls() != ended_calls_)
    work_ended_ = work_ended_ && communicator_->finish(DeviceWatch::kGrace);
  work_ended_ = work_ended_ && communicator_->release_segments(DeviceWatch::kGrace);
  return work_ended_;
}

std::string DeviceRank::unended_work(const char* phase, const char* what, Duration limit) const {
  return fmt::format(
      "{}: rank {}: device {} has not ended its work within {} ms: the memory of {} stays allocated "
      "until the process ends; does a kernel wait for something that will not come?",
      phase, group_.own_name().value, group_.options().device.value, limit.count(), what);
}

}  // namespace onehop
