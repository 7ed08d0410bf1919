// Groups as users see them: joining, memory, signals, splitting, failing, leaving.
#include <fcntl.h>
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>

#include "support/ranks.h"
#include "support/sanitizers.h"

namespace onehop {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AllOf;
using testing::Exit;
using ::testing::HasSubstr;
using testing::kSanitized;
using testing::Processes;
using testing::run_process_group;
using testing::run_thread_group;
using testing::run_threads;
using testing::TempDir;

// Beyond what is promised (100 ms after a deadline): a machine that is busy with other tests.
constexpr Duration kSlack = seconds{5};

using Clock = std::chrono::steady_clock;

Error error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.message().find('\n'), std::string::npos) << error.what();
    return error;
  }
  ADD_FAILURE() << "nothing was thrown";
  return {ErrorCode{}, ""};
}

/// A call of every rank that shows the group works.
void expect_usable(Group& group) {
  std::vector<std::int32_t> ones(100, 1);
  all_reduce(group, std::span<std::int32_t>(ones));
  EXPECT_THAT(ones, ::testing::Each(group.size()));
}

/// Everyone fills its part and reads everyone's.
void expect_shared(Group& group, const SymmetricBuffer& buffer, int round = 0) {
  const auto mark = [&](int r) { return 1 + (round * group.size() + r) % 250; };
  std::memset(buffer.local(), mark(group.rank().value), buffer.bytes());
  buffer.barrier();
  for (int r = 0; r < group.size(); ++r) {
    for (const std::byte b : buffer.peer_as<std::byte>(Rank{r})) ASSERT_EQ(static_cast<int>(b), mark(r));
  }
  buffer.barrier();
}

/// The error every rank gets, whose number is in the text, so that one string compares them all.
class SameError {
 public:
  void add(const Error& error) {
    const std::lock_guard lock(mutex_);
    ++errors_[fmt::format("{} of rank {}: {}", to_string(error.code()), error.origin().value,
                          error.message())];
  }
  /// The one text that `count` ranks got.
  [[nodiscard]] std::string of(int count) {
    EXPECT_EQ(errors_.size(), 1u);
    for (const auto& [text, times] : errors_) {
      EXPECT_EQ(times, errors_.size() == 1 ? count : times) << text;
      if (errors_.size() > 1) ADD_FAILURE() << text;
    }
    return errors_.empty() ? "" : errors_.begin()->first;
  }

 private:
  std::mutex mutex_;
  std::map<std::string, int> errors_;
};

// --- symmetric memory ---

TEST(SymmetricMemory, OfThreadsIsZeroedAndSeenByAll) {
  run_thread_group(4, [](Group& group) {
    for (const std::size_t bytes : {1ul, 1000ul, 4096ul, 100001ul}) {
      const SymmetricBuffer buffer = group.allocate(bytes);
      EXPECT_EQ(buffer.bytes(), bytes);
      EXPECT_EQ(buffer.rank(), group.rank());
      EXPECT_EQ(buffer.size(), 4);
      for (const std::byte b : buffer.as<std::byte>()) ASSERT_EQ(b, std::byte{0});
      buffer.barrier();
      expect_shared(group, buffer);
    }
  });
}

TEST(SymmetricMemory, OfProcessesIsZeroedAndSeenByAll) {
  run_process_group(4, [](Group& group) {
    for (const std::size_t bytes : {1000ul, 1ul << 20}) {
      const SymmetricBuffer buffer = group.allocate(bytes);
      for (const std::byte b : buffer.as<std::byte>()) ASSERT_EQ(b, std::byte{0});
      buffer.barrier();
      expect_shared(group, buffer);
    }
  });
}

TEST(SymmetricMemory, SubBuffersAreThePlaceTheyNameOnEveryRank) {
  run_thread_group(3, [](Group& group) {
    const SymmetricBuffer whole = group.allocate(1024);
    const SymmetricBuffer part = whole.sub(100, 200).sub(50, 100);
    EXPECT_EQ(part.bytes(), 100u);
    EXPECT_EQ(part.local(), whole.local() + 150);
    const PeerView view = part.view();
    EXPECT_EQ(view.rank, group.rank().value);
    EXPECT_EQ(view.size, 3);
    EXPECT_EQ(view.bytes, 100u);
    for (int r = 0; r < 3; ++r) {
      EXPECT_EQ(part.peer(Rank{r}), whole.peer(Rank{r}) + 150);
      EXPECT_EQ(view.peers[r] + view.offset, part.peer(Rank{r}));
    }
    EXPECT_EQ(whole.local(), whole.peer(group.rank()));
    EXPECT_EQ(whole.sub(1024, 0).bytes(), 0u);
    for (const auto& [offset, bytes] :
         {std::pair{1025ul, 0ul}, {0ul, 1025ul}, {1ul, 1024ul}, {SIZE_MAX, 2ul}, {2ul, SIZE_MAX}}) {
      const Error error = error_of([&, o = offset, b = bytes] { (void)whole.sub(o, b); });
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_THAT(error.message(),
                  AllOf(HasSubstr(fmt::format("{} bytes at offset {}", bytes, offset)), HasSubstr("1024")));
    }
    EXPECT_THAT(error_of([&] { (void)part.sub(0, 101); }).message(), HasSubstr("buffer of 100 bytes"));
    for (const int r : {-1, 3}) {
      EXPECT_THAT(error_of([&, r] { (void)whole.peer(Rank{r}); }).message(),
                  HasSubstr(fmt::format("rank {}", r)));
    }
    expect_shared(group, part);
  });
}

TEST(SymmetricMemory, AnEmptyBufferSaysSo) {
  const SymmetricBuffer empty;
  EXPECT_EQ(empty.bytes(), 0u);
  EXPECT_THAT(error_of([&] { (void)empty.local(); }).message(), HasSubstr("empty"));
  EXPECT_THAT(error_of([&] { empty.barrier(); }).message(), HasSubstr("empty"));
  EXPECT_THAT(error_of([&] { (void)empty.sub(0, 0); }).message(), HasSubstr("empty"));
}

TEST(SymmetricMemory, DifferentSizesAreAMismatchOnAllRanksNamingThem) {
  for (const bool processes : {false, true}) {
    const auto body = [](Group& group) {
      const Error error = error_of([&] { (void)group.allocate(group.rank() == Rank{2} ? 5000 : 4000); });
      EXPECT_EQ(error.code(), ErrorCode::mismatch);
      EXPECT_EQ(error.origin(), Rank{2});
      EXPECT_THAT(error.message(),
                  AllOf(HasSubstr("rank 0 asks for 4000 bytes"), HasSubstr("rank 2 for 5000")));
      expect_usable(group);
      expect_shared(group, group.allocate(100));
    };
    processes ? run_process_group(3, body) : run_thread_group(3, body);
  }
}

TEST(SymmetricMemory, NothingAndTooMuchAreRefusedOnAllRanksAndTheGroupStaysUsable) {
  run_thread_group(3, [](Group& group) {
    for (const std::size_t bytes : {0ul, SIZE_MAX, 1ul << 50}) {
      const Error error = error_of([&] { (void)group.allocate(bytes); });
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << error.what();
      EXPECT_THAT(error.message(), HasSubstr(fmt::format(" {} bytes", bytes)));
    }
    // More than any machine that runs this has, but not absurd.
    const Error error = error_of([&] { (void)group.allocate(std::size_t{1} << 46); });
    EXPECT_EQ(error.code(), ErrorCode::out_of_resources) << error.what();
    EXPECT_THAT(error.message(), AllOf(HasSubstr("allocate: rank 0"), HasSubstr("the machine has")));
    expect_usable(group);
    expect_shared(group, group.allocate(100));
  });
}

TEST(SymmetricMemory, CannotBeMadeOfMemoryThatAHostRankHasAndTheGroupStaysUsable) {
  for (const bool processes : {false, true}) {
    const auto body = [](Group& group) {
      std::vector<std::byte> data(4096);
      const Error error = error_of([&] { (void)group.register_buffer(data.data(), data.size()); });
      EXPECT_EQ(error.code(), ErrorCode::unsupported) << error.what();
      EXPECT_THAT(error.message(), HasSubstr("Group::allocate"));
      expect_usable(group);
    };
    processes ? run_process_group(3, body) : run_thread_group(3, body);
  }
}

TEST(SymmetricMemory, OneRanksOddSizeIsEveryRanksError) {
  run_thread_group(3, [](Group& group) {
    const Error error = error_of([&] { (void)group.allocate(group.rank() == Rank{1} ? 0 : 100); });
    EXPECT_EQ(error.origin(), Rank{1});
    EXPECT_THAT(error.message(), HasSubstr("allocate: rank 1"));
    expect_usable(group);
  });
}

TEST(SymmetricMemory, OutlivesItsGroup) {
  const auto body = [](Group& joined) {
    SymmetricBuffer buffer;
    {
      Group group = std::move(joined);
      buffer = group.allocate(10000);
      std::memset(buffer.local(), 40 + group.rank().value, buffer.bytes());
      group.barrier();
    }
    // The group is gone, the memory is not; what waits for peers says so.
    for (int r = 0; r < 3; ++r) EXPECT_EQ(static_cast<int>(buffer.peer(Rank{r})[9999]), 40 + r);
    EXPECT_THAT(error_of([&] { buffer.barrier(); }).message(), HasSubstr("has left the group"));
    EXPECT_THAT(error_of([&] { buffer.put_signal(Rank{0}); }).message(), HasSubstr("has left the group"));
    EXPECT_THAT(error_of([&] { buffer.wait_signal(Rank{0}); }).message(), HasSubstr("has left the group"));
    EXPECT_EQ(buffer.sub(0, 10).size(), 3);
  };
  run_thread_group(3, body);
  run_process_group(3, body);
}

// --- signals ---

TEST(Signals, PairUpOneToOneOverManyRounds) {
  const auto body = [](Group& group) {
    const SymmetricBuffer buffer = group.allocate(64);
    const Rank right{(group.rank().value + 1) % group.size()};
    const Rank left{(group.rank().value + group.size() - 1) % group.size()};
    const auto mine = buffer.as<std::int64_t>();
    const int rounds = kSanitized ? 200 : 1000;
    for (int i = 1; i <= rounds; ++i) {
      mine[0] = i;
      buffer.put_signal(right, 3);
      buffer.wait_signal(left, 3);
      ASSERT_EQ(buffer.peer_as<std::int64_t>(left)[0], i);  // acquire: what was written before the signal
      buffer.put_signal(left, 4);                           // "I have read it"
      buffer.wait_signal(right, 4);
    }
    // None is left over.
    EXPECT_EQ(error_of([&] { buffer.wait_signal(left, 3, milliseconds{20}); }).code(), ErrorCode::timeout);
    group.barrier();
  };
  run_thread_group(4, body);
  run_process_group(3, body);
}

TEST(Signals, SentAheadAreCounted) {
  run_thread_group(2, [](Group& group) {
    const SymmetricBuffer buffer = group.allocate(64);
    const Rank other{1 - group.rank().value};
    for (int i = 0; i < 10; ++i) buffer.put_signal(other);
    group.barrier();
    for (int i = 0; i < 10; ++i) buffer.wait_signal(other);
    EXPECT_EQ(error_of([&] { buffer.wait_signal(other, 0, milliseconds{0}); }).code(), ErrorCode::timeout);
    group.barrier();
  });
}

TEST(Signals, ARankMaySignalItself) {
  run_thread_group(2, [](Group& group) {
    const SymmetricBuffer buffer = group.allocate(64);
    buffer.put_signal(group.rank());
    buffer.wait_signal(group.rank());
    EXPECT_EQ(error_of([&] { buffer.wait_signal(group.rank(), 0, milliseconds{1}); }).code(),
              ErrorCode::timeout);
    group.barrier();
  });
}

TEST(Signals, ATimeoutConsumesNothingAndNamesTheRank) {
  run_thread_group(2, [](Group& group) {
    const SymmetricBuffer buffer = group.allocate(64);
    if (group.rank() == Rank{0}) {
      const auto start = Clock::now();
      const Error error = error_of([&] { buffer.wait_signal(Rank{1}, 0, milliseconds{50}); });
      EXPECT_LT(Clock::now() - start, milliseconds{150} + kSlack);
      EXPECT_EQ(error.code(), ErrorCode::timeout);
      EXPECT_EQ(error.origin(), Rank{1});
      EXPECT_THAT(error.message(), HasSubstr("wait_signal: rank 0 waited 50 ms for rank 1"));
    }
    group.barrier();
    if (group.rank() == Rank{1}) buffer.put_signal(Rank{0});
    if (group.rank() == Rank{0}) buffer.wait_signal(Rank{1});
    group.barrier();
  });
}

TEST(Signals, ChannelsAndBuffersAndSubBuffersAreWhatTheySay) {
  run_thread_group(2, [](Group& group) {
    const SymmetricBuffer one = group.allocate(64);
    const SymmetricBuffer two = group.allocate(64);
    const Rank other{1 - group.rank().value};
    one.put_signal(other, 5);
    group.barrier();
    for (int channel = 0; channel < SymmetricBuffer::kChannels; ++channel) {
      if (channel != 5) {
        EXPECT_EQ(error_of([&] { one.wait_signal(other, channel, milliseconds{0}); }).code(),
                  ErrorCode::timeout);
      }
    }
    EXPECT_EQ(error_of([&] { two.wait_signal(other, 5, milliseconds{0}); }).code(), ErrorCode::timeout);
    one.sub(8, 8).wait_signal(other, 5);  // a sub-buffer shares the pad
    for (const int channel : {-1, SymmetricBuffer::kChannels}) {
      EXPECT_THAT(error_of([&] { one.put_signal(other, channel); }).message(), HasSubstr("0..15"));
      EXPECT_THAT(error_of([&] { one.wait_signal(other, channel); }).message(), HasSubstr("0..15"));
      EXPECT_THAT(error_of([&] { one.barrier(channel); }).message(), HasSubstr("0..15"));
    }
    EXPECT_THAT(error_of([&] { one.put_signal(Rank{2}); }).message(), HasSubstr("rank 2"));
    EXPECT_THAT(error_of([&] { one.wait_signal(Rank{-1}); }).message(), HasSubstr("rank -1"));
    group.barrier();
  });
}

TEST(Signals, ThreadsOfOneRankUseDifferentChannelsAtOnce) {
  run_thread_group(2, [](Group& group) {
    const SymmetricBuffer buffer = group.allocate(64);
    const Rank other{1 - group.rank().value};
    run_threads(4, [&](Rank channel) {
      for (int i = 0; i < 200; ++i) {
        buffer.put_signal(other, channel.value);
        buffer.wait_signal(other, channel.value);
        buffer.barrier(channel.value);
      }
    });
  });
}

TEST(Barriers, OrderMemory) {
  const auto body = [](Group& group) {
    const SymmetricBuffer buffer = group.allocate(sizeof(std::int64_t) * 1000);
    const int rounds = kSanitized ? 30 : 200;
    for (int i = 1; i <= rounds; ++i) {
      for (std::int64_t& each : buffer.as<std::int64_t>()) each = i;
      i % 2 == 0 ? buffer.barrier(i % 16) : group.barrier();
      for (int r = 0; r < group.size(); ++r)
        ASSERT_THAT(buffer.peer_as<std::int64_t>(Rank{r}), ::testing::Each(i));
      i % 2 == 0 ? group.barrier() : buffer.barrier(i % 16);
    }
  };
  run_thread_group(4, body);
  run_process_group(3, body);
}

TEST(Barriers, ATimeoutNamesTheRankThatIsMissingAndEndsTheGroup) {
  for (const bool of_buffer : {false, true}) {
    run_thread_group(3, [&](Group& group) {
      const SymmetricBuffer buffer = group.allocate(64);
      const auto wait = [&] {
        of_buffer ? buffer.barrier(0, milliseconds{200}) : group.barrier(milliseconds{200});
      };
      if (group.rank() == Rank{2}) {
        // Not a barrier, so the others wait in vain; ends when they have given up.
        EXPECT_EQ(error_of([&] { buffer.wait_signal(Rank{0}); }).code(), ErrorCode::timeout);
      } else {
        const auto start = Clock::now();
        const Error error = error_of(wait);
        EXPECT_LT(Clock::now() - start, milliseconds{300} + kSlack);
        EXPECT_EQ(error.code(), ErrorCode::timeout);
        EXPECT_EQ(error.origin(), Rank{2});
        EXPECT_THAT(error.message(), HasSubstr("waited 200 ms for rank 2"));
      }
      EXPECT_EQ(error_of([&] { group.barrier(); }).code(), ErrorCode::timeout);
      EXPECT_EQ(error_of([&] { group.check(); }).code(), ErrorCode::timeout);
    });
  }
}

TEST(Barriers, ANegativeTimeoutIsRefusedBeforeAnythingHappens) {
  run_thread_group(2, [](Group& group) {
    const SymmetricBuffer buffer = group.allocate(64);
    const Rank other{1 - group.rank().value};
    EXPECT_EQ(error_of([&] { group.barrier(milliseconds{-1}); }).code(), ErrorCode::invalid_argument);
    EXPECT_EQ(error_of([&] { buffer.barrier(0, milliseconds{-1}); }).code(), ErrorCode::invalid_argument);
    EXPECT_EQ(error_of([&] { buffer.wait_signal(other, 0, milliseconds{-1}); }).code(),
              ErrorCode::invalid_argument);
    float x = 1;
    EXPECT_EQ(error_of([&] {
                (void)all_reduce(group, &x, &x, 1, DType::f32, ReduceOp::sum, {},
                                 {.algorithm = {}, .timeout = milliseconds{-1}});
              }).code(),
              ErrorCode::invalid_argument);
    for (int i = 0; i < 100; ++i) {
      expect_usable(group);
      buffer.barrier();
    }
  });
}

// --- groups ---

TEST(Group, TellsWhatItIs) {
  JoinOptions options;
  options.name = "mine";
  options.timeout = seconds{17};
  run_thread_group(
      3,
      [](Group& group) {
        EXPECT_EQ(group.size(), 3);
        EXPECT_TRUE(group.device().is_host());
        EXPECT_EQ(group.name(), "mine");
        EXPECT_EQ(group.timeout(), seconds{17});
        EXPECT_EQ(group.id().size(), 32u);
        EXPECT_THAT(group.all_gather(group.id()), ::testing::Each(group.id()));
        EXPECT_THAT(group.all_gather(std::string(1, static_cast<char>('a' + group.rank().value))),
                    ::testing::ElementsAre("a", "b", "c"));
        EXPECT_NO_THROW(group.check());
      },
      options);
}

TEST(Group, BadOptionsAreOneClearLine) {
  const auto join_error = [](
                              int rank, int size,
                              const std::function<void(JoinOptions&)>& change = [](JoinOptions&) {}) {
    JoinOptions options{.rank = Rank{rank}, .size = size};
    options.timeout = milliseconds{200};
    change(options);
    return error_of([&] { (void)Group::join(memory_store(), options); });
  };
  EXPECT_THAT(join_error(0, 1).message(), HasSubstr("at least 2 ranks"));
  EXPECT_THAT(join_error(2, 2).message(), HasSubstr("rank 2 of a group of 2"));
  EXPECT_THAT(join_error(-1, 2).message(), HasSubstr("rank -1"));
  EXPECT_THAT(join_error(0, 2, [](JoinOptions& o) { o.name = "a/b"; }).message(), HasSubstr("'a/b'"));
  EXPECT_THAT(join_error(0, 2, [](JoinOptions& o) { o.name = ""; }).message(), HasSubstr("name"));
  EXPECT_THAT(join_error(0, 2, [](JoinOptions& o) { o.timeout = milliseconds{-5}; }).message(),
              HasSubstr("-5"));
  EXPECT_THAT(error_of([] { (void)Group::join(nullptr, {.rank = Rank{0}, .size = 2}); }).message(),
              HasSubstr("store"));
}

TEST(Group, ARankWithUnusableOptionsFailsAllWithItsError) {
  SameError same;
  const std::shared_ptr<Store> store = memory_store();
  run_threads(3, [&](Rank rank) {
    JoinOptions options{.rank = rank, .size = 3};
    if (rank == Rank{1}) options.scratch_bytes = 100;
    same.add(error_of([&] { (void)Group::join(store, options); }));
  });
  EXPECT_THAT(same.of(3), AllOf(HasSubstr("rank 1: scratch_bytes 100"), HasSubstr("64 KiB")));
}

TEST(Group, MovedFromLeftAndReassignedGroupsSaySo) {
  run_thread_group(2, [](Group& joined) {
    Group group = std::move(joined);
    EXPECT_THAT(error_of([&] { joined.barrier(); }).message(),
                HasSubstr("moved from"));  // NOLINT(bugprone-use-after-move)
    EXPECT_THAT(error_of([&] { (void)joined.rank(); }).message(), HasSubstr("moved from"));
    EXPECT_THAT(error_of([&] { (void)joined.allocate(1); }).message(), HasSubstr("moved from"));
    joined.abort("nothing to abort");
    joined.leave();
    expect_usable(group);
    group.barrier();
    group.leave();
    group.leave();
    for (const auto& call : std::vector<std::function<void()>>{
             [&] { group.barrier(); }, [&] { group.check(); }, [&] { (void)group.allocate(1); },
             [&] { (void)group.register_buffer(&group, 1); }, [&] { (void)group.split(0); },
             [&] { (void)group.all_gather(""); }}) {
      const Error error = error_of(call);
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_THAT(error.message(), HasSubstr("has left the group"));
    }
    EXPECT_EQ(group.size(), 2);
  });
}

TEST(Group, IsLeftAndJoinedAgainOverOneStore) {
  const auto body = [](const std::shared_ptr<Store>& store, Rank rank) {
    std::string before;
    for (int i = 0; i < 20; ++i) {
      Group group = Group::join(store, {.rank = rank, .size = 3});
      EXPECT_NE(group.id(), before);
      before = group.id();
      expect_usable(group);
    }
  };
  const std::shared_ptr<Store> store = memory_store();
  run_threads(3, [&](Rank rank) { body(store, rank); });
  const TempDir dir;
  Processes processes(3, [&](Rank rank) {
    body(file_store(dir.path()), rank);
    return std::string();
  });
  for (const Exit& exit : processes.wait(seconds{60})) EXPECT_EQ(exit.code, 0) << exit.text;
}

TEST(Group, SeveralAtOnceFromSeveralThreadsAreIndependent) {
  const std::shared_ptr<Store> store = memory_store();
  constexpr int kGroups = 3;
  run_threads(2 * kGroups, [&](Rank thread) {
    const int which = thread.value / 2;
    JoinOptions options{.rank = Rank{thread.value % 2}, .size = 2};
    options.name = fmt::format("group{}", which);
    Group group = Group::join(store, options);
    const SymmetricBuffer buffer = group.allocate(1000);
    for (int round = 0; round < 50; ++round) {
      std::vector<std::int32_t> data(static_cast<std::size_t>(100 * (which + 1)), which + 1);
      all_reduce(group, std::span<std::int32_t>(data));
      ASSERT_THAT(data, ::testing::Each(2 * (which + 1)));
      expect_shared(group, buffer, round);
    }
  });
}

TEST(Group, ThreadsOfOneRankMayCallAtOnce) {
  // Calls of one group are serialised, in no particular order; these are all the same, so any order will do.
  run_thread_group(2, [](Group& group) {
    run_threads(3, [&](Rank) {
      for (int i = 0; i < 50; ++i) expect_usable(group);
    });
  });
}

// --- splitting ---

TEST(Split, FormsAGroupPerColourOrderedByKeyThenRank) {
  const auto body = [](Group& group) {
    const int rank = group.rank().value;
    // Keys count down among the even ranks and are all the same among the odd ones.
    std::optional<Group> part = group.split(rank % 2, rank % 2 == 0 ? -rank : 7);
    ASSERT_TRUE(part.has_value());
    EXPECT_EQ(part->size(), 3);
    EXPECT_EQ(part->rank().value, rank % 2 == 0 ? 2 - rank / 2 : rank / 2);
    EXPECT_THAT(part->name(), HasSubstr(group.name()));
    EXPECT_NE(part->id(), group.id());
    EXPECT_THAT(part->all_gather(part->id()), ::testing::Each(part->id()));
    expect_usable(*part);
    expect_shared(*part, part->allocate(1000));
    expect_usable(group);

    // Nested, after which all of them still work.
    if (rank % 2 == 0) {
      std::optional<Group> pair = part->split(part->rank() == Rank{1} ? -1 : 0);
      EXPECT_EQ(pair.has_value(), part->rank() != Rank{1});
      if (pair) expect_usable(*pair);
      if (pair) pair->barrier();
      part->barrier();
    }
    part->barrier();
    group.barrier();
  };
  run_thread_group(6, body);
  run_process_group(6, body);
}

TEST(Split, ANegativeColourGetsNoGroup) {
  run_thread_group(4, [](Group& group) {
    std::optional<Group> part = group.split(group.rank().value < 2 ? -1 : 5);
    EXPECT_EQ(part.has_value(), group.rank().value >= 2);
    if (part) expect_usable(*part);
    EXPECT_FALSE(group.split(-3).has_value());
    expect_usable(group);
  });
}

TEST(Split, ALonelyColourIsRefusedOnAllRanksAndTheGroupStaysUsable) {
  SameError same;
  run_thread_group(3, [&](Group& group) {
    same.add(error_of([&] { (void)group.split(group.rank() == Rank{1} ? 9 : 0); }));
    expect_usable(group);
    EXPECT_TRUE(group.split(0).has_value());
  });
  EXPECT_THAT(same.of(3), AllOf(HasSubstr("refused of rank 1"), HasSubstr("rank 1 is alone with colour 9")));
}

TEST(Split, APartFailsAloneAndOutlivesItsParent) {
  run_thread_group(4, [](Group& joined) {
    Group group = std::move(joined);
    std::optional<Group> part = group.split(group.rank().value / 2);
    if (group.rank().value < 2) {
      if (part->rank() == Rank{0}) part->abort("only this part");
      EXPECT_EQ(error_of([&] { part->barrier(); }).code(), ErrorCode::aborted);
    }
    expect_usable(group);
    const bool intact = group.rank().value >= 2;
    group.leave();
    if (intact) expect_usable(*part);
  });
}

// --- failures ---

TEST(Abort, FromAnotherThreadWakesEveryWaiterInTimeWithRankAndReason) {
  const auto body = [](Group& group) {
    const SymmetricBuffer buffer = group.allocate(64);
    group.barrier();
    std::thread aborter;
    if (group.rank() == Rank{1}) {
      aborter = std::thread([&] {
        std::this_thread::sleep_for(
            milliseconds{50});  // most likely all wait by now; if not, so much the better
        group.abort("the user pressed stop");
      });
    }
    const auto start = Clock::now();
    const Error error = error_of([&] {
      // Nobody does its part, so all wait: in a collective, for a signal, in a barrier.
      if (group.rank() == Rank{0}) buffer.wait_signal(Rank{1});
      if (group.rank() == Rank{1}) group.barrier();
      buffer.barrier();
    });
    EXPECT_LT(Clock::now() - start, milliseconds{300} + kSlack);
    if (aborter.joinable()) aborter.join();
    EXPECT_EQ(error.code(), ErrorCode::aborted);
    EXPECT_EQ(error.origin(), Rank{1});
    EXPECT_EQ(error.message(), "rank 1 aborted the group: the user pressed stop");
    EXPECT_EQ(error_of([&] { expect_usable(group); }).message(), error.message());
    EXPECT_EQ(error_of([&] { (void)group.allocate(1); }).message(), error.message());
    EXPECT_EQ(error_of([&] { group.check(); }).message(), error.message());
  };
  run_thread_group(3, body);
  run_process_group(3, body);
}

TEST(Abort, SurvivorsFormANewGroup) {
  const std::shared_ptr<Store> store = memory_store();
  run_threads(3, [&](Rank rank) {
    // Some may hear of it while they still join.
    const Error error = error_of([&] {
      Group group = Group::join(store, {.rank = rank, .size = 3});
      if (rank == Rank{2}) group.abort("no more");
      group.barrier();
    });
    EXPECT_EQ(error.code(), ErrorCode::aborted) << error.what();
    if (rank == Rank{2}) return;
    Group group = Group::join(store, {.rank = rank, .size = 2});
    expect_usable(group);
  });
}

TEST(Leaving, ARankThatOthersWaitForIsMissedAtOnce) {
  const auto body = [](Group& group) {
    const SymmetricBuffer buffer = group.allocate(64);
    group.barrier();
    if (group.rank() == Rank{1}) return;
    const auto start = Clock::now();
    const Error error =
        error_of([&] { group.rank() == Rank{0} ? group.barrier() : buffer.wait_signal(Rank{1}); });
    EXPECT_LT(Clock::now() - start, milliseconds{250} + kSlack);
    EXPECT_EQ(error.code(), ErrorCode::peer_lost) << error.what();
    EXPECT_EQ(error.origin(), Rank{1});
    EXPECT_THAT(error.message(), HasSubstr("rank 1 has left the group"));
  };
  run_thread_group(3, body);
  run_process_group(3, body);
}

TEST(Fork, TheChildsCopyIsDeadAndItsEndDisturbsNobody) {
  run_process_group(2, [](Group& group) {
    const SymmetricBuffer buffer = group.allocate(64);
    group.barrier();
    const pid_t child = ::fork();
    if (child == 0) {
      int wrong = 0;
      const auto expect_dead = [&](const std::function<void()>& call) {
        try {
          call();
          ++wrong;
        } catch (const Error& error) {
          if (error.message().find("forked") == std::string::npos) ++wrong;
        }
      };
      expect_dead([&] { group.barrier(); });
      expect_dead([&] { group.check(); });
      expect_dead([&] { (void)group.allocate(10); });
      expect_dead([&] { (void)group.all_gather(""); });
      expect_dead([&] { buffer.barrier(); });
      expect_dead([&] { buffer.put_signal(Rank{0}); });
      expect_dead([&] { buffer.wait_signal(Rank{0}, 0, milliseconds{10}); });
      group.abort("the child's wish");
      { const Group gone = std::move(group); }
      ::_exit(wrong);
    }
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 0);
    // Neither a signal nor a barrier of the children arrived.
    const Rank other{1 - group.rank().value};
    EXPECT_EQ(error_of([&] { buffer.wait_signal(other, 0, milliseconds{0}); }).code(), ErrorCode::timeout);
    buffer.barrier();
    expect_usable(group);
    group.barrier();
  });
}

TEST(Fork, AParentsDeathIsNoticedThoughItsChildLives) {
  const TempDir dir;
  std::array<int, 2> children_end{};  // the child of rank 1 lives until this test closes it
  ASSERT_EQ(::pipe2(children_end.data(), O_CLOEXEC), 0);
  Processes processes(2, [&](Rank rank) -> std::string {
    ::close(children_end[1]);
    Group group = Group::join(file_store(dir.path()), {.rank = rank, .size = 2});
    group.barrier();
    if (rank == Rank{1}) {
      if (::fork() == 0) {
        char byte = 0;
        (void)!::read(children_end[0], &byte, 1);
        ::_exit(0);
      }
      ::kill(::getpid(), SIGKILL);
    }
    const auto start = Clock::now();
    const Error error = error_of([&] { group.barrier(); });
    EXPECT_LT(Clock::now() - start, milliseconds{250} + kSlack);
    return error.message();
  });
  const Exit survivor = processes.wait(seconds{20}, {1})[0];
  EXPECT_EQ(survivor.code, 0);
  EXPECT_THAT(survivor.text, HasSubstr("rank 1 died"));
  ::close(children_end[0]);
  ::close(children_end[1]);
  EXPECT_EQ(processes.wait(seconds{20})[1].signal, SIGKILL);
}

// --- nothing left behind ---

TEST(Footprint, AThousandGroupsWithABufferEachLeaveNothingBehind) {
  const int cycles = kSanitized ? 100 : 1000;
  const std::shared_ptr<Store> store = memory_store();
  const auto run_cycles = [&](int count) {
    run_threads(2, [&](Rank rank) {
      JoinOptions options{.rank = rank, .size = 2};
      options.scratch_bytes = 64 << 10;
      for (int i = 0; i < count; ++i) {
        Group group = Group::join(store, options);
        const SymmetricBuffer buffer = group.allocate(100000);
        expect_usable(group);
      }
    });
  };
  // What the first cycles set up once (heap arenas, thread stacks) is no growth.
  run_cycles(cycles / 10);
  const testing::Footprint before = testing::footprint();
  run_cycles(cycles);
  const testing::Footprint after = testing::footprint();
  std::printf(
      "%d create/destroy cycles: descriptors %d -> %d, threads %d -> %d, mappings %d -> %d, address space "
      "%zu -> %zu KiB\n",
      cycles, before.descriptors, after.descriptors, before.threads, after.threads, before.mappings,
      after.mappings, before.address_space >> 10, after.address_space >> 10);
  EXPECT_EQ(after.descriptors, before.descriptors);
  EXPECT_EQ(after.threads, before.threads);
  // A heap arena more or less; a leaked buffer would show a thousandfold.
  EXPECT_LE(after.mappings, before.mappings + 10);
  if (kSanitized) return;  // sanitizers keep freed memory for a while
  EXPECT_LE(after.address_space, before.address_space + (std::size_t{130} << 20));
}

}  // namespace
}  // namespace onehop
