// SPDX-License-Identifier: Apache-2.0
// All-reduces of one GroupCall, which may share one launch. They give the same bits as separate calls, and
// every rank detects a difference between ranks.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "conformance/suite.h"

namespace onehop::testing {
namespace {

/// All-reduces that a rank makes in one GroupCall, in memory that is poisoned where none of them may write.
class Together {
 public:
  Together(const Backend& backend, Group& group, const AllStreams& streams)
      : group_(group),
        streams_(streams),
        memory_(backend.memory(group)),
        factor_(*memory_, group.rank()),
        arena_(memory_->allocate(kArenaBytes)),
        alone_(seed() + static_cast<std::uint64_t>(group.rank().value) + 1) {}
  ~Together() { memory_->release(arena_); }
  Together(const Together&) = delete;
  Together& operator=(const Together&) = delete;

  [[nodiscard]] bool has_room(const CollectiveCase& each) const {
    return before_.size() + 2 * (each.count * size_of(each.type) + kSpread) <= kArenaBytes;
  }
  /// `each` gives everything but the location of the data, which is drawn here.
  void add(const CollectiveCase& each) {
    const std::size_t bytes = each.count * size_of(each.type);
    const std::size_t out = reserve(bytes, size_of(each.type));
    const std::size_t in = each.in_place ? out : reserve(bytes, size_of(each.type));
    streams_[each.type].input(group_.rank().value, each.start, each.count, before_.data() + in);
    calls_.push_back({each, in, out});
  }
  /// Makes the calls and checks every byte that they may and may not have written.
  void run() {
    Bytes after = before_;
    for (const Call& call : calls_) {
      streams_[call.each.type].expected(call.each.how(), call.each.start, call.each.count,
                                        after.data() + call.out);
    }
    memory_->upload(arena_, before_.data(), before_.size());
    GroupCall scope;
    for (const Call& call : calls_) {
      CallOptions options = factor_.options(call.each.type, call.each.how(), call.each.start % 2 == 0);
      options.algorithm = call.each.algorithm;
      (void)all_reduce(group_, arena_ + call.in, arena_ + call.out, call.each.count, call.each.type,
                       call.each.op, memory_->stream(), options);
    }
    scope.end();
    group_.synchronize(memory_->stream());
    Bytes got(after.size());
    memory_->download(got.data(), arena_, got.size());
    if (got != after) {
      const auto at =
          static_cast<std::size_t>(std::mismatch(got.begin(), got.end(), after.begin()).first - got.begin());
      std::string text =
          fmt::format("rank {}: byte {} is wrong after {} calls in one GroupCall:", group_.rank().value, at,
                      calls_.size());
      for (const Call& call : calls_) {
        text += fmt::format("\n  {} from {} to {}", call.each.describe(), call.in, call.out);
      }
      throw std::runtime_error(text);
    }
    calls_.clear();
    before_.clear();
  }

 private:
  static constexpr std::size_t kArenaBytes = 6 << 20;
  static constexpr std::size_t kSpread = 64;
  static constexpr std::byte kPoison{0xa5};
  struct Call {
    CollectiveCase each;
    std::size_t in;
    std::size_t out;
  };

  /// Allocates this many bytes at a random offset, aligned to the element only.
  std::size_t reserve(std::size_t bytes, std::size_t element) {
    const std::size_t gap = alone_() % 2 == 0 ? 0 : alone_() % (kSpread / 2);
    const std::size_t at = (before_.size() + gap + element - 1) / element * element;
    before_.resize(at + bytes, kPoison);
    return at;
  }

  Group& group_;
  const AllStreams& streams_;
  std::unique_ptr<RankMemory> memory_;
  OwnFactor factor_;
  std::byte* arena_;
  std::mt19937_64 alone_;
  std::vector<Call> calls_;
  Bytes before_;
};

class AllReducesTogether : public CollectiveTest {};

/// Small and empty calls, occasionally one that is too large to be fused, and usually of one type and op.
TEST_P(AllReducesTogether, GiveTheSameBitsInAGroupCallOfUpTo70) {
  const int scopes = kSanitized ? 12 : 120;
  const AllStreams streams(ranks());
  backend().run(ranks(), {}, [&](Group& group) {
    constexpr std::size_t kMost = 64 << 10;
    Together together(backend(), group, streams);
    Workspace plain(backend(), group, kMost);
    std::mt19937_64 random(seed());
    std::uint64_t calls = 0;
    for (int scope = 0; scope < scopes; ++scope) {
      CollectiveCase each;
      // Every order of magnitude is equally likely.
      const auto draw_count = [&](std::size_t most) {
        const std::size_t limit = most >> random() % 17;
        return random() % 8 == 0 ? random() % 2 : random() % (limit / size_of(each.type) + 1);
      };
      const auto draw_type = [&] { each.type = static_cast<DType>(random() % kDTypeCount); };
      const auto draw_reduction = [&] {
        const std::vector<Reduction> all = reductions_of(each.type);
        each.set(all[random() % all.size()]);
      };
      draw_type();
      draw_reduction();
      for (std::uint64_t left = 1 + random() % 70; left > 0; --left) {
        const bool another = random() % 32 == 0;
        if (another) draw_type();
        if (another || random() % 32 == 0) draw_reduction();
        if (random() % 32 == 0) each.algorithm = kAlgorithms[random() % std::size(kAlgorithms)];
        each.count = draw_count(random() % 64 == 0 ? 600 << 10 : kMost);
        each.in_place = random() % 2 == 0;
        each.start = random() % Streams::kPeriod;
        if (!together.has_room(each)) break;
        together.add(each);
        ++calls;
      }
      together.run();
      each = random_all_reduce(random);
      draw_type();
      draw_reduction();
      each.count = draw_count(kMost);
      (void)plain.run(each, streams[each.type]);
      ++calls;
    }
    const auto usage = group.usage();
    if (std::accumulate(usage.begin(), usage.end(), std::uint64_t{0}) != calls)
      throw std::runtime_error(fmt::format("{} calls were not all counted", calls));
  });
}

TEST_P(AllReducesTogether, AreRejectedOnEveryRankIfTheyDifferAndTheGroupStaysUsable) {
  const ScopedVariable check("ONEHOP_CHECK", "1");
  backend().run(ranks(), {}, [&](Group& group) {
    const std::unique_ptr<RankMemory> memory = backend().memory(group);
    const bool odd_one = group.rank().value == group.size() - 1;
    constexpr std::size_t kRoom = 80'000;
    const Array<std::int32_t> ones(*memory, kRoom, 1);
    const auto make = [&](std::size_t last_count, std::size_t last_out) {
      const Array<std::int32_t> out(*memory, kRoom, 7);
      try {
        GroupCall scope;
        for (const std::size_t at : {0u, 1u, 2u}) {
          (void)all_reduce(group, ones.data() + 1000 * at, out.data() + (at == 2 ? last_out : 1000 * at),
                           at == 2 ? last_count : 1000, DType::i32, ReduceOp::sum, memory->stream());
        }
        scope.end();
      } catch (const Error& error) {
        group.synchronize(memory->stream());
        const std::vector<std::int32_t> values = out.values();
        EXPECT_EQ(std::count(values.begin() + 2000, values.end(), 7), kRoom - 2000) << error.what();
        return error.message();
      }
      group.synchronize(memory->stream());
      const std::vector<std::int32_t> values = out.values();
      EXPECT_EQ(std::count(values.begin(), values.begin() + 3000, group.size()), 3000);
      return std::string("made");
    };
    EXPECT_EQ(make(1000, 2000), "made");
    if (ranks() == 1) return;  // no other rank to differ from
    // With some ranks' counts all calls share one launch, with the other's they do not.
    EXPECT_THAT(make(odd_one ? 999 : 1000, 2000), ::testing::HasSubstr("count 999"));
    EXPECT_THAT(make(odd_one ? 70'000 : 1000, 2000), ::testing::HasSubstr("count 70000"));
    if (backend().on_gpus) {
      EXPECT_THAT(make(1000, odd_one ? 1999 : 2000), ::testing::HasSubstr("of the same GroupCall"));
    }
    EXPECT_EQ(make(1000, 2000), "made");
  });
}

INSTANTIATE_TEST_SUITE_P(, AllReducesTogether, ::testing::ValuesIn(parameters(&Backend::sizes)), name_of);

}  // namespace
}  // namespace onehop::testing
