// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <bit>

#include "backend/cuda/algorithms/point_to_point/channel_launch.h"
#include "backend/cuda/algorithms/point_to_point/factors.h"

namespace onehop::cuda {
namespace {

constexpr std::size_t kMaxRingSlotBytes = 8 << 10;

constexpr std::size_t kWarp = 32;
constexpr std::size_t kFewThreads = 64;  // few threads start sooner and spread over more multiprocessors
constexpr std::size_t kOneBlock = 128;   // up to this many packets use one block
constexpr std::size_t kEarlyThreads =
    256;  // largest launch beside which the next one may start (sync/call.cuh)
constexpr std::size_t kMostThreads = kChannelWarps * kWarp;

/// Maximum number of warps that share a ring. With 4 ranks, 1, 2 and 4 such warps reduce 256 MB in 979, 883
/// and 838 us (bench/results/gpu-kernels.md).
constexpr unsigned kMostParts = 4;

constexpr PlainKernel kExchangeKernel{"exchange"};
/// With 2 ranks.
constexpr PlainKernel kPairKernel{"exchange_pair"};

/// The scratch memory: counts; then slots of LL packets and of packed LL, by parity and peer; then rings, by
/// peer and ring.
struct Layout {
  explicit Layout(const GroupShape& shape)
      : ranks(static_cast<std::size_t>(shape.ranks)),
        ring_slot(std::clamp(
            std::bit_floor(shape.staging_bytes / ((ranks - 1) * rings_per_peer(ranks) * kRingDepth)),
            std::size_t{512}, kMaxRingSlotBytes)) {}

  std::size_t ranks;
  std::size_t ring_slot;  ///< bytes

  [[nodiscard]] Slots packets() const {
    return {.begin = align_scratch(sizeof(ChannelCounts)),
            .parity = (ranks - 1) * 2 * kMaxLLBytes,
            .rank = 2 * kMaxLLBytes};
  }
  [[nodiscard]] Slots packed() const {
    const std::size_t slot = max_packed_bytes(ranks) / kPackedDataBytes * kPackedSlotBytes;
    return {.begin = packets().begin + 2 * packets().parity, .parity = (ranks - 1) * slot, .rank = slot};
  }
  [[nodiscard]] Slots rings() const {
    return {.begin = packed().begin + 2 * packed().parity,
            .parity = ring_slot,
            .phase = kRingDepth * ring_slot,  // of the next ring
            .rank = std::size_t{rings_per_peer(ranks)} * kRingDepth * ring_slot};
  }
  [[nodiscard]] std::size_t bytes() const { return rings().begin + (ranks - 1) * rings().rank; }
};

/// Of messages from one rank to another: the scratch memory of both, and the entry that each has for the other.
struct Direction {
  std::byte* sender;
  std::size_t at_sender;
  std::byte* receiver;
  std::size_t at_receiver;
};

ChannelEnd end_of(const Layout& layout, const Direction& direction, bool is_sender) {
  const std::size_t rings = rings_per_peer(layout.ranks);
  ChannelCounts& sender = *reinterpret_cast<ChannelCounts*>(direction.sender);
  ChannelCounts& receiver = *reinterpret_cast<ChannelCounts*>(direction.receiver);
  ChannelEnd end;
  end.packets = direction.receiver + layout.packets().begin + direction.at_receiver * layout.packets().rank;
  end.packed = direction.receiver + layout.packed().begin + direction.at_receiver * layout.packed().rank;
  end.slots = direction.receiver + layout.rings().begin + direction.at_receiver * layout.rings().rank;
  end.chunks_ready = receiver.chunks_ready + direction.at_receiver * rings;
  end.taken = &sender.sent[direction.at_sender].taken;
  end.chunks_taken = sender.chunks_taken + direction.at_sender * rings;
  end.messages = is_sender ? sender.sent + direction.at_sender : receiver.received + direction.at_receiver;
  end.chunks = is_sender ? sender.chunks_sent + direction.at_sender * rings
                         : receiver.chunks_received + direction.at_receiver * rings;
  return end;
}

void run(Launcher& launcher, const CollectiveCall& call, const LaunchLimits& /*limits*/,
         const SymmetricOutput* /*output*/) {
  exchange(launcher, transfers_of(call), DeviceFault::phase_of(call.collective));
}

void launch_exchange(Launcher& launcher, const LaunchShape& shape, const ChannelParams& params) {
  if (launcher.size() > 2) return launcher.launch(kExchangeKernel, shape, params);
  const ChannelPairParams pair{static_cast<const ChannelCall&>(params), {params.pairs[0]}};
  launcher.launch(kPairKernel, shape, pair);
}

constexpr std::array kPlainKernels{&kExchangeKernel, &kPairKernel};
constexpr std::array kRegions{&kChannelScratch, &kFactorScratch};

}  // namespace

const ScratchRegion kChannelScratch{
    [](const GroupShape& shape) { return shape.ranks == 1 ? 0 : Layout(shape).bytes(); }};

const DeviceAlgorithm kPointToPoint{{.name = "point_to_point",
                                     .kind = Algorithm::one_shot,
                                     .moves_blocks = true,
                                     .without_choice = {Collective::all_to_all_v}},
                                    run,
                                    {},
                                    kPlainKernels,
                                    kRegions};

ChannelLaunch::ChannelLaunch(Launcher& launcher, DeviceFault::Phase phase) : launcher_(launcher) {
  const Layout layout(launcher.shape());
  const int rank = launcher.rank();
  params.rank = rank;
  params.size = launcher.size();
  params.slot = static_cast<std::uint32_t>(layout.ring_slot);
  params.ll_parity = layout.packets().parity;
  params.packed_parity = layout.packed().parity;
  params.phase = phase;
  params.guard = launcher.call_guard();
  std::byte* const own = launcher.scratch(kChannelScratch, rank);
  for (int r = 0; r < launcher.size(); ++r) {
    if (r == rank) continue;
    ChannelPair& pair = params.pairs[entry(r)];
    std::byte* const theirs = launcher.scratch(kChannelScratch, r);
    const Direction to{
        .sender = own, .at_sender = entry(rank, r), .receiver = theirs, .at_receiver = entry(r, rank)};
    const Direction from{
        .sender = theirs, .at_sender = entry(r, rank), .receiver = own, .at_receiver = entry(rank, r)};
    pair.to = end_of(layout, to, true);
    pair.from = end_of(layout, from, false);
  }
}

void ChannelLaunch::send(int peer, const std::byte* data, std::size_t bytes, const MessageShape& shape) {
  forward(peer, bytes, shape);
  params.pairs[entry(peer)].to.data = const_cast<std::byte*>(data);  // one type serves both directions
  sends_ = sends_ || (shape.route == Route::ring && bytes != 0);
}

void ChannelLaunch::receive(int peer, std::byte* data, std::size_t bytes, DType type,
                            const MessageShape& shape) {
  take(peer, bytes, shape);
  ChannelEnd& end = params.pairs[entry(peer)].from;
  end.data = data;
  end.poison = launcher_.poisons(type);
  receives_ = receives_ || (shape.route == Route::ring && bytes != 0);
}

void ChannelLaunch::forward(int peer, std::size_t bytes, const MessageShape& shape) {
  ChannelEnd& end = params.pairs[entry(peer)].to;
  end.bytes = bytes;
  end.shape = shape;
}

void ChannelLaunch::take(int peer, std::size_t bytes, const MessageShape& shape) {
  ChannelEnd& end = params.pairs[entry(peer)].from;
  end.bytes = bytes;
  end.shape = shape;
}

MessageShape ChannelLaunch::cut(std::size_t bytes, unsigned most) const {
  return cut_into_chunks(bytes, params.slot,
                         std::clamp(most, 1u, rings_per_peer(static_cast<std::size_t>(launcher_.size()))));
}

void ChannelLaunch::share_rings(unsigned warps, int rows) {
  const MessageShape& shape = params.own_shape;
  // Data that fits the rings is not delayed by them. Sharing would then cost more in barriers than it saves.
  if (params.bytes <= std::size_t{kRingDepth} * shape.rings * shape.chunk) return;
  const auto others = static_cast<unsigned>(rows);
  const unsigned room = launcher_.shape().blocks * warps / shape.rings;
  params.parts = std::bit_floor(std::clamp(room > others ? room - others : 1u, 1u, kMostParts));
}

LaunchShape ChannelLaunch::shape_rows(unsigned warps, std::size_t packets) {
  std::size_t rings = std::max(params.own_shape.rings, std::uint32_t{1});
  for (const ChannelPair& pair : params.pairs) {
    rings = std::max<std::size_t>({rings, pair.to.shape.rings, pair.from.shape.rings});
  }
  const auto peers = static_cast<unsigned>(launcher_.size() - 1);
  params.senders = sends_ || packets != 0 ? peers : 0;
  params.receivers = receives_ ? peers : 0;
  const unsigned rows = params.senders + params.receivers + (params.bytes != 0 ? params.parts : 0);
  const std::size_t block = warps * kWarp;
  // With a grid of 64 large blocks, each block has one of each pair of multiprocessors to itself. A grid with
  // more blocks, even idle ones, fills pairs first. Senders are then faster by 4%
  // (bench/results/gpu-kernels.md). So the grid has at least two rows.
  return {.grid = static_cast<unsigned>(std::max(ceil_div(rings, warps), ceil_div(packets, block))),
          .rows = std::max(2u, rows),
          .block = static_cast<unsigned>(block)};
}

void exchange(Launcher& launcher, const Transfers& transfers, DeviceFault::Phase phase) {
  const int rank = launcher.rank();
  const Transfer& own = transfers[static_cast<std::size_t>(rank)];
  const std::size_t kept = own.in == own.out ? 0 : own.sent;
  if (launcher.size() == 1) {
    if (kept != 0) launcher.copy(own.out, own.in, kept, Lane::caller);
    return;
  }
  const auto peers = static_cast<unsigned>(launcher.size() - 1);
  const unsigned blocks = launcher.shape().blocks;
  ChannelLaunch launch(launcher, phase);
  ChannelParams& params = launch.params;
  params.in = own.in;
  params.out = own.out;
  params.bytes = kept;
  const auto cut = [&](std::size_t bytes) {
    if (bytes <= kMaxLLBytes) return MessageShape{.route = Route::ll};
    if (bytes <= max_packed_bytes(peers + 1)) return MessageShape{.route = Route::ll_packed};
    return launch.cut(bytes, blocks / (2 * peers) * kChannelWarps);
  };
  bool has_rings = false;
  std::size_t packets = 0;
  const auto count = [&](std::size_t bytes, Route route) {
    has_rings = has_rings || route == Route::ring;
    if (route == Route::ll_packed) packets = std::max(packets, ceil_div(bytes, kPackedDataBytes) * kWarp);
    if (route == Route::ll) packets = std::max(packets, ceil_div(bytes, 8));
  };
  for (int r = 0; r < launcher.size(); ++r) {
    if (r == rank) continue;
    const Transfer& transfer = transfers[static_cast<std::size_t>(r)];
    launch.send(r, transfer.in, transfer.sent, cut(transfer.sent));
    launch.receive(r, transfer.out, transfer.received, transfer.type, cut(transfer.received));
    count(transfer.sent, cut(transfer.sent).route);
    count(transfer.received, cut(transfer.received).route);
  }
  if (!has_rings && packets == 0 && kept == 0) return;

  if (has_rings) {
    const std::size_t most_packets = std::size_t{std::max(1u, blocks / (2 * peers))} * kMostThreads;
    const LaunchShape shape = launch.shape_rows(ring_warps(launcher.size()), std::min(packets, most_packets));
    return launch_exchange(launcher, shape, params);
  }
  const unsigned row_blocks = std::max(1u, blocks / peers);
  packets = std::max({packets, ceil_div(kept, 16), std::size_t{1}});
  const std::size_t share = ceil_div(packets, packets <= kOneBlock ? 1 : row_blocks);
  const std::size_t least = packets <= kOneBlock ? kWarp : kFewThreads;
  const std::size_t block = std::clamp(ceil_div(share, kWarp) * kWarp, least, kMostThreads);
  params.early = block <= kEarlyThreads;
  params.senders = peers;
  launch_exchange(launcher,
                  {.grid = static_cast<unsigned>(std::min<std::size_t>(row_blocks, ceil_div(packets, block))),
                   .rows = peers + 1,
                   .block = static_cast<unsigned>(block),
                   .lets_next_start = params.early},
                  params);
}

}  // namespace onehop::cuda
