// SPDX-License-Identifier: Apache-2.0
// Channels and tiles, through which a user's kernels exchange data (onehop/device/channel.cuh, tile.cuh).
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "base/numeric.h"
#include "gpu/channel_kernels.h"
#include "gpu/on_gpus.h"

ONEHOP_DEVICE_CODE(channel_kernels);

namespace onehop::testing::gpu_channels_test {
namespace {

constexpr std::size_t kBytes = 64 << 10;
constexpr std::uint32_t kWords = kBytes / 4;

/// Loads all kernels of channel_kernels.cu for the GPU, before any peer's kernel waits.
CUfunction load(const Gpu& gpu, const char* name) {
  static auto& module = *new CudaModule(onehop_code_channel_kernels);
  return module.function(gpu.device(), name);
}

template <class Params>
void launch(const Gpu& gpu, const char* name, unsigned blocks, unsigned threads, const Params& params) {
  const CurrentDevice current(gpu.device());
  launch_kernel(cuda_driver(), load(gpu, name),
                {.grid = blocks, .block = threads, .stream = static_cast<CUstream>(gpu.stream().handle)},
                params, name);
}

/// Two LLChannels and one LamportChannel in one buffer, and the words that kernels count in.
class Channels {
 public:
  Channels(Group& group, Gpu& gpu, Duration timeout = std::chrono::seconds{10})
      : gpu_(gpu),
        buffer_(
            group.allocate(kAhead + 2 * packets_bytes(group) + LamportChannel::bytes(group.size(), kBytes))),
        counts_(gpu.make<std::uint32_t>(3)) {
    const DeviceView view = buffer_.device_view(timeout);
    for (std::size_t i = 0; i < 2; ++i)
      packets_[i] = LLChannel::make(view, kAhead + i * packets_bytes(group), kBytes);
    lamport_ = LamportChannel::make(view, kAhead + 2 * packets_bytes(group), kBytes);
    (void)load(gpu, "exchange_packets");
    group.barrier();
  }

  /// Changes the data of exchanges that are queued, or replayed from graphs, from here on.
  void next_round() { gpu_.fill(counts_ + 2, ++round_, 1); }
  void exchange_packets(std::size_t channel, const ExchangeParams& params, unsigned blocks = 4) const {
    ExchangeParams filled = with_counts(params);
    filled.packets = packets_[channel];
    launch(gpu_, "exchange_packets", blocks, 256, filled);
  }
  void exchange_lamport(const ExchangeParams& params, unsigned blocks = 4) const {
    ExchangeParams filled = with_counts(params);
    filled.lamport = lamport_;
    launch(gpu_, "exchange_lamport", blocks, 256, filled);
  }
  /// Sets the count as if this many kernels had used the channel.
  void set_uses(std::size_t channel, std::uint64_t uses) const {
    gpu_.write(&packets_[channel].slots.uses->shares, std::vector{uses * EpochCounter::kPerKernel});
  }

  [[nodiscard]] std::uint32_t wrong() const { return gpu_.read(counts_, 1)[0]; }
  [[nodiscard]] std::uint32_t gave_up() const { return gpu_.read(counts_ + 1, 1)[0]; }

 private:
  static constexpr std::size_t kAhead = 48;  // a channel need not begin a buffer

  static std::size_t packets_bytes(const Group& group) { return LLChannel::bytes(group.size(), kBytes); }
  [[nodiscard]] ExchangeParams with_counts(ExchangeParams params) const {
    params.wrong = counts_;
    params.gave_up = counts_ + 1;
    params.round = counts_ + 2;
    return params;
  }

  Gpu& gpu_;
  SymmetricBuffer buffer_;
  std::uint32_t* counts_;
  LLChannel packets_[2];
  LamportChannel lamport_;
  std::uint32_t round_ = 0;
};

class CudaChannels : public OnGpus {};
INSTANTIATE_TEST_SUITE_P(, CudaChannels, all_gpu_ranks(), gpu_ranks_name);

/// Runs exchanges of many shapes, alternating longer and shorter ones.
template <class Exchange>
void exchange_shapes(Group& group, Gpu& gpu, Channels& channels, const Exchange& exchange) {
  for (const unsigned blocks : {1u, 7u}) {
    for (const std::uint32_t width : {1u, 2u, 4u}) {
      for (const bool together : {false, true}) {
        for (const std::uint32_t words : {4u, 4099u, 1u, kWords, 7u, 1030u}) {
          for (int i = 0; i < 5; ++i) {
            channels.next_round();
            exchange({.words = words, .width = width, .together = together}, blocks);
          }
        }
      }
    }
    group.synchronize(gpu.stream());
  }
  EXPECT_EQ(channels.wrong(), 0u);
  EXPECT_EQ(channels.gave_up(), 0u);
  group.barrier();
}

TEST_P(CudaChannels, PacketsKeepEveryBit) {
  run([](Group& group, Gpu& gpu) {
    Channels channels(group, gpu);
    exchange_shapes(group, gpu, channels, [&](const ExchangeParams& params, unsigned blocks) {
      channels.exchange_packets(0, params, blocks);
    });
  });
}

TEST_P(CudaChannels, LamportBuffersKeepEveryBitButThoseOfOneNan) {
  run([](Group& group, Gpu& gpu) {
    Channels channels(group, gpu);
    exchange_shapes(group, gpu, channels, [&](const ExchangeParams& params, unsigned blocks) {
      channels.exchange_lamport(params, blocks);
    });
  });
}

TEST_P(CudaChannels, GraphsAndEagerCallsTakeTurnsOnSeveralChannels) {
  run([](Group& group, Gpu& gpu) {
    Channels channels(group, gpu);
    const Graph graph(gpu, [&] {
      channels.exchange_packets(0, {.words = 1000, .width = 2, .together = true, .salt = 1});
      channels.exchange_lamport({.words = 5000, .width = 4, .salt = 2});
      channels.exchange_packets(1, {.words = 37, .salt = 3});
      channels.exchange_packets(0, {.words = kWords, .width = 4, .salt = 4});
      channels.exchange_lamport({.words = 3, .together = true, .salt = 5});
    });
    for (std::uint32_t i = 0; i < 400; ++i) {
      channels.next_round();
      graph.launch();
      if (i % 3 == 0) channels.exchange_packets(0, {.words = 1 + i * 97 % kWords, .width = 4, .salt = 6});
      if (i % 5 == 0)
        channels.exchange_lamport({.words = 1 + i * 61 % kWords, .width = 2, .together = true, .salt = 7});
      if (i % 100 == 99) group.synchronize(gpu.stream());
    }
    group.synchronize(gpu.stream());
    EXPECT_EQ(channels.wrong(), 0u);
    EXPECT_EQ(channels.gave_up(), 0u);
    group.barrier();
  });
}

TEST_P(CudaChannels, NumbersOfUsesComeRoundWithoutOldPacketsPassingForNewOnes) {
  run([](Group& group, Gpu& gpu) {
    Channels channels(group, gpu);
    const UserKernels kernels(gpu);
    const auto exchange = [&](std::uint32_t words, int times) {
      for (int i = 0; i < times; ++i) {
        channels.next_round();
        channels.exchange_packets(0, {.words = words, .width = 4});
      }
      group.synchronize(gpu.stream());
      group.barrier();
    };
    const auto skip_to = [&](std::uint64_t uses) {
      channels.set_uses(0, uses);
      group.barrier();
    };
    exchange(kWords, 2);  // leaves uses 1 and 2 in all words
    constexpr std::uint64_t kPeriod = 1u << 30;
    for (std::uint64_t quarter = 1; quarter <= 3; ++quarter) {
      skip_to(quarter * kPeriod - 3);
      exchange(40, 6);
    }
    skip_to(4 * kPeriod - 3);
    exchange(40, 3);
    // Now the flags are 1 and 2 again. A rank that is early finds the old words.
    for (int i = 0; i < 2; ++i) {
      if (group.rank().value != 0) kernels.delay(std::chrono::milliseconds{20});
      exchange(kWords, 1);
    }
    EXPECT_EQ(channels.wrong(), 0u);
    EXPECT_EQ(channels.gave_up(), 0u);
  });
}

TEST_P(CudaChannels, ARankThatDoesNotComeEndsTheWaitsAndTheHostHears) {
  run([](Group& group, Gpu& gpu) {
    Channels channels(group, gpu, std::chrono::milliseconds{200});
    const Rank absent{group.size() - 1};
    if (group.rank() != absent) {
      channels.next_round();
      channels.exchange_packets(0, {.words = 1000, .width = 4, .together = true});
      channels.exchange_packets(1, {.words = 1000});
      channels.exchange_lamport({.words = 1000});
      gpu.wait();
      EXPECT_GT(channels.gave_up(), 3u);
    }
    try {
      // The absent rank hears of the failure from the others, after a while.
      for (int i = 0; i < 1000; ++i) {
        group.synchronize(gpu.stream());
        std::this_thread::sleep_for(std::chrono::milliseconds{10});
      }
      ADD_FAILURE() << "rank " << group.rank().value << " never heard of it";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::timeout) << error.what();
      EXPECT_EQ(error.origin(), absent) << error.what();
    }
    gpu.synchronize_device();
  });
}

TEST_P(CudaChannels, TilesComeWithTheirSignals) {
  run([](Group& group, Gpu& gpu) {
    constexpr unsigned kBlocks = SymmetricBuffer::kDefaultChannels / 2;
    constexpr std::uint32_t kMost = 40'000;
    const SymmetricBuffer buffer = group.allocate(std::size_t{2} * kBlocks * kMost);
    auto* const counts = gpu.make<std::uint32_t>(2);
    (void)load(gpu, "pass_tiles");
    group.barrier();
    for (const unsigned threads : {32u, 96u, 512u}) {
      for (const std::uint32_t bytes : {16u, 4000u, kMost}) {
        launch(gpu, "pass_tiles", kBlocks, threads,
               TileParams{.view = buffer.device_view(std::chrono::seconds{10}),
                          .bytes = bytes,
                          .rounds = 50,
                          .wrong = counts,
                          .gave_up = counts + 1});
        buffer.barrier(gpu.stream());
      }
    }
    group.synchronize(gpu.stream());
    EXPECT_THAT(gpu.read(counts, 2), ::testing::Each(0u));
    group.barrier();
  });
}

/// Two 16-bit elements or one 32-bit element, finite, with finite sums.
std::uint32_t elements_of(int rank, std::uint32_t i) {
  std::uint32_t z = i * 2654435761u + static_cast<std::uint32_t>(rank + 1) * 0x9e3779b9u;
  z = (z ^ z >> 15) * 0x846ca68bu;
  return (z ^ z >> 16) & 0xbfffbfff;
}

TEST_P(CudaChannels, TilesAreAddedUpInTheOrderOfRanks) {
  run([](Group& group, Gpu& gpu) {
    constexpr unsigned kBlocks = 5;
    constexpr std::uint32_t kTile = 3 * 1024 + 16;
    constexpr std::uint32_t kTileWords = kBlocks * kTile / 4;
    constexpr std::uint32_t kOffset = 160;
    const SymmetricBuffer buffer = group.allocate(kOffset + kBlocks * kTile);
    auto* const sums = gpu.make<float>(2 * kTileWords);
    auto* const rounded = gpu.make<std::uint32_t>(kTileWords);
    auto* const gave_up = gpu.make<std::uint32_t>(1);
    std::vector<std::uint32_t> own(kTileWords);
    for (std::uint32_t i = 0; i < kTileWords; ++i) own[i] = elements_of(group.rank().value, i);
    gpu.upload(buffer.local() + kOffset, own.data(), kBlocks * kTile);
    (void)load(gpu, "reduce_f32");
    group.barrier();
    struct Kind {
      const char* kernel;
      const FloatFormat* format;  ///< nullptr: f32
    };
    for (const Kind kind :
         {Kind{"reduce_f32", nullptr}, Kind{"reduce_f16", &kF16}, Kind{"reduce_bf16", &kBF16}}) {
      launch(gpu, kind.kernel, kBlocks, 96,
             ReduceParams{.view = buffer.device_view(std::chrono::seconds{10}),
                          .offset = kOffset,
                          .bytes = kTile,
                          .sums = sums,
                          .rounded = reinterpret_cast<std::byte*>(rounded),
                          .gave_up = gave_up});
      group.synchronize(gpu.stream());
      EXPECT_EQ(gpu.read(gave_up, 1)[0], 0u);
      const std::uint32_t per_word = kind.format == nullptr ? 1 : 2;
      const std::vector<float> got = gpu.read(sums, std::size_t{per_word} * kTileWords);
      const std::vector<std::uint32_t> words = gpu.read(rounded, kTileWords);
      for (std::uint32_t i = 0; i < got.size(); ++i) {
        const std::uint32_t shift = i % per_word * 16;
        float sum = 0;
        for (int r = 0; r < group.size(); ++r) {
          const std::uint32_t word = elements_of(r, i / per_word);
          const float part = kind.format == nullptr ? std::bit_cast<float>(word)
                                                    : decode(*kind.format, word >> shift & 0xffff);
          sum = r == 0 ? part : sum + part;
        }
        ASSERT_EQ(std::bit_cast<std::uint32_t>(got[i]), std::bit_cast<std::uint32_t>(sum))
            << kind.kernel << " element " << i;
        const std::uint32_t wanted =
            kind.format == nullptr ? std::bit_cast<std::uint32_t>(sum) : encode(*kind.format, sum);
        ASSERT_EQ(kind.format == nullptr ? words[i] : words[i / 2] >> shift & 0xffff, wanted)
            << kind.kernel << " element " << i;
      }
    }
    group.barrier();
  });
}

}  // namespace
}  // namespace onehop::testing::gpu_channels_test
