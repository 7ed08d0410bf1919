// SPDX-License-Identifier: Apache-2.0
// The contract of send, recv and their groups (collectives.h, group_call.h). The bytes that were sent arrive
// in the right buffer and in order, and nothing else is written. The ranks may make their calls in any order.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstring>
#include <numeric>
#include <optional>
#include <random>
#include <stdexcept>

#include "backend/host/point_to_point.h"
#include "conformance/suite.h"
#include "support/errors.h"

namespace onehop::testing {
namespace {

using ::testing::HasSubstr;

constexpr std::byte kUntouched{0xa5};
constexpr std::size_t kGuardBytes = 64;

/// A transfer, as both ends know it.
struct Transfer {
  int from = 0;
  int to = 0;
  std::size_t count = 0;
  DType type = DType::u8;

  [[nodiscard]] std::size_t bytes() const { return count * size_of(type); }
};
using Transfers = std::vector<Transfer>;

/// The transfers of one rank: one block of memory for those that it sends and receives.
class RankTransfers {
 public:
  RankTransfers(const Backend& backend, Group& group, const Transfers& transfers)
      : group_(group), transfers_(transfers), memory_(backend.memory(group)) {
    const int me = group.rank().value;
    std::size_t size = 0;
    for (std::size_t i = 0; i < transfers.size(); ++i) {
      offsets_.emplace_back();
      // Aligned to the element and to nothing more.
      const auto reserve = [&](bool concerned) {
        if (!concerned) return std::size_t{0};
        size = (size + kGuardBytes + 63) / 64 * 64 + i % 3 * size_of(transfers[i].type);
        return std::exchange(size, size + transfers[i].bytes());
      };
      offsets_[i].in = reserve(transfers[i].from == me);
      offsets_[i].out = reserve(transfers[i].to == me);
    }
    before_.assign(size + kGuardBytes, kUntouched);
    after_ = before_;
    for (std::size_t i = 0; i < transfers.size(); ++i) {
      if (transfers[i].from == me) write(before_, offsets_[i].in, i);
      if (transfers[i].from == me) write(after_, offsets_[i].in, i);
      if (transfers[i].to == me) write(after_, offsets_[i].out, i);
    }
    data_ = memory_->allocate(before_.size());
    memory_->upload(data_, before_.data(), before_.size());
  }
  ~RankTransfers() { memory_->release(data_); }
  RankTransfers(const RankTransfers&) = delete;
  RankTransfers& operator=(const RankTransfers&) = delete;

  Algorithm send(std::size_t i) {
    const Transfer& transfer = transfers_[i];
    return onehop::send(group_, data_ + offsets_[i].in, transfer.count, transfer.type, Rank{transfer.to},
                        memory_->stream());
  }
  Algorithm recv(std::size_t i) {
    const Transfer& transfer = transfers_[i];
    return onehop::recv(group_, data_ + offsets_[i].out, transfer.count, transfer.type, Rank{transfer.from},
                        memory_->stream());
  }

  /// Makes the calls in a GroupCall: in order, or, with `random`, in an order that preserves only that of
  /// each pair.
  void exchange_all(std::mt19937_64* random = nullptr) {
    struct Step {
      std::size_t transfer;
      bool sends;
    };
    const int me = group_.rank().value;
    std::vector<std::vector<Step>> queues(static_cast<std::size_t>(2 * group_.size()));
    for (std::size_t i = 0; i < transfers_.size(); ++i) {
      const Transfer& transfer = transfers_[i];
      if (transfer.from == me) queues[static_cast<std::size_t>(2 * transfer.to)].push_back({i, true});
      if (transfer.to == me) queues[static_cast<std::size_t>(2 * transfer.from + 1)].push_back({i, false});
    }
    std::vector<std::size_t> turns;  // the queue whose next call is made
    for (std::size_t queue = 0; queue < queues.size(); ++queue)
      turns.insert(turns.end(), queues[queue].size(), queue);
    if (random != nullptr) std::shuffle(turns.begin(), turns.end(), *random);
    std::vector<std::size_t> next(queues.size(), 0);
    GroupCall scope;
    for (const std::size_t queue : turns) {
      const Step step = queues[queue][next[queue]++];
      EXPECT_EQ(step.sends ? send(step.transfer) : recv(step.transfer), Algorithm::none);
    }
    scope.end();
  }

  /// `batch`: the number of this batch, for messages.
  void check(std::size_t batch) {
    group_.synchronize(memory_->stream());
    group_.barrier();  // ranks must not copy or free earlier: the driver may wait for that kernel
    Bytes now(before_.size());
    memory_->download(now.data(), data_, now.size());
    if (now == after_) return;
    const auto differ = std::mismatch(now.begin(), now.end(), after_.begin());
    const auto at = static_cast<std::size_t>(differ.first - now.begin());
    std::string where = "between transfers";
    for (std::size_t i = 0; i < transfers_.size(); ++i) {
      for (const std::size_t offset : {offsets_[i].in, offsets_[i].out}) {
        if (offset != 0 && at >= offset && at < offset + transfers_[i].bytes())
          where = fmt::format("byte {} of transfer {} ({} bytes, {} to {})", at - offset, i,
                              transfers_[i].bytes(), transfers_[i].from, transfers_[i].to);
      }
    }
    throw std::runtime_error(fmt::format(
        "rank {}, batch {} of ONEHOP_TEST_SEED={}: {} is {:#x} instead of {:#x}", group_.rank().value, batch,
        seed(), where, std::to_integer<int>(*differ.first), std::to_integer<int>(*differ.second)));
  }

 private:
  struct Offsets {
    std::size_t in = 0;
    std::size_t out = 0;
  };

  /// Every transfer has bytes of its own.
  void write(Bytes& image, std::size_t offset, std::size_t i) const {
    for (std::size_t at = 0; at < transfers_[i].bytes(); ++at)
      image[offset + at] = static_cast<std::byte>((at * 2654435761U >> 13) + 31 * i + 7);
  }

  Group& group_;
  const Transfers& transfers_;
  std::unique_ptr<RankMemory> memory_;
  std::vector<Offsets> offsets_;
  Bytes before_;
  Bytes after_;
  std::byte* data_ = nullptr;
};

class SendRecv : public CollectiveTest {
 protected:
  /// Runs `body(group, mine, batch)` on every rank of a fresh group for one batch after another, and checks
  /// what was delivered.
  void deliver(const std::vector<Transfers>& batches,
               const std::function<void(Group&, RankTransfers&, std::size_t)>& body) const {
    JoinOptions options;
    options.scratch_bytes = kSmallScratch;
    backend().run(ranks(), options, [&](Group& group) {
      for (std::size_t batch = 0; batch < batches.size(); ++batch) {
        RankTransfers mine(backend(), group, batches[batch]);
        group.barrier();  // ranks that share a GPU may not allocate while another one's kernel waits
        body(group, mine, batch);
        mine.check(batch);
      }
    });
  }
  void deliver(const Transfers& transfers, const std::function<void(Group&, RankTransfers&)>& body) const {
    deliver(std::vector<Transfers>{transfers},
            [&](Group& group, RankTransfers& mine, std::size_t) { body(group, mine); });
  }

  /// Misaligned for any type larger than a byte.
  static void* odd(void* data) { return static_cast<std::byte*>(data) + 1; }

  [[nodiscard]] std::size_t slot() const { return host::PointToPoint::slot_bytes(ranks(), kSmallScratch); }
  /// Sizes in bytes: none, a few, and around chunks and rings.
  [[nodiscard]] std::vector<std::size_t> sizes() const {
    const std::size_t ring = slot() * host::PointToPoint::kSlots;
    return {
        0,        1, 2, 63, 64, 65, slot() - 1, slot(), slot() + 1, ring - 1, ring, ring + 1, 3 * ring + 17,
        10 * ring};
  }
  /// A transfer from every rank to every rank, including itself if `own`.
  [[nodiscard]] Transfers all_pairs(std::size_t bytes, bool own) const {
    Transfers transfers;
    for (int from = 0; from < ranks(); ++from) {
      for (int to = 0; to < ranks(); ++to) {
        if (own || from != to) transfers.push_back({.from = from, .to = to, .count = bytes});
      }
    }
    return transfers;
  }
};

/// In a GroupCall, where a rank may send to itself.
class SendRecvTogether : public SendRecv {};

TEST_P(SendRecv, DataOfEverySizeArrivesAsItIs) {
  Transfers transfers;
  for (const std::size_t bytes : sizes()) {
    transfers.push_back({.from = 0, .to = ranks() - 1, .count = bytes});
    transfers.push_back({.from = ranks() - 1, .to = 0, .count = bytes});
  }
  deliver(transfers, [&](Group& group, RankTransfers& mine) {
    for (std::size_t i = 0; i < transfers.size(); ++i) {
      if (transfers[i].from == group.rank().value) {
        EXPECT_EQ(mine.send(i), Algorithm::one_shot);
      }
      if (transfers[i].to == group.rank().value) {
        EXPECT_EQ(mine.recv(i), Algorithm::one_shot);
      }
    }
  });
}

TEST_P(SendRecv, DataOfEveryTypeArrivesAsItIs) {
  Transfers transfers;
  for (int type = 0; type < kDTypeCount; ++type) {
    for (const std::size_t count : {1, 17, 5001})
      transfers.push_back({.from = 1, .to = 0, .count = count, .type = static_cast<DType>(type)});
  }
  deliver(transfers, [&](Group& group, RankTransfers& mine) {
    for (std::size_t i = 0; i < transfers.size(); ++i) {
      if (group.rank() == Rank{1}) (void)mine.send(i);
      if (group.rank() == Rank{0}) (void)mine.recv(i);
    }
  });
}

TEST_P(SendRecv, ManyTransfersOfOnePairArriveInOrder) {
  std::mt19937_64 random(seed());
  Transfers transfers;
  for (int i = 0; i < (kSanitized ? 200 : 1000); ++i)
    transfers.push_back({.from = 0, .to = 1, .count = random() % (i % 10 == 0 ? 3 * slot() : 200)});
  deliver(transfers, [&](Group& group, RankTransfers& mine) {
    for (std::size_t i = 0; i < transfers.size(); ++i) {
      if (group.rank() == Rank{0}) (void)mine.send(i);
      if (group.rank() == Rank{1}) (void)mine.recv(i);
    }
  });
}

TEST_P(SendRecv, BothMaySendFirstInAGroupCall) {
  const int last = ranks() - 1;
  std::vector<Transfers> batches;
  for (const std::size_t bytes : sizes()) {
    batches.push_back({{.from = 0, .to = last, .count = bytes}, {.from = last, .to = 0, .count = bytes}});
  }
  deliver(batches, [&](Group& group, RankTransfers& mine, std::size_t) {
    const int me = group.rank().value;
    if (me != 0 && me != last) return;
    GroupCall scope;
    (void)mine.send(me == 0 ? 0 : 1);
    (void)mine.recv(me == 0 ? 1 : 0);
    scope.end();
  });
}

TEST_P(SendRecvTogether, PassingToTheRightGoesRoundTheRing) {
  std::vector<Transfers> batches;
  for (const std::size_t bytes : {std::size_t{1}, slot(), 9 * slot() + 5}) {
    Transfers& transfers = batches.emplace_back();
    for (int r = 0; r < ranks(); ++r)
      transfers.push_back({.from = r, .to = (r + 1) % ranks(), .count = bytes});
  }
  deliver(batches, [&](Group&, RankTransfers& mine, std::size_t) { mine.exchange_all(); });
}

TEST_P(SendRecvTogether, AllPairsAtOnceProgressTogether) {
  std::vector<Transfers> batches;
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{3}, 2 * slot(), 6 * slot() + 1}) {
    batches.push_back(all_pairs(bytes, true));
  }
  deliver(batches, [&](Group&, RankTransfers& mine, std::size_t) { mine.exchange_all(); });
}

TEST_P(SendRecv, APipelineHandsOnWhatItReceives) {
  // No GroupCall: the ends of the line are not on a ring.
  Transfers transfers;
  for (int part = 0; part < 5; ++part) {
    for (int r = 0; r + 1 < ranks(); ++r)
      transfers.push_back({.from = r, .to = r + 1, .count = 6 * slot() + 11});
  }
  deliver(transfers, [&](Group& group, RankTransfers& mine) {
    for (std::size_t i = 0; i < transfers.size(); ++i) {
      if (transfers[i].from == group.rank().value) (void)mine.send(i);
      if (transfers[i].to == group.rank().value) (void)mine.recv(i);
    }
  });
}

TEST_P(SendRecvTogether, RandomPatternsArriveInWhateverOrderEveryRankMakesItsCalls) {
  std::vector<Transfers> batches;
  for (std::size_t batch = 0; batch < (kSanitized ? 4 : 20); ++batch) {
    std::mt19937_64 random(seed() + batch);
    Transfers& transfers = batches.emplace_back();
    const auto any_rank = [&] { return static_cast<int>(random() % static_cast<std::uint64_t>(ranks())); };
    for (std::size_t i = random() % 60; i > 0; --i) {
      const auto type = static_cast<DType>(random() % kDTypeCount);
      const std::size_t longest = random() % 4 == 0 ? 8 * slot() : 300;
      transfers.push_back(
          {.from = any_rank(), .to = any_rank(), .count = random() % longest / size_of(type), .type = type});
    }
  }
  deliver(batches, [&](Group& group, RankTransfers& mine, std::size_t batch) {
    std::mt19937_64 own(seed() + 1000 * batch + static_cast<std::uint64_t>(group.rank().value));
    mine.exchange_all(&own);
  });
}

TEST_P(SendRecv, TakesTurnsWithCollectives) {
  const Transfers transfers = all_pairs(700, false);
  ASSERT_LE(transfers.front().bytes(), slot());
  deliver(transfers, [&](Group& group, RankTransfers& mine) {
    for (std::size_t i = 0; i < transfers.size(); ++i) {
      if (transfers[i].from == group.rank().value) (void)mine.send(i);
      if (i % 3 == 0) group.barrier();  // between a send, which fits into the buffer, and its recv
      if (transfers[i].to == group.rank().value) (void)mine.recv(i);
    }
  });
}

/// PointToPoint that do not agree: rank 0 sends what rank 1 does not expect. These two call `make(rank)`. All ranks'
/// next calls fail with the same error, which names both.
class Disagreement : public SendRecv {
 protected:
  struct ByteRange {
    std::size_t offset;
    std::size_t bytes;
  };
  /// `delivered`: the bytes of rank 0 that belong to a transfer on which both ends agree.
  void expect(const std::function<void(Group&, std::byte* data)>& make, const std::string& text,
              ByteRange delivered = {0, 0}) {
    if (backend().on_gpus) GTEST_SKIP() << "GPUs do not compare";
    backend().run(ranks(), {}, [&](Group& group) {
      const std::unique_ptr<RankMemory> memory = backend().memory(group);
      const std::size_t bytes = 1 << 20;
      std::byte* const data = memory->allocate(bytes);
      const Bytes poison(bytes, kUntouched);
      memory->upload(data, poison.data(), bytes);
      std::optional<Error> first;
      try {
        group.barrier();  // nobody is still joining
        if (group.rank().value < 2) make(group, data);
      } catch (const Error& thrown) {
        first = thrown;
      }
      // A short send may have returned before the other end looked.
      if (group.rank() == Rank{1}) {
        EXPECT_TRUE(first.has_value());
      }
      const Error error = error_of([&] { group.barrier(); });
      EXPECT_EQ(error.code(), ErrorCode::mismatch) << error.message();
      EXPECT_THAT(error.message(), HasSubstr(text));
      if (first.has_value()) {
        EXPECT_EQ(first->message(), error.message());
      }
      if (group.rank() == Rank{0} && delivered.bytes > 0)
        memory->upload(data + delivered.offset, poison.data(), delivered.bytes);
      EXPECT_EQ(std::memcmp(data, poison.data(), bytes), 0) << "something was received";
      memory->release(data);
    });
  }
};

TEST_P(Disagreement, OfCountsIsAMismatchOnAllRanks) {
  for (const std::size_t count : {std::size_t{0}, std::size_t{99}, std::size_t{200'000}}) {
    expect(
        [&](Group& group, std::byte* data) {
          if (group.rank() == Rank{0}) (void)send(group, data, count, DType::f32, Rank{1});
          if (group.rank() == Rank{1}) (void)recv(group, data, 100, DType::f32, Rank{0});
        },
        fmt::format("ranks disagree: rank 0 sends {} f32 to rank 1, which receives 100 f32", count));
  }
}

TEST_P(Disagreement, OfTypesIsAMismatchEvenIfTheBytesAreAsMany) {
  expect(
      [&](Group& group, std::byte* data) {
        if (group.rank() == Rank{0}) (void)send(group, data, 200'000, DType::i32, Rank{1});
        if (group.rank() == Rank{1}) (void)recv(group, data, 200'000, DType::f32, Rank{0});
      },
      "ranks disagree: rank 0 sends 200000 i32 to rank 1, which receives 200000 f32");
}

TEST_P(Disagreement, InAGroupCallIsAMismatchForAllInIt) {
  // Rank 0 may receive all, a part or nothing of what rank 1 sends, since they agree on that.
  constexpr ByteRange kOutput{.offset = 512 << 10, .bytes = 400'000};
  expect(
      [&](Group& group, std::byte* data) {
        const Rank other{1 - group.rank().value};
        GroupCall scope;
        (void)send(group, data, 100'000, DType::f32, other);
        (void)recv(group, data + kOutput.offset, group.rank() == Rank{0} ? 100'000 : 99'999, DType::f32,
                   other);
        scope.end();
      },
      "ranks disagree: rank 0 sends 100000 f32 to rank 1, which receives 99999 f32", kOutput);
}

TEST_P(Disagreement, OfARankWithItselfIsFoundBeforeAnythingMoves) {
  expect(
      [&](Group& group, std::byte* data) {
        if (group.rank() == Rank{0}) return group.barrier();
        GroupCall scope;
        (void)send(group, data, 10, DType::f32, Rank{1});
        (void)recv(group, data + 1000, 20, DType::f32, Rank{1});
        (void)recv(group, data + 2000, 1, DType::f32, Rank{0});
        scope.end();
      },
      "ranks disagree: rank 1 sends 10 f32 to rank 1, which receives 20 f32");
  expect(
      [&](Group& group, std::byte* data) {
        if (group.rank() == Rank{0}) return group.barrier();
        GroupCall scope;
        (void)send(group, data, 10, DType::f32, Rank{1});
        scope.end();
      },
      "rank 1 sends itself 1 times and receives from itself 0 times in one GroupCall");
}

INSTANTIATE_TEST_SUITE_P(, SendRecv, ::testing::ValuesIn(parameters(&Backend::sizes, kSeveral)), name_of);
INSTANTIATE_TEST_SUITE_P(, SendRecvTogether, ::testing::ValuesIn(parameters(&Backend::sizes)), name_of);
INSTANTIATE_TEST_SUITE_P(, Disagreement, ::testing::ValuesIn(parameters(&Backend::few_sizes, kSeveral)),
                         name_of);

}  // namespace
}  // namespace onehop::testing
