// SPDX-License-Identifier: Apache-2.0
// The algorithms of GPUs, and when each is chosen. A new algorithm needs its folder, which CMake finds, and here its entry
// in kAlgorithms and its rows.
#include <algorithm>
#include <array>

#include "backend/cuda/algorithms/copy_engine/copy_engine.h"
#include "backend/cuda/algorithms/point_to_point/channel_launch.h"
#include "backend/cuda/algorithms/push/push_algorithms.h"
#include "backend/cuda/algorithms/reduce_from_peers/reduce_from_peers.h"
#include "backend/cuda/algorithms/scatter_all_gather/scatter_all_gather.h"
#include "backend/cuda/algorithms/streaming/streaming.h"

namespace onehop::cuda {
namespace {

/// Of the algorithms for the same calls, those for longer messages come later (Selector::select).
constexpr std::array kAlgorithms{&kLLOneShot,
                                 &kLamportOneShot,
                                 &kLamportTwoShotByPeer,
                                 &kLamportTwoShot,
                                 &kStreamingOneShot,
                                 &kStreamingTwoShot,
                                 &kCopyEngineTwoShot,
                                 &kPointToPoint,
                                 &kStreamingExchange,
                                 &kStreamingOneWay,
                                 &kScatterAllGather,
                                 &kCopyEngine,
                                 &kReduceFromPeers,
                                 &kAlone};

/// How a limit changes with the number of ranks.
enum class Scaling : std::uint8_t {
  fixed,
  sent,   ///< the limit is one of the bytes that a rank sends: n - 1 times the message
  piece,  ///< the limit is one of the bytes per rank: the n-th part of the message
};

struct Row {
  CollectiveSet collectives;
  TypeClass types;
  Buffers buffers;
  std::uint64_t up_to;
  const DeviceAlgorithm* algorithm;
  Scaling scaling = Scaling::fixed;
};

using enum Collective;
/// Collectives that move blocks, and have the same limits: between every pair, and to or from the root.
constexpr CollectiveSet kExchanges{all_gather, all_to_all};
constexpr CollectiveSet kRootMoves{gather, scatter};
constexpr CollectiveSet kFromOrToRoot{broadcast, gather, scatter};
constexpr auto kFloats = TypeClass::floats;
constexpr auto kAny = TypeClass::any;
constexpr auto kSymmetric = Buffers::symmetric;
constexpr auto kAnyBuffers = Buffers::any;
constexpr std::uint64_t kKiB = 1 << 10;
constexpr std::uint64_t kMiB = 1 << 20;

// Measured on H200s with NVSwitch, graph replays, bf16 (bench/results/gpu-kernels.md).
//
// One-shot sends n - 1 bytes per byte in one trip, two-shot 2 (n - 1) / n in two trips. With 4 ranks, one-shot
// takes 4.3 us and two-shot 4.5 us at 256 KB, 6.6 and 5.4 us at 512 KB. With 2 ranks, where both move the same
// bytes, it is 7.8 and 8.9 us at 2 MB.
//
// LL packets are faster than Lamport buffers, which must be cleared, as long as doubling the bytes costs
// little. With 4 ranks, they take 1.94 and 2.01 us at 4 KB, 2.15 and 2.16 us at 16 KB, 3.1 and 2.6 us at 64 KB.
//
// Lamport two-shot sends a whole message before it waits for anything. With 4 ranks, sending to one peer after the other
// and to all at a time take 7.1 and 7.8 us at 1 MB, 12.3 and 12.5 us at 2 MB, 22.7 and 21.6 us at 4 MB. The stream
// reduces while it sends: on H100s, it and Lamport two-shot take 39.9 and 39.5 us at 8 MB, 77.3 and 78.9 us at 16 MB
// (bench/results/gpu-streaming-h100x4.md).
//
// Integers have LL packets, which send twice the data, and the stream. With 2 ranks they take 1.99 and 2.02 us at 64 KB, 2.17
// and 2.14 at 96 KB. With 4, LL packets and the stream take 5.1 and 6.2 us at 192 KB, 6.26 and 6.34 at 256 KB, 12.5 and 7.5 at
// 512 KB; in a reduce 5.1 and 5.9, 6.26 and 6.04, 12.5 and 7.1 (bench/results/gpu-streaming-h200x4.md).
//
// With 2 ranks, one-shot moves no more bytes than two-shot, so all-reduces stream in one trip. Lamport one-shot and the
// stream take 3.28 and 3.30 us at 512 KB, 4.77 and 4.77 at 1 MB, and on H100s 8.6 and 8.15 us at 2 MB
// (bench/results/gpu-streaming-h100x2.md). Reduce-scatters, all-gathers and all-to-alls stream at every size: 1.5 us for 1 KB,
// 25.8 for 16 MB, where LL packets take 1.8, Lamport buffers 30 and rings 32 (bench/results/gpu-kernels.md).
//
// Between 2 ranks, collectives with a root stream in one direction. A reduce of 1 KB takes 1.40 us and by LL packets 1.38, of 2 KB 1.49 and 1.54,
// of 512 KB 2.4 (Lamport buffers 3.3), and of 256 MB 735 (rings 744). A gather of blocks of 256 KB takes 1.97 us and by packed LL
// 1.92; a broadcast of 512 KB 2.4 and 2.8, of 4 MB 12.3 and 14.9 (bench/results/gpu-kernels.md).
//
// With more ranks every pair streams. That was measured with 4 ranks on 2 GPUs: all-gathers of 4 KB, 1 MB and 64 MB take 2.55,
// 6.0 and 199 us, and through LL packets and rings 2.9, 7.7 and 208.
//
// Copy engines move more bytes per second than kernels do. The barriers and the start of a copy take 17 us more
// than kernels do; every further copy takes 4 us. For each megabyte that a rank sends, copies take 0.35 us less.
// In all-reduces of 4 ranks that was so on H200s only (4246 us for 1 GB); on H100s they take 5529 us, and the stream 4619.
//
// A reduce over LL packets or Lamport buffers, of which only the root keeps the result, waits for no release.
// With 4 ranks 1 MB takes 7.1 us, through rings 15, and by the stream 7.6. The stream and Lamport two-shot take 11.1 and 11.9 us
// at 2 MB, 20.0 and 21.0 us at 4 MB.
constexpr std::array kTwoRanks{
    Row{{all_reduce}, kFloats, kAnyBuffers, 32 * kKiB, &kLLOneShot},
    Row{{all_reduce}, kFloats, kAnyBuffers, kMiB - 1, &kLamportOneShot},
    Row{{all_reduce}, kAny, kAnyBuffers, 64 * kKiB, &kLLOneShot},
    Row{{all_reduce}, kAny, kAnyBuffers, 128 * kMiB - 1, &kStreamingOneShot},
    Row{{all_reduce}, kAny, kSymmetric, kNoLimit, &kCopyEngineTwoShot},
    Row{{all_reduce}, kAny, kAnyBuffers, kNoLimit, &kStreamingOneShot},
    Row{{reduce}, kAny, kAnyBuffers, kKiB, &kLLOneShot},
    Row{{reduce, reduce_scatter}, kAny, kAnyBuffers, kNoLimit, &kStreamingOneShot},
    Row{kExchanges, kAny, kAnyBuffers, 96 * kMiB - 1, &kStreamingExchange},
    Row{kFromOrToRoot, kAny, kAnyBuffers, 256 * kKiB, &kPointToPoint},
    Row{kFromOrToRoot, kAny, kAnyBuffers, 64 * kMiB - 1, &kStreamingOneWay},
    Row{kFromOrToRoot, kAny, kSymmetric, kNoLimit, &kCopyEngine},
    Row{kFromOrToRoot, kAny, kAnyBuffers, kNoLimit, &kStreamingOneWay},
};

/// The last byte count below which copies to 3 peers do not pay off: 64 MiB and 12 MiB for each further peer.
constexpr std::uint64_t kMovedByKernels = (88 * kMiB + 2) / 3 - 1;

constexpr std::array kFourRanks{
    Row{{all_reduce, reduce, reduce_scatter}, kFloats, kAnyBuffers, 16 * kKiB, &kLLOneShot, Scaling::sent},
    Row{{all_reduce, reduce}, kFloats, kAnyBuffers, 256 * kKiB, &kLamportOneShot, Scaling::sent},
    Row{{all_reduce}, kFloats, kAnyBuffers, 2 * kMiB, &kLamportTwoShotByPeer, Scaling::piece},
    Row{{all_reduce}, kFloats, kAnyBuffers, 8 * kMiB, &kLamportTwoShot},
    Row{{reduce}, kFloats, kAnyBuffers, 1536 * kKiB, &kLamportTwoShotByPeer, Scaling::piece},
    Row{{all_reduce, reduce}, kFloats, kAnyBuffers, kNoLimit, &kStreamingTwoShot},
    Row{{all_reduce}, kAny, kAnyBuffers, 256 * kKiB, &kLLOneShot, Scaling::sent},
    Row{{reduce}, kAny, kAnyBuffers, 256 * kKiB - 1, &kLLOneShot, Scaling::sent},
    Row{{all_reduce, reduce}, kAny, kAnyBuffers, kNoLimit, &kStreamingTwoShot},
    Row{{reduce_scatter}, kFloats, kAnyBuffers, 8 * kMiB, &kLamportOneShot},
    Row{{reduce_scatter}, kAny, kAnyBuffers, 256 * kKiB, &kLLOneShot},
    Row{{reduce_scatter}, kAny, kAnyBuffers, kNoLimit, &kReduceFromPeers},
    Row{kExchanges, kAny, kAnyBuffers, kMovedByKernels, &kStreamingExchange, Scaling::sent},
    Row{kRootMoves, kAny, kAnyBuffers, kMovedByKernels, &kPointToPoint, Scaling::sent},
    // Up to this size, sending the whole message from the root to every rank is faster than in pieces.
    Row{{broadcast}, kAny, kAnyBuffers, 455 * kKiB, &kPointToPoint, Scaling::sent},
    Row{{broadcast}, kAny, kAnyBuffers, kNoLimit, &kScatterAllGather},
};

/// The rows that both have, which come after their own.
constexpr std::array kAnyRanks{
    Row{kExchanges, kAny, kSymmetric, kNoLimit, &kCopyEngine},
    Row{kExchanges, kAny, kAnyBuffers, kNoLimit, &kStreamingExchange},
    Row{kRootMoves, kAny, kSymmetric, kNoLimit, &kCopyEngine},
    Row{kRootMoves, kAny, kAnyBuffers, kNoLimit, &kPointToPoint},
};

/// What a link moves per second: NVLink of an H200 390 GB/s, PCIe 5.0 x16 some 50 GB/s. A byte costs 8 times as
/// much on PCIe, a trip about the same. So with PCIe, limits up to which more bytes are sent to save a trip or
/// a barrier are 8 times smaller.
constexpr std::uint64_t kNvlinkPerPcie = 8;

/// Whether the algorithm sends more bytes than another one would.
bool sends_more_bytes(const Row& row, Collective collective, int ranks) {
  if (row.algorithm == &kLLOneShot) return true;
  return row.algorithm == &kLamportOneShot && ranks > 2 && collective != reduce_scatter;
}

/// Rows for 2 and 4 ranks with NVLink were measured, but for exchanges that stream between more than 2. All others are derived
/// from them by Scaling and kNvlinkPerPcie.
bool is_derived(const Row& row, int ranks, Links links) {
  const bool measured = ranks == 2 || (ranks == 4 && row.algorithm != &kStreamingExchange);
  return links != Links::nvlink || !measured;
}

std::uint64_t limit_of(const Row& row, Collective collective, int ranks, Links links) {
  if (row.up_to == kNoLimit) return kNoLimit;
  const auto n = static_cast<std::uint64_t>(ranks);
  std::uint64_t limit = row.up_to;
  if (n > 2 && row.scaling == Scaling::sent) limit = limit * 3 / (n - 1);
  if (n > 2 && row.scaling == Scaling::piece) limit = limit * n / 4;
  if (links == Links::pcie && sends_more_bytes(row, collective, ranks)) limit /= kNvlinkPerPcie;
  return limit;
}

}  // namespace

std::span<const DeviceAlgorithm* const> device_algorithms() {
  return kAlgorithms;
}

std::vector<TuningRow> default_rows(int ranks, Links links) {
  std::vector<TuningRow> rows;
  if (ranks == 1) return rows;
  const auto add = [&](Collective collective, const Row& row) {
    if (!row.collectives.contains(collective)) return;
    const std::uint64_t limit = limit_of(row, collective, ranks, links);
    // A limit that grows with the number of ranks can reach a fixed one, whose row has no calls then.
    const bool hidden = std::ranges::any_of(rows, [&](const TuningRow& earlier) {
      return earlier.collective == collective && earlier.types == row.types &&
             earlier.buffers == row.buffers && earlier.up_to >= limit;
    });
    if (hidden) return;
    rows.push_back({.collective = collective,
                    .backend = Backend::cuda,
                    .ranks = ranks,
                    .types = row.types,
                    .buffers = row.buffers,
                    .up_to = limit,
                    .choice = AlgorithmChoice{.algorithm = std::string(row.algorithm->name)},
                    .derived = is_derived(row, ranks, links)});
  };
  const std::span<const Row> measured = ranks == 2 ? std::span<const Row>(kTwoRanks) : kFourRanks;
  for (int i = 0; i < kCollectiveCount; ++i) {
    for (const Row& row : measured) add(static_cast<Collective>(i), row);
    for (const Row& row : kAnyRanks) add(static_cast<Collective>(i), row);
  }
  return rows;
}

unsigned max_block_threads(int ranks) {
  return static_cast<unsigned>(max_threads(kernel_ranks(ranks, /*sum=*/true)));
}

ScratchLayout::ScratchLayout(const GroupShape& shape) {
  for (const DeviceAlgorithm* const algorithm : kAlgorithms) {
    for (const ScratchRegion* const region : algorithm->scratch) {
      if (std::ranges::find(offsets_, region, &decltype(offsets_)::value_type::first) != offsets_.end())
        continue;
      offsets_.emplace_back(region, bytes_);
      bytes_ += align_scratch(region->bytes(shape));
    }
  }
}

}  // namespace onehop::cuda
