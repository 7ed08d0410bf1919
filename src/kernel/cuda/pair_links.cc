// SPDX-License-Identifier: Apache-2.0
#include "kernel/cuda/pair_links.h"

#include <algorithm>
#include <bit>
#include <cstdint>

#include "driver/module.h"

ONEHOP_DEVICE_CODE(pairs);

namespace onehop {
namespace {

CudaModule& pairs_module() {
  static auto& module = *new CudaModule(onehop_code_pairs);
  return module;
}

constexpr std::size_t kWarp = 32;
constexpr std::size_t kFewThreads = 64;     // few threads start sooner and spread over more multiprocessors
constexpr std::size_t kOneBlock = 128;      // up to this many packets use one block
constexpr std::size_t kEarlyThreads = 256;  // largest launch beside which the next one may start (call.cuh)
constexpr std::size_t kMostThreads = cuda::kPairWarps * kWarp;

/// Warps per block with streams. With 2 ranks, few large blocks are faster. With more ranks, more small
/// blocks are faster, because they spread evenly over the multiprocessors (bench/results/gpu-kernels.md).
constexpr unsigned stream_warps(int ranks) {
  return ranks == 2 ? cuda::kPairWarps : 4;
}

/// Maximum number of warps that share a stream. With 4 ranks, 1, 2 and 4 such warps reduce 256 MB in 979, 883
/// and 838 us (bench/results/gpu-kernels.md).
constexpr unsigned kMostParts = 4;

constexpr std::size_t ceil_div(std::size_t a, std::size_t b) {
  return (a + b - 1) / b;
}

/// The pieces of a message, one for every rank but the root.
class Pieces {
 public:
  Pieces(int ranks, Rank root, std::size_t bytes)
      : ranks_(ranks),
        root_(root.value),
        total_(bytes),
        piece_(ceil_div(ceil_div(bytes, static_cast<std::size_t>(ranks) - 1), 16) * 16) {}

  [[nodiscard]] std::size_t begin(int r) const {
    return std::min(total_, static_cast<std::size_t>((r - root_ - 1 + ranks_) % ranks_) * piece_);
  }
  [[nodiscard]] std::size_t bytes(int r) const { return std::min(piece_, total_ - begin(r)); }

 private:
  int ranks_;
  int root_;
  std::size_t total_;
  std::size_t piece_;
};

}  // namespace

PairLinks::PairLinks(const CudaDriver& driver, DeviceId device, int rank,
                     const std::vector<std::byte*>& segments, const cuda::SegmentLayout& layout, int blocks,
                     bool dependent)
    : driver_(driver),
      rank_(rank),
      segments_(segments),
      layout_(layout),
      blocks_(static_cast<unsigned>(blocks)),
      dependent_(dependent),
      exchange_(pairs_module().function(device, "exchange")),
      relay_(pairs_module().function(device, "relay")) {}

void PairLinks::exchange(const Transfers& transfers, DeviceFault::Phase phase, const DeviceGuard& guard,
                         CUstream queue) {
  if (size() == 1) {
    const Transfer& own = transfers[0];
    if (own.in == own.out || own.sent == 0) return;
    return check_cuda(driver_.MemcpyDtoDAsync(reinterpret_cast<CUdeviceptr>(own.out),
                                              reinterpret_cast<CUdeviceptr>(own.in), own.sent, queue),
                      "cuMemcpyDtoDAsync");
  }
  Params params = this->params(phase, guard);
  const auto peers = static_cast<unsigned>(size() - 1);
  const auto cut = [&](std::size_t bytes) {
    if (bytes <= cuda::kPairPacketBytes) return cuda::PairShape{};
    if (bytes <= cuda::pair_bundle_bytes(layout_.ranks)) return cuda::PairShape{.bundles = true};
    return chunks(bytes, blocks_ / (2 * peers) * cuda::kPairWarps);
  };
  std::size_t streams = 0;
  std::size_t packets = 0;  // or bundles
  const auto count = [&](const cuda::PairEnd& end) {
    streams = std::max<std::size_t>(streams, end.shape.streams);
    if (end.shape.bundles) {
      packets = std::max(packets, ceil_div(end.bytes, cuda::kBundlesDataBytes) * kWarp);
    } else if (end.shape.streams == 0) {
      packets = std::max(packets, ceil_div(end.bytes, 8));
    }
  };
  for (int r = 0; r < size(); ++r) {
    const Transfer& transfer = transfers[static_cast<std::size_t>(r)];
    if (r == rank_) {
      params.in = transfer.in;
      params.out = transfer.out;
      params.bytes = transfer.in == transfer.out ? 0 : transfer.sent;
      continue;
    }
    send(params, r, transfer.in, transfer.sent, cut(transfer.sent));
    receive(params, r, transfer.out, transfer.received, cut(transfer.received));
    count(params.pairs[entry(rank_, r)].to);
    count(params.pairs[entry(rank_, r)].from);
  }
  if (streams == 0 && packets == 0 && params.bytes == 0) return;

  if (streams != 0) {
    const std::size_t most_packets = std::size_t{std::max(1u, blocks_ / (2 * peers))} * kMostThreads;
    return launch_rows(exchange_, stream_warps(size()), std::min(packets, most_packets), params, queue,
                       "launching exchange");
  }
  const unsigned row_blocks = std::max(1u, blocks_ / peers);
  packets = std::max({packets, ceil_div(params.bytes, 16), std::size_t{1}});
  const std::size_t share = ceil_div(packets, packets <= kOneBlock ? 1 : row_blocks);
  const std::size_t least = packets <= kOneBlock ? kWarp : kFewThreads;
  const std::size_t block = std::clamp(ceil_div(share, kWarp) * kWarp, least, kMostThreads);
  params.early = block <= kEarlyThreads;
  params.senders = peers;
  launch_kernel(driver_, exchange_,
                {.grid = static_cast<unsigned>(std::min<std::size_t>(row_blocks, ceil_div(packets, block))),
                 .rows = peers + 1,
                 .block = static_cast<unsigned>(block),
                 .stream = queue,
                 .dependent = dependent_},
                params, "launching exchange");
}

void PairLinks::broadcast(const CollectiveCall& call, const DeviceGuard& guard, CUstream queue) {
  const int root = call.root.value;
  const std::size_t bytes = call.block_bytes();
  Params params = this->params(DeviceFault::broadcast, guard);
  const Pieces pieces(size(), call.root, bytes);
  const auto cut = [&](int r) {
    return chunks(pieces.bytes(r), blocks_ * cuda::kPairWarps / static_cast<unsigned>(size() - 1));
  };
  for (int r = 0; r < size(); ++r) {
    if (r == root || r == rank_) continue;
    if (rank_ == root) {
      send(params, r, call.in + pieces.begin(r), pieces.bytes(r), cut(r));
    } else {
      send(params, r, nullptr, pieces.bytes(rank_), cut(rank_));  // relayed data
      receive(params, r, call.out + pieces.begin(r), pieces.bytes(r), cut(r));
    }
  }
  if (rank_ == root) {
    params.in = call.in;
    params.out = call.out;
    params.bytes = call.in == call.out ? 0 : bytes;
  } else {
    receive(params, root, nullptr, pieces.bytes(rank_), cut(rank_));
    params.root = static_cast<int>(entry(rank_, root));
    params.out = call.out + pieces.begin(rank_);
    params.bytes = pieces.bytes(rank_);
    params.own_shape = cut(rank_);
    share_streams(params, cuda::kPairWarps, size() - 2);
  }
  launch_rows(relay_, stream_warps(size()), 0, params, queue, "launching relay");
}

void PairLinks::reduce_scatter(const CollectiveCall& call, CUfunction combine, const DeviceGuard& guard,
                               CUstream queue) {
  const std::size_t bytes = call.block_bytes();
  Params params = this->params(DeviceFault::reduce_scatter, guard);
  const unsigned warps = combine_warps(call);
  const cuda::PairShape shape = chunks(bytes, blocks_ * warps / static_cast<unsigned>(size()));
  const auto block = [&](int r) { return call.in + static_cast<std::size_t>(r) * bytes; };
  for (int r = 0; r < size(); ++r) {
    if (r == rank_) continue;
    send(params, r, block(r), bytes, shape);
    receive(params, r, nullptr, bytes, shape);
  }
  params.scale = call.scale();
  params.in = block(rank_);
  params.out = call.out;
  params.bytes = bytes;
  params.own_shape = shape;
  share_streams(params, warps, size() - 1);
  launch_combine(combine, warps, params, queue, "launching reduce_scatter");
}

void PairLinks::reduce(const CollectiveCall& call, bool two_shot, CUfunction combine,
                       const DeviceGuard& guard, CUstream queue) {
  const Rank root = call.root;
  const std::size_t bytes = call.block_bytes();
  Params params = this->params(DeviceFault::reduce, guard);
  params.scale = call.scale();
  const unsigned warps = combine_warps(call);
  if (!two_shot) {
    const cuda::PairShape shape = chunks(bytes, blocks_ * warps / static_cast<unsigned>(size()));
    if (rank_ == root.value) {
      for (int r = 0; r < size(); ++r) {
        if (r != rank_) receive(params, r, nullptr, bytes, shape);
      }
      params.in = call.in;
      params.out = call.out;
      params.bytes = bytes;
      params.own_shape = shape;
      share_streams(params, warps, 0);
    } else {
      send(params, root.value, call.in, bytes, shape);
    }
    return launch_combine(combine, warps, params, queue, "launching reduce");
  }

  const Pieces pieces(size(), root, bytes);
  const auto cut = [&](int r) {
    return chunks(pieces.bytes(r), blocks_ * warps / static_cast<unsigned>(2 * (size() - 1)));
  };
  for (int r = 0; r < size(); ++r) {
    if (r == rank_) continue;
    if (r == root.value) {
      send(params, r, nullptr, pieces.bytes(rank_), cut(rank_));  // combined data
      receive(params, r, nullptr, pieces.bytes(rank_), cut(rank_));
    } else {
      send(params, r, call.in + pieces.begin(r), pieces.bytes(r), cut(r));
      if (rank_ == root.value) {
        receive(params, r, call.out + pieces.begin(r), pieces.bytes(r), cut(r));
      } else {
        receive(params, r, nullptr, pieces.bytes(rank_), cut(rank_));
      }
    }
  }
  if (rank_ != root.value) {
    params.root = static_cast<int>(entry(rank_, root.value));
    params.in = call.in + pieces.begin(rank_);
    params.bytes = pieces.bytes(rank_);
    params.own_shape = cut(rank_);
    share_streams(params, warps, size() - 2);
  }
  launch_combine(combine, warps, params, queue, "launching reduce");
}

PairLinks::Params PairLinks::params(DeviceFault::Phase phase, const DeviceGuard& guard) const {
  Params params;
  params.rank = rank_;
  params.size = size();
  params.slot = static_cast<std::uint32_t>(layout_.pair_slot);
  params.packet_parity = layout_.pair_packets().parity;
  params.bundle_parity = layout_.pair_bundles().parity;
  params.phase = phase;
  params.guard = guard;
  for (int r = 0; r < size(); ++r) {
    if (r == rank_) continue;
    Params::Pair& pair = params.pairs[entry(rank_, r)];
    pair.to = link(rank_, r);
    pair.from = link(r, rank_);
    pair.arrivals = &head(rank_)->arrivals[entry(rank_, r)];
  }
  return params;
}

cuda::PairEnd PairLinks::link(int from, int to) const {
  const std::size_t at_sender = entry(from, to);
  const std::size_t at_receiver = entry(to, from);
  const std::size_t streams = cuda::pair_streams(layout_.ranks);
  cuda::PairHead& sender = *head(from);
  cuda::PairHead& receiver = *head(to);
  cuda::PairEnd end;
  end.packets = at(to, layout_.pair_packets().begin + at_receiver * layout_.pair_packets().rank);
  end.bundles = at(to, layout_.pair_bundles().begin + at_receiver * layout_.pair_bundles().rank);
  end.slots = at(to, layout_.pair_rings().begin + at_receiver * layout_.pair_rings().rank);
  end.chunks_ready = receiver.chunks_ready + at_receiver * streams;
  end.taken = sender.taken + at_sender;
  end.chunks_taken = sender.chunks_taken + at_sender * streams;
  end.messages = from == rank_ ? sender.sent + at_sender : receiver.received + at_receiver;
  end.chunks = (from == rank_ ? sender.chunks_sent + at_sender * streams
                              : receiver.chunks_received + at_receiver * streams);
  return end;
}

void PairLinks::send(Params& params, int peer, const std::byte* data, std::size_t bytes,
                     cuda::PairShape shape) const {
  cuda::PairEnd& end = params.pairs[entry(rank_, peer)].to;
  end.data = const_cast<std::byte*>(data);  // one type serves both directions
  end.bytes = bytes;
  end.shape = shape;
}

void PairLinks::receive(Params& params, int peer, std::byte* data, std::size_t bytes,
                        cuda::PairShape shape) const {
  cuda::PairEnd& end = params.pairs[entry(rank_, peer)].from;
  end.data = data;
  end.bytes = bytes;
  end.shape = shape;
}

cuda::PairShape PairLinks::chunks(std::size_t bytes, unsigned most) const {
  return cuda::cut_into_chunks(bytes, layout_.pair_slot,
                               std::clamp(most, 1u, cuda::pair_streams(layout_.ranks)));
}

void PairLinks::share_streams(Params& params, unsigned warps, int rows) const {
  const cuda::PairShape& shape = params.own_shape;
  // Data that fits the ring is not delayed by it. Sharing would then cost more in barriers than it saves.
  if (params.bytes <= std::size_t{cuda::kPairDepth} * shape.streams * shape.chunk) return;
  const auto others = static_cast<unsigned>(rows);
  const unsigned room = blocks_ * warps / shape.streams;
  params.parts = std::bit_floor(std::clamp(room > others ? room - others : 1u, 1u, kMostParts));
}

unsigned PairLinks::combine_warps(const CollectiveCall& call) const {
  return static_cast<unsigned>(cuda::max_threads(cuda::kernel_ranks(size(), call.op == ReduceOp::sum))) / 32;
}

void PairLinks::launch_combine(CUfunction combine, unsigned warps, Params& params, CUstream queue,
                               const char* what) {
  // With more than 2 ranks blocks are smaller, as in stream_warps(), but not as small as there.
  launch_rows(combine, size() == 2 ? warps : std::min(warps, 2 * stream_warps(size())), 0, params, queue,
              what);
}

void PairLinks::launch_rows(CUfunction kernel, unsigned warps, std::size_t packets, Params& params,
                            CUstream queue, const char* what) {
  std::size_t streams = std::max(params.own_shape.streams, std::uint32_t{1});
  bool sends = packets != 0;
  bool receives = false;
  for (const Params::Pair& pair : params.pairs) {
    streams = std::max<std::size_t>({streams, pair.to.shape.streams, pair.from.shape.streams});
    // Rows of the relaying or combining kernels send or take what has no `data`.
    sends = sends || (pair.to.shape.streams != 0 && pair.to.data != nullptr);
    receives = receives || (pair.from.shape.streams != 0 && pair.from.data != nullptr);
  }
  const auto peers = static_cast<unsigned>(size() - 1);
  params.senders = sends ? peers : 0;
  params.receivers = receives ? peers : 0;
  const unsigned rows = params.senders + params.receivers + (params.bytes != 0 ? params.parts : 0);
  const std::size_t block = warps * kWarp;
  // With a grid of 64 large blocks, each block has one of each pair of multiprocessors to itself. A grid with
  // more blocks, even idle ones, fills pairs first. Senders are then faster by 4%
  // (bench/results/gpu-kernels.md). So the grid has at least two rows.
  launch_kernel(driver_, kernel,
                {.grid = static_cast<unsigned>(std::max(ceil_div(streams, warps), ceil_div(packets, block))),
                 .rows = std::max(2u, rows),
                 .block = static_cast<unsigned>(block),
                 .stream = queue,
                 .dependent = dependent_},
                params, what);
}

}  // namespace onehop
