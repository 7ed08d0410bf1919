// SPDX-License-Identifier: Apache-2.0
#include "group/state.h"

#include <algorithm>
#include <climits>
#include <cstring>

#include "onehop/version.h"

#include "backend/host/copy_trial.h"
#include "backend/host/reduce.h"
#include "base/env.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "base/units.h"
#include "base/wire.h"
#include "os/fault_point.h"
#include "os/fork_guard.h"
#include "os/mapping.h"
#include "os/process_memory.h"
#include "os/processors.h"

namespace onehop {
namespace {

// Largest serialized handle that we accept: a fabric handle has 64 bytes, an IPC handle 144.
constexpr std::size_t kMaxHandleBytes = 1024;
// Far larger than any machine's memory, and far from overflow.
constexpr std::size_t kMaxBlockBytes = std::size_t{1} << 47;

/// Message in which a rank describes memory that it has allocated for the others.
struct BlockNotice {
  Status status;
  os::Id process{};  ///< ranks of one process share one mapping
  std::uint64_t bytes = 0;
  std::uint64_t offer = 0;  ///< number of the LocalOffer, for ranks in the same process
  bool has_descriptor = false;
  std::string handle{};       ///< the bytes of the MemoryHandle, if it is serialized
  std::int32_t channels = 0;  ///< number of signal channels; 0: the memory is no buffer
};

std::string encode(const BlockNotice& notice) {
  wire::Writer out;
  out.put_bytes(onehop::encode(notice.status));
  out.put_raw({reinterpret_cast<const char*>(notice.process.data()), notice.process.size()});
  out.put(notice.bytes).put(notice.offer);
  out.put(std::uint8_t{notice.has_descriptor}).put_bytes(notice.handle).put(notice.channels);
  return std::move(out).str();
}

BlockNotice parse_block_notice(std::string_view bytes) {
  wire::Reader in(bytes, "allocation notice");
  BlockNotice notice;
  notice.status = parse_status(in.get_bytes(kMaxPayload));
  const std::string_view id = in.get_raw(notice.process.size());
  std::copy(id.begin(), id.end(), notice.process.begin());
  notice.bytes = in.get<std::uint64_t>();
  notice.offer = in.get<std::uint64_t>();
  notice.has_descriptor = in.get<std::uint8_t>() != 0;
  notice.handle = in.get_bytes(kMaxHandleBytes);
  notice.channels = in.get<std::int32_t>();
  in.finish();
  return notice;
}

}  // namespace

Group::State::State(JoinOptions options, std::string id, std::shared_ptr<IpcChannel::Mesh> mesh,
                    std::shared_ptr<const GroupTuning> tuning, bool checks_calls, const Deadline& deadline)
    : options_(std::move(options)),
      id_(std::move(id)),
      mesh_(std::move(mesh)),
      tuning_(std::move(tuning)),
      channel_(mesh_),
      host_memory_(make_host_backend()),
      checks_calls_(checks_calls) {
  // A group of GPUs has no data on the host; there its ranks only synchronize on the host.
  const bool on_host = options_.device.is_host();
  const std::size_t staging = on_host ? options_.scratch_bytes : os::page_size();
  const std::size_t pair_area = on_host ? host::PointToPoint::area_bytes(size(), staging) : 0;
  std::optional<host::CopyTrial> trial;  // the other ranks read it until try_single_copy() returns
  const auto announce = [&](std::byte* own) {
    auto* const header = reinterpret_cast<host::SegmentHeader*>(own);
    header->processors.write(os::usable_processors());
    if (!on_host) return;
    const host::Wish wish = host::read_wish();
    host::ProcessNotice notice = host::make_notice(process_, wish);
    if (wish != host::Wish::never) {
      os::permit_siblings_to_read();
      trial.emplace(std::span(own + sizeof(host::SegmentHeader) + pair_area, staging));
      notice.trial = trial->address();
    }
    header->process.write(notice);
  };
  segments_ = exchange_blocks(*host_memory_, staging, sizeof(host::SegmentHeader) + pair_area, deadline,
                              "joining", nullptr, announce);
  std::vector<host::StepBarrier::Member> members;
  std::vector<host::PointToPoint::Member> pair_members;
  std::vector<os::Processors> processors;
  for (const std::shared_ptr<Block>& segment : segments_) {
    auto* const header = reinterpret_cast<host::SegmentHeader*>(segment->data());
    std::byte* const area = segment->data() + sizeof(host::SegmentHeader);
    members.push_back({.header = header, .staging = area + pair_area});
    pair_members.push_back({.bell = &header->bell, .area = area});
    processors.push_back(header->processors.read());
  }
  step_barrier_ = host::StepBarrier(rank().value, std::move(members), staging,
                                    os::SpinPolicy::for_ranks(os::can_run_at_once(processors)));
  if (on_host) pairs_ = host::PointToPoint(rank().value, pair_members, staging);
  if (on_host) {
    single_copy_ = try_single_copy(deadline);
    selector_.emplace(tuning_->table, Backend::host, size(), Links::nvlink);
  } else {
    start_device(deadline);
  }
}

host::SingleCopy Group::State::try_single_copy(const Deadline& deadline) {
  std::vector<host::ProcessNotice> notices;
  std::vector<host::ReadMarks*> marks;
  for (const std::shared_ptr<Block>& segment : segments_) {
    auto* const header = reinterpret_cast<host::SegmentHeader*>(segment->data());
    notices.push_back(header->process.read());
    marks.push_back(&header->read_marks);
  }
  if (std::string objection = host::find_objection(notices, step_barrier_.spin().spins()); !objection.empty())
    return host::SingleCopy(std::move(objection));
  host::SingleCopy works(notices, marks, rank().value);
  if (works.one_process()) return works;
  const std::string own = host::find_obstacle(notices, rank().value);
  for (const std::string& each : mesh_->all_gather(own, deadline, "joining")) {
    if (!each.empty()) return host::SingleCopy(each);
  }
  if (always_wanted(notices)) return works;
  if (std::string slowness = find_slowness(notices, deadline); !slowness.empty())
    return host::SingleCopy(std::move(slowness));
  return works;
}

std::string Group::State::find_slowness(std::span<const host::ProcessNotice> notices,
                                        const Deadline& deadline) {
  using Times = host::CopyTrial::Times;
  // Ranks of the same process as the next one do not measure.
  const auto next = static_cast<std::size_t>((rank().value + 1) % size());
  const host::ProcessNotice& peer = notices[next];
  std::optional<Times> own;
  if (peer.process != process_) {
    own = host::CopyTrial::measure(
        peer.pid, peer.trial, {step_barrier_.staging(static_cast<int>(next)), step_barrier_.staging_bytes()});
  }
  std::vector<Times> measured;
  const std::string_view raw =
      own ? std::string_view(reinterpret_cast<const char*>(&*own), sizeof *own) : std::string_view();
  for (const std::string& each : mesh_->all_gather(raw, deadline, "joining")) {
    if (each.size() == sizeof(Times)) std::memcpy(&measured.emplace_back(), each.data(), sizeof(Times));
  }
  return host::find_slowness(measured);
}

Group::State::Devices Group::State::compare_devices(const Deadline& deadline) {
  struct Device {
    char identity[40] = {};
    std::int32_t multiprocessors = 0;
  };
  Device own;
  const std::string identity = identify_device(options_.device);
  identity.copy(own.identity, sizeof own.identity);
  own.multiprocessors = multiprocessors(options_.device);
  std::vector<Device> devices;
  std::vector<std::string> identities;
  for (const std::string& raw :
       mesh_->all_gather({reinterpret_cast<const char*>(&own), sizeof own}, deadline, "joining")) {
    if (raw.size() != sizeof(Device)) fail(ErrorCode::protocol, "joining: a rank sent {} bytes", raw.size());
    std::memcpy(&devices.emplace_back(), raw.data(), sizeof(Device));
    identities.emplace_back(devices.back().identity, ::strnlen(devices.back().identity, sizeof own.identity));
  }
  Devices answer{.shape = {.ranks = size(), .staging_bytes = options_.scratch_bytes, .blocks = INT_MAX}};
  const auto users = [&](const std::string& device) {
    return static_cast<int>(std::ranges::count(identities, device));
  };
  for (std::size_t r = 0; r < devices.size(); ++r) {
    answer.shape.blocks =
        std::min(answer.shape.blocks,
                 static_cast<unsigned>(std::max(1, devices[r].multiprocessors / users(identities[r]))));
  }
  answer.alone = users(identity) == 1;
  // A rank may not see all devices, so all say what they see.
  const char pcie = has_peer_without_nvlink(options_.device, identities) ? 1 : 0;
  for (const std::string& raw : mesh_->all_gather({&pcie, 1}, deadline, "joining")) {
    if (raw != std::string_view("\0", 1)) answer.links = Links::pcie;
  }
  return answer;
}

void Group::State::start_device(const Deadline& deadline) {
  const Devices devices = compare_devices(deadline);
  selector_.emplace(tuning_->table, Backend::cuda, size(), devices.links);
  device_memory_ = make_cuda_backend(options_.device, options_.share_by, deadline.left());
  device_segments_ =
      exchange_blocks(*device_memory_, Communicator::segment_bytes(devices.shape), 0, deadline, "joining");
  Status status;
  try {
    std::vector<std::byte*> segments;
    for (const std::shared_ptr<Block>& segment : device_segments_) segments.push_back(segment->data());
    communicator_ = Communicator::create({.device = options_.device,
                                          .rank = rank().value,
                                          .shape = devices.shape,
                                          .segments = std::move(segments),
                                          .alone = devices.alone,
                                          .poison = env::get_flag("ONEHOP_POISON", true)});
    std::vector<host::Progress*> all_progress;
    for (const std::shared_ptr<Block>& segment : segments_)
      all_progress.push_back(&reinterpret_cast<host::SegmentHeader*>(segment->data())->progress);
    progress_ = std::make_unique<DeviceProgress>(rank(), std::move(all_progress));
    watch_ = std::make_unique<DeviceWatch>(mesh_, *communicator_, *progress_, options_.timeout);
  } catch (const Error& error) {
    status = Status::of(error, own_name());
  } catch (const std::exception& other) {
    status = {ErrorCode::out_of_resources, own_name(), other.what()};
  }
  agree(status, deadline, "joining");
}

void keep_for_ever(MappedBlocks& blocks) noexcept {
  auto* const kept = new (std::nothrow) MappedBlocks;
  if (kept != nullptr) kept->swap(blocks);  // else there is no memory even for that
}

Group::State::~State() {
  leave();
  if (communicator_ != nullptr && generation_ != os::fork_generation()) {
    // This is the child of a fork. The driver does not work here, and the resources to release are the
    // parent's.
    (void)watch_.release();
    (void)communicator_.release();
    return;
  }
  watch_.reset();
  if (communicator_ != nullptr && !segments_unused()) {
    // Kernels still use the memory that is about to be freed. Freeing it would destroy the whole context.
    (void)communicator_.release();
    keep_for_ever(device_segments_);
  }
}

bool Group::State::segments_unused() noexcept {
  // A call that another thread was in, when this one left, may have queued its work since.
  if (communicator_->calls() != ended_calls_)
    device_ended_ = device_ended_ && communicator_->finish(DeviceWatch::kGrace);
  device_ended_ = device_ended_ && communicator_->release_segments(DeviceWatch::kGrace);
  return device_ended_;
}

void Group::State::leave() noexcept {
  os::fault_point("leave", rank().value);
  if (progress_ != nullptr && mesh_->usable()) {
    try {
      if (const std::optional<Error> refusal = progress_->open_refusal()) mesh_->fail_group(*refusal);
    } catch (const std::exception&) {
      // Out of memory: the other ranks see this rank leave.
    }
  }
  // First completes the pending work while monitoring the peers. Peers depend on it, and it may end only when
  // they fail.
  if (communicator_ != nullptr && !mesh_->left() && generation_ == os::fork_generation()) {
    end_device_work();
    if (communicator_->failed()) watch_->look();  // for unreported(), and for the other ranks
  }
  mesh_->leave();
  free_device_memory();
}

void Group::State::free_device_memory() noexcept {
  if (device_segments_.empty() || generation_ != os::fork_generation()) return;
  // No call begins any more; one that another thread is in ends soon.
  if (!call_mutex_.try_lock_until(Deadline::after(DeviceWatch::kGrace))) return;
  const std::lock_guard turn(call_mutex_, std::adopt_lock);
  if (!segments_unused()) return;
  // Kernels of the user may still hold views of buffers, which refer to this memory: it then lives as long as they do.
  if (std::ranges::all_of(buffers_, [](const BufferRange& each) { return each.state.expired(); }))
    device_segments_.clear();
}

void Group::State::end_device_work() noexcept {
  const Duration limit = std::max(options_.timeout, communicator_->longest_timeout());
  ended_calls_ = communicator_->calls();
  device_ended_ = communicator_->finish(limit);
  if (device_ended_) return;
  // This rank's waits should have ended by now; work that still runs afterwards is not the group's.
  communicator_->abort();
  device_ended_ = communicator_->finish(DeviceWatch::kGrace);
  if (!device_ended_) log::warn("{}", unended_work("leave", "the group", limit));
}

std::string Group::State::unended_work(const char* phase, const char* what, Duration limit) const {
  return fmt::format(
      "{}: rank {}: device {} has not ended its work within {} ms: the memory of {} stays allocated until "
      "the "
      "process ends; does a kernel wait for something that will not come?",
      phase, own_name().value, options_.device.value, limit.count(), what);
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
      if (communicator_ != nullptr && communicator_->failed()) watch_->look();
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
  if (watch_ == nullptr) return mesh_->check("synchronize");
  watch_->synchronize(stream, timeout);
}

void Group::State::throw_timeout(const IpcChannel::Mesh::Blame& blame, Duration timeout,
                                 const char* phase) const {
  fail_from(blame.origin, ErrorCode::timeout, "{}: rank {} waited {} ms for {}", phase, own_name().value,
            timeout.count(), blame.awaited);
}

void Group::State::throw_given_up(Rank r, const char* phase) {
  mesh_->check(phase);  // it told the others why before it gave up
  fail_from(mesh_->named(r), ErrorCode::peer_lost, "{}: rank {} has given up this call", phase,
            mesh_->named(r).value);
}

void Group::State::agree(const Status& own, const Deadline& deadline, const char* phase) {
  for (const std::string& raw : mesh_->all_gather(encode(own), deadline, phase))
    parse_status(raw).throw_if_failed();
}

MappedBlocks Group::State::exchange_blocks(const MemoryBackend& backend, std::size_t bytes, std::size_t extra,
                                           const Deadline& deadline, const char* phase,
                                           const BufferOptions* options,
                                           const std::function<void(std::byte*)>& initialize) {
  Allocation own;
  LocalOffer offer;  // valid until all ranks have agreed below
  BlockNotice notice;
  notice.process = process_id();
  notice.bytes = bytes;
  if (options != nullptr) notice.channels = options->channels;
  notice.status = attempt(phase, [&] {
    os::fault_point("allocate", rank().value);
    if (options != nullptr) SymmetricBuffer::State::require_usable(*options);
    require(bytes > 0 && bytes <= kMaxBlockBytes, "cannot allocate {} bytes of symmetric memory", bytes);
    own = backend.create(bytes + extra);
    if (initialize) initialize(own.block->data());
    offer = LocalOffer(own.block);
    notice.offer = offer.number();
    notice.has_descriptor = static_cast<bool>(own.handle.descriptor);
    notice.handle = own.handle.bytes;
  });

  std::vector<BlockNotice> notices;
  for (const std::string& raw : mesh_->all_gather(encode(notice), deadline, phase)) {
    notices.push_back(parse_block_notice(raw));
  }
  for (const BlockNotice& each : notices) each.status.throw_if_failed();
  for (std::size_t r = 1; r < notices.size(); ++r) {
    const Rank first = mesh_->named(Rank{0});
    const Rank odd = mesh_->named(Rank{static_cast<int>(r)});
    if (notices[r].bytes != notices[0].bytes) {
      fail_from(odd, ErrorCode::mismatch, "{}: rank {} asks for {} bytes, rank {} for {}", phase, first.value,
                notices[0].bytes, odd.value, notices[r].bytes);
    }
    if (notices[r].channels != notices[0].channels) {
      fail_from(odd, ErrorCode::mismatch, "{}: rank {} asks for {} channels, rank {} for {}", phase,
                first.value, notices[0].channels, odd.value, notices[r].channels);
    }
  }

  one_process_ = std::all_of(notices.begin(), notices.end(),
                             [&](const BlockNotice& each) { return each.process == notices[0].process; });
  std::vector<os::UniqueFd> descriptors(notices.size());
  if (!one_process_ && std::any_of(notices.begin(), notices.end(),
                                   [](const BlockNotice& each) { return each.has_descriptor; }))
    descriptors = mesh_->all_gather_fds(own.handle.descriptor.get(), deadline);

  MappedBlocks blocks(notices.size());
  const Status mapped = attempt(phase, [&] {
    os::fault_point("map", rank().value);
    for (std::size_t r = 0; r < blocks.size(); ++r) {
      if (static_cast<int>(r) == rank().value) {
        blocks[r] = own.block;
      } else if (notices[r].process != notice.process) {
        blocks[r] = backend.import(
            {.descriptor = std::move(descriptors[r]), .bytes = std::move(notices[r].handle)}, bytes + extra);
      } else if (blocks[r] = LocalOffer::take(notices[r].offer);
                 blocks[r] == nullptr || blocks[r]->bytes() != own.block->bytes()) {
        const Rank lost = mesh_->named(Rank{static_cast<int>(r)});
        fail_from(lost, ErrorCode::peer_lost, "rank {} gave up before its memory was mapped", lost.value);
      } else {
        backend.adopt(*blocks[r]);
      }
    }
  });
  agree(mapped, deadline, phase);
  return blocks;
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
            : single_copy_.works()
                ? ", large transfers copied once"
                : fmt::format(", large transfers copied twice ({})", single_copy_.obstacle()));
}

std::array<std::uint64_t, kAlgorithmCount> Group::State::usage() const {
  std::array<std::uint64_t, kAlgorithmCount> counts{};
  for (std::size_t i = 0; i < counts.size(); ++i) counts[i] = usage_[i].load(std::memory_order_relaxed);
  return counts;
}

}  // namespace onehop
