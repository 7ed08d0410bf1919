// SPDX-License-Identifier: Apache-2.0
// The contract of send, recv and their groups (collectives.h, group_call.h). The bytes that were sent arrive
// in the right buffer and in order, and nothing else is written, in whatever order the ranks make their
// calls.
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

#include "conformance/suite.h"
#include "kernel/host/pairs.h"
#include "support/errors.h"

namespace onehop::testing {
namespace {

using ::testing::HasSubstr;

constexpr std::byte kPoison{0xa5};
constexpr std::size_t kGuard = 64;

/// A transfer, as both ends know it.
struct Letter {
  int from = 0;
  int to = 0;
  std::size_t count = 0;
  DType type = DType::u8;

  [[nodiscard]] std::size_t bytes() const { return count * size_of(type); }
};
using Letters = std::vector<Letter>;

/// The transfers of one rank: one block of memory for those that it sends and receives.
class Mailbag {
 public:
  Mailbag(const Backend& backend, Group& group, const Letters& letters)
      : group_(group), letters_(letters), memory_(backend.memory(group)) {
    const int me = group.rank().value;
    std::size_t size = 0;
    for (std::size_t i = 0; i < letters.size(); ++i) {
      places_.emplace_back();
      // Aligned to the element and to nothing more.
      const auto place = [&](bool concerned) {
        if (!concerned) return std::size_t{0};
        size = (size + kGuard + 63) / 64 * 64 + i % 3 * size_of(letters[i].type);
        return std::exchange(size, size + letters[i].bytes());
      };
      places_[i].in = place(letters[i].from == me);
      places_[i].out = place(letters[i].to == me);
    }
    before_.assign(size + kGuard, kPoison);
    after_ = before_;
    for (std::size_t i = 0; i < letters.size(); ++i) {
      if (letters[i].from == me) write(before_, places_[i].in, i);
      if (letters[i].from == me) write(after_, places_[i].in, i);
      if (letters[i].to == me) write(after_, places_[i].out, i);
    }
    data_ = memory_->allocate(before_.size());
    memory_->upload(data_, before_.data(), before_.size());
  }
  ~Mailbag() { memory_->release(data_); }
  Mailbag(const Mailbag&) = delete;
  Mailbag& operator=(const Mailbag&) = delete;

  Algorithm send(std::size_t i) {
    const Letter& letter = letters_[i];
    return onehop::send(group_, data_ + places_[i].in, letter.count, letter.type, Rank{letter.to},
                        memory_->stream());
  }
  Algorithm recv(std::size_t i) {
    const Letter& letter = letters_[i];
    return onehop::recv(group_, data_ + places_[i].out, letter.count, letter.type, Rank{letter.from},
                        memory_->stream());
  }

  /// Makes the calls in a GroupCall: in order, or, with `random`, in an order that preserves only that of
  /// each pair.
  void exchange_all(std::mt19937_64* random = nullptr) {
    struct Step {
      std::size_t letter;
      bool sends;
    };
    const int me = group_.rank().value;
    std::vector<std::vector<Step>> lanes(static_cast<std::size_t>(2 * group_.size()));
    for (std::size_t i = 0; i < letters_.size(); ++i) {
      const Letter& letter = letters_[i];
      if (letter.from == me) lanes[static_cast<std::size_t>(2 * letter.to)].push_back({i, true});
      if (letter.to == me) lanes[static_cast<std::size_t>(2 * letter.from + 1)].push_back({i, false});
    }
    std::vector<std::size_t> turns;  // the queue whose next call is made
    for (std::size_t lane = 0; lane < lanes.size(); ++lane)
      turns.insert(turns.end(), lanes[lane].size(), lane);
    if (random != nullptr) std::shuffle(turns.begin(), turns.end(), *random);
    std::vector<std::size_t> next(lanes.size(), 0);
    GroupCall scope;
    for (const std::size_t lane : turns) {
      const Step step = lanes[lane][next[lane]++];
      EXPECT_EQ(step.sends ? send(step.letter) : recv(step.letter), Algorithm::none);
    }
    scope.end();
  }

  /// `post`: the number of this batch, for messages.
  void check(std::size_t post) {
    group_.synchronize(memory_->stream());
    group_.barrier();  // ranks must not copy or free earlier: the driver may wait for that kernel
    Bytes now(before_.size());
    memory_->download(now.data(), data_, now.size());
    if (now == after_) return;
    const auto differ = std::mismatch(now.begin(), now.end(), after_.begin());
    const auto at = static_cast<std::size_t>(differ.first - now.begin());
    std::string where = "between letters";
    for (std::size_t i = 0; i < letters_.size(); ++i) {
      for (const std::size_t place : {places_[i].in, places_[i].out}) {
        if (place != 0 && at >= place && at < place + letters_[i].bytes())
          where = fmt::format("byte {} of letter {} ({} bytes, {} to {})", at - place, i, letters_[i].bytes(),
                              letters_[i].from, letters_[i].to);
      }
    }
    throw std::runtime_error(fmt::format(
        "rank {}, post {} of ONEHOP_TEST_SEED={}: {} is {:#x} instead of {:#x}", group_.rank().value, post,
        seed(), where, std::to_integer<int>(*differ.first), std::to_integer<int>(*differ.second)));
  }

 private:
  struct Place {
    std::size_t in = 0;
    std::size_t out = 0;
  };

  /// Every transfer has bytes of its own.
  void write(Bytes& image, std::size_t place, std::size_t i) const {
    for (std::size_t at = 0; at < letters_[i].bytes(); ++at)
      image[place + at] = static_cast<std::byte>((at * 2654435761U >> 13) + 31 * i + 7);
  }

  Group& group_;
  const Letters& letters_;
  std::unique_ptr<RankMemory> memory_;
  std::vector<Place> places_;
  Bytes before_;
  Bytes after_;
  std::byte* data_ = nullptr;
};

class SendRecv : public CollectiveTest {
 protected:
  /// Runs `body(group, mailbag, post)` on every rank of a fresh group for one batch after another, and checks
  /// what was delivered.
  void deliver(const std::vector<Letters>& posts,
               const std::function<void(Group&, Mailbag&, std::size_t)>& body) const {
    JoinOptions options;
    options.scratch_bytes = kSmallScratch;
    backend().run(ranks(), options, [&](Group& group) {
      for (std::size_t post = 0; post < posts.size(); ++post) {
        Mailbag bag(backend(), group, posts[post]);
        group.barrier();  // ranks that share a GPU may not allocate while another one's kernel waits
        body(group, bag, post);
        bag.check(post);
      }
    });
  }
  void deliver(const Letters& letters, const std::function<void(Group&, Mailbag&)>& body) const {
    deliver(std::vector<Letters>{letters},
            [&](Group& group, Mailbag& bag, std::size_t) { body(group, bag); });
  }

  /// Misaligned for any type larger than a byte.
  static void* odd(void* data) { return static_cast<std::byte*>(data) + 1; }

  [[nodiscard]] std::size_t slot() const { return host::Pairs::slot_bytes(ranks(), kSmallScratch); }
  /// Sizes in bytes: none, a few, and around chunks and rings.
  [[nodiscard]] std::vector<std::size_t> sizes() const {
    const std::size_t ring = slot() * host::Pairs::kSlots;
    return {
        0,        1, 2, 63, 64, 65, slot() - 1, slot(), slot() + 1, ring - 1, ring, ring + 1, 3 * ring + 17,
        10 * ring};
  }
  /// A transfer from every rank to every rank, including itself if `own`.
  [[nodiscard]] Letters all_pairs(std::size_t bytes, bool own) const {
    Letters letters;
    for (int from = 0; from < ranks(); ++from) {
      for (int to = 0; to < ranks(); ++to) {
        if (own || from != to) letters.push_back({.from = from, .to = to, .count = bytes});
      }
    }
    return letters;
  }
};

/// In a GroupCall, where a rank may send to itself.
class SendRecvTogether : public SendRecv {};

TEST_P(SendRecv, DataOfEverySizeArrivesAsItIs) {
  Letters letters;
  for (const std::size_t bytes : sizes()) {
    letters.push_back({.from = 0, .to = ranks() - 1, .count = bytes});
    letters.push_back({.from = ranks() - 1, .to = 0, .count = bytes});
  }
  deliver(letters, [&](Group& group, Mailbag& bag) {
    for (std::size_t i = 0; i < letters.size(); ++i) {
      if (letters[i].from == group.rank().value) {
        EXPECT_EQ(bag.send(i), Algorithm::one_shot);
      }
      if (letters[i].to == group.rank().value) {
        EXPECT_EQ(bag.recv(i), Algorithm::one_shot);
      }
    }
  });
}

TEST_P(SendRecv, DataOfEveryTypeArrivesAsItIs) {
  Letters letters;
  for (int type = 0; type < kDTypeCount; ++type) {
    for (const std::size_t count : {1, 17, 5001})
      letters.push_back({.from = 1, .to = 0, .count = count, .type = static_cast<DType>(type)});
  }
  deliver(letters, [&](Group& group, Mailbag& bag) {
    for (std::size_t i = 0; i < letters.size(); ++i) {
      if (group.rank() == Rank{1}) (void)bag.send(i);
      if (group.rank() == Rank{0}) (void)bag.recv(i);
    }
  });
}

TEST_P(SendRecv, ManyLettersOfOnePairArriveInTheirOrder) {
  std::mt19937_64 random(seed());
  Letters letters;
  for (int i = 0; i < (kSanitized ? 200 : 1000); ++i)
    letters.push_back({.from = 0, .to = 1, .count = random() % (i % 10 == 0 ? 3 * slot() : 200)});
  deliver(letters, [&](Group& group, Mailbag& bag) {
    for (std::size_t i = 0; i < letters.size(); ++i) {
      if (group.rank() == Rank{0}) (void)bag.send(i);
      if (group.rank() == Rank{1}) (void)bag.recv(i);
    }
  });
}

TEST_P(SendRecv, BothMaySendFirstInAGroupCall) {
  const int last = ranks() - 1;
  std::vector<Letters> posts;
  for (const std::size_t bytes : sizes()) {
    posts.push_back({{.from = 0, .to = last, .count = bytes}, {.from = last, .to = 0, .count = bytes}});
  }
  deliver(posts, [&](Group& group, Mailbag& bag, std::size_t) {
    const int me = group.rank().value;
    if (me != 0 && me != last) return;
    GroupCall scope;
    (void)bag.send(me == 0 ? 0 : 1);
    (void)bag.recv(me == 0 ? 1 : 0);
    scope.end();
  });
}

TEST_P(SendRecvTogether, PassingToTheRightGoesRoundTheRing) {
  std::vector<Letters> posts;
  for (const std::size_t bytes : {std::size_t{1}, slot(), 9 * slot() + 5}) {
    Letters& letters = posts.emplace_back();
    for (int r = 0; r < ranks(); ++r) letters.push_back({.from = r, .to = (r + 1) % ranks(), .count = bytes});
  }
  deliver(posts, [&](Group&, Mailbag& bag, std::size_t) { bag.exchange_all(); });
}

TEST_P(SendRecvTogether, AllPairsAtOnceProgressTogether) {
  std::vector<Letters> posts;
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{3}, 2 * slot(), 6 * slot() + 1}) {
    posts.push_back(all_pairs(bytes, true));
  }
  deliver(posts, [&](Group&, Mailbag& bag, std::size_t) { bag.exchange_all(); });
}

TEST_P(SendRecv, APipelineHandsOnWhatItReceives) {
  // No GroupCall: the ends of the line are not on a ring.
  Letters letters;
  for (int part = 0; part < 5; ++part) {
    for (int r = 0; r + 1 < ranks(); ++r)
      letters.push_back({.from = r, .to = r + 1, .count = 6 * slot() + 11});
  }
  deliver(letters, [&](Group& group, Mailbag& bag) {
    for (std::size_t i = 0; i < letters.size(); ++i) {
      if (letters[i].from == group.rank().value) (void)bag.send(i);
      if (letters[i].to == group.rank().value) (void)bag.recv(i);
    }
  });
}

TEST_P(SendRecvTogether, RandomPatternsArriveInWhateverOrderEveryRankMakesItsCalls) {
  std::vector<Letters> posts;
  for (std::size_t post = 0; post < (kSanitized ? 4 : 20); ++post) {
    std::mt19937_64 random(seed() + post);
    Letters& letters = posts.emplace_back();
    const auto any_rank = [&] { return static_cast<int>(random() % static_cast<std::uint64_t>(ranks())); };
    for (std::size_t i = random() % 60; i > 0; --i) {
      const auto type = static_cast<DType>(random() % kDTypeCount);
      const std::size_t longest = random() % 4 == 0 ? 8 * slot() : 300;
      letters.push_back(
          {.from = any_rank(), .to = any_rank(), .count = random() % longest / size_of(type), .type = type});
    }
  }
  deliver(posts, [&](Group& group, Mailbag& bag, std::size_t post) {
    std::mt19937_64 own(seed() + 1000 * post + static_cast<std::uint64_t>(group.rank().value));
    bag.exchange_all(&own);
  });
}

TEST_P(SendRecv, TakesTurnsWithCollectives) {
  const Letters letters = all_pairs(700, false);
  ASSERT_LE(letters.front().bytes(), slot());
  deliver(letters, [&](Group& group, Mailbag& bag) {
    for (std::size_t i = 0; i < letters.size(); ++i) {
      if (letters[i].from == group.rank().value) (void)bag.send(i);
      if (i % 3 == 0) group.barrier();  // between a send, which fits into the buffer, and its recv
      if (letters[i].to == group.rank().value) (void)bag.recv(i);
    }
  });
}

/// Pairs that do not agree: rank 0 sends what rank 1 does not expect. These two call `make(rank)`. All ranks'
/// next calls fail with the same error, which names both.
class Disagreement : public SendRecv {
 protected:
  void expect(const std::function<void(Group&, std::byte* data)>& make, const std::string& text) {
    if (backend().on_gpus) GTEST_SKIP() << "GPUs do not compare";
    backend().run(ranks(), {}, [&](Group& group) {
      const std::unique_ptr<RankMemory> memory = backend().memory(group);
      const std::size_t bytes = 1 << 20;
      std::byte* const data = memory->allocate(bytes);
      const Bytes poison(bytes, kPoison);
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
  expect(
      [&](Group& group, std::byte* data) {
        const Rank other{1 - group.rank().value};
        GroupCall scope;
        (void)send(group, data, 100'000, DType::f32, other);
        (void)recv(group, data + (512 << 10), group.rank() == Rank{0} ? 100'000 : 99'999, DType::f32, other);
        scope.end();
      },
      "ranks disagree: rank 0 sends 100000 f32 to rank 1, which receives 99999 f32");
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
