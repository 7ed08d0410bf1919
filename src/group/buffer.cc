// SPDX-License-Identifier: Apache-2.0
#include "onehop/buffer.h"

#include <algorithm>
#include <atomic>

#include "base/check.h"
#include "group/state.h"
#include "os/fault_point.h"
#include "os/mapping.h"

namespace onehop {
namespace {

// One slot per cache line, since different ranks write different slots.
constexpr std::size_t kSlotWords = 64 / sizeof(std::uint32_t);
constexpr std::size_t kSlotKinds = 2;

/// The number of channels to size the pads for. Unusable options are refused later, by all ranks after the
/// rendezvous.
std::size_t usable_channels(const BufferOptions& options) {
  return static_cast<std::size_t>(std::clamp(options.channels, 1, SymmetricBuffer::kMaxChannels));
}

std::size_t round_to_page(std::size_t bytes) {
  const std::size_t page = os::page_size();
  return (bytes + page - 1) / page * page;
}

}  // namespace

SymmetricBuffer::State::State(std::shared_ptr<Group::State> owner, std::size_t size_in_bytes,
                              const BufferOptions& options, BufferParts parts)
    : group(std::move(owner)),
      bytes(size_in_bytes),
      channels(options.channels),
      data(std::move(parts.data)),
      pads(std::move(parts.host_pads)),
      device_pads_(std::move(parts.device_pads)),
      owners_(std::move(parts.owners)),
      registered_(parts.registered),
      barriers_(static_cast<std::size_t>(channels)),
      sent_(static_cast<std::size_t>(channels * group->size())),
      awaited_(sent_.size()) {}

SymmetricBuffer::State::~State() {
  group->local().before_unmapping(owners_);
}

void SymmetricBuffer::State::require_usable(const BufferOptions& options) {
  require(options.channels >= 1 && options.channels <= kMaxChannels,
          "{} channels are not within 1..{} (BufferOptions::channels)", options.channels, kMaxChannels);
}

std::size_t SymmetricBuffer::State::device_pad_bytes(const BufferOptions& options) {
  return round_to_page(usable_channels(options) * sizeof(SignalChannel));
}

std::size_t SymmetricBuffer::State::host_pad_bytes(int size, const BufferOptions& options) {
  return round_to_page(kSlotKinds * usable_channels(options) * static_cast<std::size_t>(size) * kSlotWords *
                       sizeof(std::uint32_t));
}

std::atomic_ref<std::uint32_t> SymmetricBuffer::State::slot(Slot kind, int owner, int channel,
                                                            int src) const {
  const int row = static_cast<int>(kind) * channels + channel;
  const auto index = static_cast<std::size_t>(row * group->size() + src) * kSlotWords;
  return std::atomic_ref<std::uint32_t>(pads[static_cast<std::size_t>(owner)][index]);
}

void SymmetricBuffer::State::require_channel(int channel) const {
  require(channel >= 0 && channel < channels,
          "channel {} is not within 0..{}; a buffer has as many as BufferOptions::channels says", channel,
          channels - 1);
}

void SymmetricBuffer::State::require_rank(Rank rank) const {
  require(rank.value >= 0 && rank.value < group->size(), "rank {} is not in a group of {}", rank.value,
          group->size());
}

DeviceView SymmetricBuffer::State::device_view(std::size_t offset, std::size_t length,
                                               Duration timeout) const {
  require(timeout.count() >= 0, "a timeout must not be negative, got {} ms", timeout.count());
  DeviceView view;
  view.guard = group->local().require_communicator("device_view").guard(timeout);
  view.rank = group->rank().value;
  view.size = group->size();
  view.channels = channels;
  view.bytes = length;
  for (std::size_t r = 0; r < data.size(); ++r) {
    view.peers[r] = data[r] + offset;
    view.signal_pads[r] = device_pads_[r];
  }
  return view;
}

void SymmetricBuffer::State::raise(Slot kind, int dst, int channel, std::uint32_t value) {
  // release: pairs with the load in await(); publishes what this rank wrote before. ring() needs seq_cst and
  // a read-modify-write.
  slot(kind, dst, channel, group->rank().value).exchange(value, std::memory_order_seq_cst);
  os::ring(group->local().step_barrier().bell(dst));
}

void SymmetricBuffer::State::await(Slot kind, int src, int channel, std::uint32_t value,
                                   os::CallDeadline& deadline, const char* phase) {
  const std::atomic_ref<std::uint32_t> word = slot(kind, group->rank().value, channel, src);
  const host::StepBarrier& barrier = group->local().step_barrier();
  // acquire: pairs with the exchange in raise(). Compares the difference, since counters may wrap.
  const auto raised = [&] {
    return static_cast<std::int32_t>(word.load(std::memory_order_seq_cst) - value) >= 0;
  };
  IpcChannel::Mesh::Wait wait(group->mesh());
  const auto look_around = [&] {
    wait.look(set_of(Rank{src}), deadline.arm());
    group->mesh().check_for(Rank{src}, raised, phase);
  };
  if (os::wait_on(barrier.bell(barrier.rank()), barrier.spin(), deadline, raised, look_around)) return;
  wait.throw_timeout(Rank{src}, deadline.timeout(), phase);
}

void SymmetricBuffer::State::barrier(int channel, Duration timeout) {
  if (!group->mesh().usable()) group->mesh().check("barrier");
  const int rank = group->rank().value;
  try {
    require_channel(channel);
    os::CallDeadline deadline(timeout);
    const std::uint32_t epoch = ++barriers_[static_cast<std::size_t>(channel)];
    for (int r = 0; r < group->size(); ++r) {
      if (r != rank) raise(Slot::barrier, r, channel, epoch);
    }
    os::fault_point("barrier", rank);
    for (int r = 0; r < group->size(); ++r) {
      if (r != rank) await(Slot::barrier, r, channel, epoch, deadline, "barrier");
    }
  } catch (const Error& error) {
    // A barrier that some ranks passed and others failed or refused cannot be repaired.
    group->fail_call(error, "barrier");
  }
}

void SymmetricBuffer::State::require_target(Rank dst, int channel) const {
  try {
    require_channel(channel);
    require_rank(dst);
  } catch (const Error& error) {
    // The peer must not take the next signal for this one.
    group->fail_call(error, "put_signal");
  }
}

void SymmetricBuffer::State::put_signal(Rank dst, int channel) {
  if (!group->mesh().usable()) group->mesh().check("put_signal");
  require_target(dst, channel);
  const auto index = static_cast<std::size_t>(channel * group->size() + dst.value);
  raise(Slot::signal, dst.value, channel, ++sent_[index]);
}

void SymmetricBuffer::State::wait_signal(Rank src, int channel, Duration timeout) {
  require_channel(channel);
  require_rank(src);
  if (!group->mesh().usable()) group->mesh().check("wait_signal");
  const auto index = static_cast<std::size_t>(channel * group->size() + src.value);
  os::CallDeadline deadline(timeout);
  // A timeout consumes no signal and harms nobody: the caller may wait again.
  await(Slot::signal, src.value, channel, awaited_[index] + 1, deadline, "wait_signal");
  ++awaited_[index];
}

// --- the handle ---

SymmetricBuffer::SymmetricBuffer() = default;
SymmetricBuffer::~SymmetricBuffer() = default;
SymmetricBuffer::SymmetricBuffer(const SymmetricBuffer&) = default;
SymmetricBuffer& SymmetricBuffer::operator=(const SymmetricBuffer&) = default;
SymmetricBuffer::SymmetricBuffer(SymmetricBuffer&&) noexcept = default;
SymmetricBuffer& SymmetricBuffer::operator=(SymmetricBuffer&&) noexcept = default;

SymmetricBuffer::SymmetricBuffer(std::shared_ptr<State> state)
    : state_(std::move(state)), bytes_(state_->bytes) {}

namespace {
SymmetricBuffer::State& in_use(const std::shared_ptr<SymmetricBuffer::State>& state) {
  require(state != nullptr, "this symmetric buffer is empty; Group::allocate or register_buffer makes one");
  return *state;
}
}  // namespace

Rank SymmetricBuffer::rank() const {
  return in_use(state_).group->rank();
}
int SymmetricBuffer::size() const {
  return in_use(state_).group->size();
}
std::size_t SymmetricBuffer::bytes() const {
  return bytes_;
}
int SymmetricBuffer::channels() const {
  return in_use(state_).channels;
}
std::byte* SymmetricBuffer::local() const {
  return peer(rank());
}

std::byte* SymmetricBuffer::peer(Rank r) const {
  State& state = in_use(state_);
  state.require_rank(r);
  return state.data[static_cast<std::size_t>(r.value)] + offset_;
}

SymmetricBuffer SymmetricBuffer::sub(std::size_t offset, std::size_t bytes) const {
  (void)in_use(state_);
  require(offset <= bytes_ && bytes <= bytes_ - offset,
          "{} bytes at offset {} are not within a buffer of {} bytes", bytes, offset, bytes_);
  SymmetricBuffer part = *this;
  part.offset_ += offset;
  part.bytes_ = bytes;
  return part;
}

PeerView SymmetricBuffer::view() const {
  State& state = in_use(state_);
  return {.rank = state.group->rank().value,
          .size = state.group->size(),
          .channels = state.channels,
          .bytes = bytes_,
          .offset = offset_,
          .peers = state.data.data(),
          .signal_pads = state.pads.data()};
}

DeviceView SymmetricBuffer::device_view(Duration timeout) const {
  return in_use(state_).device_view(offset_, bytes_, timeout);
}

void SymmetricBuffer::barrier(Stream stream, int channel, Duration timeout) const {
  State& state = in_use(state_);
  Communicator& communicator = state.group->local().require_communicator("barrier");
  try {
    state.require_channel(channel);
    communicator.barrier(device_view(timeout), channel, stream);
  } catch (const Error& error) {
    state.group->fail_call(error, "barrier");
  }
}
void SymmetricBuffer::put_signal(Stream stream, Rank dst, int channel) const {
  State& state = in_use(state_);
  Communicator& communicator = state.group->local().require_communicator("put_signal");
  state.require_target(dst, channel);
  communicator.put_signal(device_view(), dst, channel, stream);
}
void SymmetricBuffer::wait_signal(Stream stream, Rank src, int channel, Duration timeout) const {
  State& state = in_use(state_);
  state.require_channel(channel);
  state.require_rank(src);
  state.group->local()
      .require_communicator("wait_signal")
      .wait_signal(device_view(timeout), src, channel, stream);
}

void SymmetricBuffer::barrier(int channel, Duration timeout) const {
  in_use(state_).barrier(channel, timeout);
}
void SymmetricBuffer::put_signal(Rank dst, int channel) const {
  in_use(state_).put_signal(dst, channel);
}
void SymmetricBuffer::wait_signal(Rank src, int channel, Duration timeout) const {
  in_use(state_).wait_signal(src, channel, timeout);
}

}  // namespace onehop
