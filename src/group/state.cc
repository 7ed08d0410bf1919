// SPDX-License-Identifier: Apache-2.0
#include "group/state.h"

#include <algorithm>

#include "onehop/version.h"

#include "backend/host/reduce.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "base/units.h"
#include "base/wire.h"
#include "os/fault_point.h"
#include "os/fork_guard.h"
#include "os/mapping.h"
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
  // Ranks with GPUs have no data on the host, where they only make steps.
  const bool on_host = options_.device.is_host();
  const std::size_t staging = on_host ? options_.scratch_bytes : os::page_size();
  if (on_host) host_ = std::make_unique<HostRank>(size(), staging);
  const std::size_t before = sizeof(host::SegmentHeader) + (on_host ? host_->pair_bytes() : 0);
  segments_ =
      exchange_blocks(*host_memory_, staging, before, deadline, "joining", nullptr, [&](std::byte* own) {
        reinterpret_cast<host::SegmentHeader*>(own)->processors.write(os::usable_processors());
        if (on_host) host_->announce(own);
      });
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
