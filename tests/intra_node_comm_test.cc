// SPDX-License-Identifier: Apache-2.0
// IntraNodeComm: which ranks get one, identically on all ranks; and what it does then.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <optional>

#include "onehop/onehop.h"

#include "group/messages.h"
#include "support/errors.h"
#include "support/group_checks.h"
#include "support/ranks.h"
#include "support/sanitizers.h"
#include "support/scoped_variable.h"

namespace onehop::testing {
namespace {

using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class IntraNode : public ::testing::Test {
 protected:
  IntraNode() {
    for (const char* name :
         {"TEST_INTRA_NODE_COMM", "ONEHOP_FORCE_FULLY_CONNECTED", "ONEHOP_ALLOW_OVERLAPPING_DEVICES"})
      ::unsetenv(name);
  }
  ScopedVariable enabled_{"ENABLE_INTRA_NODE_COMM", "1"};
};

IntraNodeOptions on(const Topology& topology, int device) {
  IntraNodeOptions options;
  options.device = DeviceId{device};
  options.topology = topology;
  return options;
}

Topology shipped(const std::string& name) {
  return Topology::load(ONEHOP_TEST_TOPOLOGIES "/" + name + ".json");
}

/// Makes a communicator of `n` threads and calls `body` on each rank, before any rendezvous.
void run_ranks(int n, const std::function<void(IntraNodeComm&)>& body, const IntraNodeOptions& options = {},
               std::size_t buffer_bytes = IntraNodeComm::kDefaultBufferBytes) {
  const std::shared_ptr<Store> store = memory_store();
  run_threads(n, [&](Rank rank) {
    IntraNodeComm comm(store, rank, n, buffer_bytes, options);
    body(comm);
  });
}

/// The reason that all of `n` ranks get, each on the topology's GPU devices[rank].
std::string refusal_of(const Topology& topology, const std::vector<int>& devices,
                       const std::function<void(Rank, IntraNodeOptions&)>& change = {}) {
  const std::shared_ptr<Store> store = memory_store();
  const int n = static_cast<int>(devices.size());
  std::vector<std::string> reasons(devices.size());
  run_threads(n, [&](Rank rank) {
    const auto index = static_cast<std::size_t>(rank.value);
    IntraNodeOptions options = on(topology, devices[index]);
    if (change) change(rank, options);
    IntraNodeComm comm(store, rank, n, IntraNodeComm::kDefaultBufferBytes, options);
    EXPECT_FALSE(comm.rendezvous());
    reasons[index] = comm.reason();
  });
  EXPECT_THAT(reasons, Each(reasons[0]));
  EXPECT_THAT(reasons[0], Not(HasSubstr("\n")));
  return reasons[0];
}

/// Matches one line: the warning in which rank 0, and no other rank, says that there is no communicator.
auto is_one_warning() {
  return ContainsRegex("^[^\n]*warning[^\n]* no IntraNodeComm 'world': [^\n]*\n$");
}

// --- who gets one ---

TEST_F(IntraNode, IsEnabledByItsVariableAlone) {
  EXPECT_TRUE(IntraNodeComm::is_enabled());
  for (const char* off : {"0", "", "false"}) {
    const ScopedVariable variable("ENABLE_INTRA_NODE_COMM", off);
    EXPECT_FALSE(IntraNodeComm::is_enabled()) << off;
  }
  EXPECT_FALSE(IntraNodeComm::is_enabled()) << "not set";
  const ScopedVariable nonsense("ENABLE_INTRA_NODE_COMM", "perhaps");
  EXPECT_THAT(message_of([] { (void)IntraNodeComm::is_enabled(); }, ErrorCode::invalid_argument),
              HasSubstr("ENABLE_INTRA_NODE_COMM='perhaps'"));
}

TEST_F(IntraNode, RendezvousSucceedsOnceAndIsTrueAtOnceFromThenOn) {
  const std::shared_ptr<Store> store = memory_store();
  run_threads(3, [&](Rank rank) {
    IntraNodeComm comm(store, rank, 3);
    EXPECT_THAT(message_of([&] { (void)comm.group(); }, ErrorCode::invalid_argument),
                HasSubstr("rendezvous"));
    ASSERT_TRUE(comm.rendezvous());
    const std::string id = comm.group().id();
    // Without the others: they may never call it again.
    if (comm.rank() == Rank{1}) {
      EXPECT_TRUE(comm.rendezvous());
    }
    EXPECT_EQ(comm.group().id(), id);
    EXPECT_THAT(comm.reason(), IsEmpty());
    EXPECT_EQ(comm.size(), 3);
    EXPECT_EQ(comm.group().size(), 3);
    EXPECT_TRUE(comm.device().is_host());
    EXPECT_EQ(comm.buffer_bytes(), 10u << 20);
    expect_usable(comm.group());
  });
}

// Runs in its own processes, because ONEHOP_LOG is read only once.
TEST_F(IntraNode, HasABufferOfTheSizeThatIsAskedForAndAtLeast64KiB) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto form = [](std::size_t buffer_bytes) {
    (void)::setenv("ONEHOP_LOG", "info", 1);
    run_ranks(
        2, [](IntraNodeComm& comm) { EXPECT_TRUE(comm.rendezvous()); }, {}, buffer_bytes);
    std::exit(0);
  };
  EXPECT_EXIT(form(3 << 20), ::testing::ExitedWithCode(0), HasSubstr(": scratch 3M per rank, "));
  EXPECT_EXIT(form(1000), ::testing::ExitedWithCode(0), HasSubstr(": scratch 64K per rank, "));
}

TEST_F(IntraNode, SeveralOverOneStoreNeedNamesAndOneAfterAnotherDoNot) {
  const std::shared_ptr<Store> store = memory_store();
  run_threads(2, [&](Rank rank) {
    IntraNodeOptions named;
    named.name = "second";
    for (int round = 0; round < 2; ++round) {
      IntraNodeComm first(store, rank, 2);
      ASSERT_TRUE(first.rendezvous());
      IntraNodeComm second(store, rank, 2, 1 << 20, named);
      ASSERT_TRUE(second.rendezvous());
      Group beside = Group::join(store, {.rank = rank, .size = 2});
      expect_usable(beside);
      expect_usable(second.group());
      expect_usable(first.group());
    }
  });
}

TEST_F(IntraNode, OneRankThatIsNotEnabledIsHeardByAll) {
  const TempDir directory;
  Processes ranks(3, [&](Rank rank) {
    if (rank == Rank{1}) ::unsetenv("ENABLE_INTRA_NODE_COMM");
    IntraNodeComm comm(file_store(directory.path() + "/store"), rank, 3);
    const bool formed = comm.rendezvous();
    return fmt::format("{}: {}", formed, comm.reason());
  });
  for (const Exit& each : ranks.wait(seconds{60})) {
    EXPECT_EQ(each.code, 0) << each.text;
    EXPECT_EQ(each.text, "false: not enabled on rank 1: set ENABLE_INTRA_NODE_COMM=1 on all ranks");
  }
}

TEST_F(IntraNode, DisabledItIsFalseEvenWhereTheDeviceDoesNotExist) {
  const ScopedVariable off("ENABLE_INTRA_NODE_COMM", "0");
  IntraNodeOptions nowhere;
  nowhere.device = DeviceId{63};
  run_ranks(
      2,
      [](IntraNodeComm& comm) {
        EXPECT_FALSE(comm.rendezvous());
        EXPECT_THAT(comm.reason(), HasSubstr("ranks 0, 1"));
        std::array<float, 4> data{};
        EXPECT_EQ(comm.select_all_reduce_algorithm(data.data(), data.size(), DType::f32), Algorithm::none);
        EXPECT_THAT(message_of([&] { comm.all_reduce(data.data(), 4, DType::f32, Algorithm::one_shot); },
                               ErrorCode::invalid_argument),
                    HasSubstr("rendezvous"));
      },
      nowhere);
}

TEST_F(IntraNode, AfterFalseAllRanksMayTryAgain) {
  const TempDir directory;
  Processes ranks(2, [&](Rank rank) {
    IntraNodeComm comm(file_store(directory.path() + "/store"), rank, 2);
    if (rank == Rank{0}) ::setenv("ENABLE_INTRA_NODE_COMM", "0", 1);
    const bool first = comm.rendezvous();
    ::setenv("ENABLE_INTRA_NODE_COMM", "1", 1);
    return fmt::format("{} {} '{}'", first, comm.rendezvous(), comm.reason());
  });
  for (const Exit& each : ranks.wait(seconds{60})) EXPECT_EQ(each.text, "false true ''");
}

TEST_F(IntraNode, HasTwoToEightRanks) {
  for (const int n : {1, 9}) {
    run_ranks(n, [n](IntraNodeComm& comm) {
      EXPECT_FALSE(comm.rendezvous());
      EXPECT_EQ(comm.reason(), fmt::format("an IntraNodeComm has 2 to 8 ranks, got {}", n));
    });
  }
  // More ranks than can communicate at all: refused without any exchange.
  IntraNodeComm large(memory_store(), Rank{5}, 2'000'000'000);
  EXPECT_FALSE(large.rendezvous());
  EXPECT_THAT(large.reason(), HasSubstr("2000000000"));
}

TEST_F(IntraNode, RanksThatWereToldDifferentWorldSizesAllHearOfIt) {
  const std::shared_ptr<Store> store = memory_store();
  run_threads(3, [&](Rank rank) {
    IntraNodeComm comm(store, rank, rank == Rank{2} ? 9 : 3);
    EXPECT_FALSE(comm.rendezvous());
    EXPECT_THAT(comm.reason(), AllOf(HasSubstr("ranks 0 and 2"), HasSubstr("3 and 9")));
  });
}

/// A store in which rank 1 claims to be on another machine.
std::shared_ptr<Store> store_of_two_hosts() {
  const std::shared_ptr<Store> real = memory_store();
  StoreCallbacks callbacks;
  callbacks.set = [real](std::string_view key, std::string_view value, Duration timeout) {
    std::string changed(value);
    if (key.ends_with("/ack/1")) {
      Ack ack = parse_ack(value);
      ack.hello.boot_id = "another-boot";
      ack.hello.hostname = "far-away";
      changed = encode(ack);
    }
    real->set(key, changed, timeout);
  };
  callbacks.get_for = [real](std::string_view key, Duration timeout) { return real->get_for(key, timeout); };
  callbacks.add = [real](std::string_view key, std::int64_t delta, Duration timeout) {
    return real->add(key, delta, timeout);
  };
  callbacks.compare_set = [real](std::string_view key, std::string_view expected, std::string_view desired,
                                 Duration timeout) {
    return real->compare_set(key, expected, desired, timeout);
  };
  callbacks.delete_key = [real](std::string_view key, Duration timeout) {
    return real->delete_key(key, timeout);
  };
  return callback_store(std::move(callbacks));
}

TEST_F(IntraNode, SeveralHostsAreRefused) {
  const std::shared_ptr<Store> store = store_of_two_hosts();
  ::testing::internal::CaptureStderr();
  run_threads(3, [&](Rank rank) {
    IntraNodeComm comm(store, rank, 3);
    EXPECT_FALSE(comm.rendezvous());
    EXPECT_THAT(comm.reason(), AllOf(HasSubstr("different machines"), HasSubstr("far-away")));
  });
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              AllOf(is_one_warning(), HasSubstr("ranks 0 and 1 are on different machines ("),
                    HasSubstr(" and far-away)")));
}

TEST_F(IntraNode, GpusThatAreNotFullyConnectedAreRefused) {
  ::testing::internal::CaptureStderr();
  EXPECT_THAT(refusal_of(shipped("pcie4"), {0, 1, 2, 3}),
              AllOf(HasSubstr("not fully connected by NVLink"), HasSubstr("11 more")));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              AllOf(is_one_warning(), HasSubstr("not fully connected by NVLink")));
  EXPECT_THAT(refusal_of(shipped("two_islands"), {0, 3}), HasSubstr("NVLink"));
  EXPECT_THAT(refusal_of(shipped("hybrid_cube_mesh"), {0, 1, 2, 3, 4, 5, 6, 7}),
              HasSubstr("compute capability 7.0"));
}

TEST_F(IntraNode, RanksThatSeeDifferentTopologiesStillAgree) {
  // Rank 1 sees no link from its GPU; the others see them all.
  Topology blind = shipped("h200x4");
  for (const int to : {0, 2}) {
    PairInfo pair = blind.pair(DeviceId{1}, DeviceId{to});
    pair.nvlinks = 0;
    blind.set_pair(DeviceId{1}, DeviceId{to}, pair);
  }
  EXPECT_THAT(
      refusal_of(shipped("h200x4"), {0, 1, 2},
                 [&](Rank rank, IntraNodeOptions& options) {
                   if (rank == Rank{1}) options.topology = blind;
                 }),
      AllOf(HasSubstr("no link from GPU 1"), HasSubstr("of rank 1 to"), HasSubstr("1 more direction;")));
}

TEST_F(IntraNode, TwoRanksOnOneGpuAreRefusedUnlessAllAllowIt) {
  ::testing::internal::CaptureStderr();
  EXPECT_THAT(refusal_of(shipped("h200x4"), {1, 2, 1}), HasSubstr("ranks 0 and 2 use the same GPU"));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              AllOf(is_one_warning(), HasSubstr("ranks 0 and 2 use the same GPU"),
                    HasSubstr("set ONEHOP_ALLOW_OVERLAPPING_DEVICES=1 on all ranks")));
  EXPECT_THAT(refusal_of(shipped("h200x4"), {1, 1},
                         [](Rank rank, IntraNodeOptions& options) {
                           options.allow_overlapping_devices = rank == Rank{0};
                         }),
              HasSubstr("ranks 0 and 1 use the same GPU"));
}

TEST_F(IntraNode, AGpuBelowComputeCapability8IsRefused) {
  const Topology machine = shipped("h200x4");
  std::vector<DeviceInfo> devices = machine.devices();
  devices[2].compute_capability = 75;
  EXPECT_THAT(refusal_of(Topology(machine.host(), devices), {1, 2}),
              AllOf(HasSubstr("of rank 1 has compute capability 7.5"), HasSubstr("8.0")));
}

TEST_F(IntraNode, HostAndGpuRanksDoNotMix) {
  EXPECT_THAT(refusal_of(shipped("h200x4"), {0, -1}), HasSubstr("a GPU and the host"));
}

TEST_F(IntraNode, BuffersOfDifferentSizesAreRefused) {
  const std::shared_ptr<Store> store = memory_store();
  run_threads(2, [&](Rank rank) {
    IntraNodeComm comm(store, rank, 2, rank == Rank{0} ? 1000 : 2000);
    EXPECT_FALSE(comm.rendezvous());
    EXPECT_THAT(comm.reason(), HasSubstr("1000 and 2000 bytes"));
  });
}

/// Accepted ranks go on to join on real GPUs; here the topology's GPUs do not exist.
void expect_accepted(const Topology& topology, const std::vector<int>& devices,
                     const std::function<void(IntraNodeOptions&)>& change = {}) {
  const std::shared_ptr<Store> store = memory_store();
  const int n = static_cast<int>(devices.size());
  run_threads(n, [&](Rank rank) {
    IntraNodeOptions options = on(topology, devices[static_cast<std::size_t>(rank.value)]);
    if (change) change(options);
    IntraNodeComm comm(store, rank, n, 1 << 20, options);
    const ErrorCode code = error_of([&] { (void)comm.rendezvous(); }).code();
    EXPECT_TRUE(code == ErrorCode::unsupported || code == ErrorCode::invalid_argument) << to_string(code);
    EXPECT_THAT(comm.reason(), IsEmpty());
  });
}

TEST_F(IntraNode, WhatIsFullyConnectedOrForcedGoesOnToTheGpus) {
  if (Topology::probe().device_count() > 0) GTEST_SKIP() << "tests/gpu tests this on real GPUs";
  expect_accepted(shipped("h200x4"), {0, 1, 2, 3});
  {
    const ScopedVariable forced("TEST_INTRA_NODE_COMM", "1");
    expect_accepted(shipped("pcie4"), {0, 1});
  }
  {
    const ScopedVariable forced("ONEHOP_FORCE_FULLY_CONNECTED", "1");
    expect_accepted(shipped("two_islands"), {0, 3});
  }
  expect_accepted(shipped("h200x4"), {1, 1},
                  [](IntraNodeOptions& options) { options.allow_overlapping_devices = true; });
  const ScopedVariable allowed("ONEHOP_ALLOW_OVERLAPPING_DEVICES", "1");
  expect_accepted(shipped("h200x4"), {2, 2});
}

// --- real failures ---

TEST_F(IntraNode, WhatOneRankCannotUseIsAnErrorOnAll) {
  const auto expect_error = [](const std::string& named,
                               const std::function<void(Rank, IntraNodeOptions&)>& change,
                               std::size_t buffer_of_rank_1 = 1 << 20) {
    const std::shared_ptr<Store> store = memory_store();
    run_threads(3, [&](Rank rank) {
      IntraNodeOptions options = on(shipped("h200x4"), rank.value);
      if (rank == Rank{1}) change(rank, options);
      IntraNodeComm comm(store, rank, 3, rank == Rank{1} ? buffer_of_rank_1 : 1 << 20, options);
      const Error error = error_of([&] { (void)comm.rendezvous(); });
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_EQ(error.origin(), Rank{1});
      EXPECT_THAT(error.message(), AllOf(HasSubstr("rank 1"), HasSubstr(named)));
    });
  };
  const auto nothing = [](Rank, IntraNodeOptions&) {};
  expect_error("-5 ms", [](Rank, IntraNodeOptions& options) { options.timeout = Duration{-5}; });
  expect_error("device -2", [](Rank, IntraNodeOptions& options) { options.device = DeviceId{-2}; });
  expect_error("device 4", [](Rank, IntraNodeOptions& options) { options.device = DeviceId{4}; });
  expect_error("0 bytes", nothing, 0);
}

TEST_F(IntraNode, AVariableThatMakesNoSenseIsAnErrorThatNamesIt) {
  for (const char* name :
       {"ENABLE_INTRA_NODE_COMM", "TEST_INTRA_NODE_COMM", "ONEHOP_ALLOW_OVERLAPPING_DEVICES"}) {
    const ScopedVariable nonsense(name, "2");
    const ScopedVariable on_again("ENABLE_INTRA_NODE_COMM",
                                  std::string(name) == "ENABLE_INTRA_NODE_COMM" ? "2" : "1");
    const std::shared_ptr<Store> store = memory_store();
    run_threads(2, [&](Rank rank) {
      IntraNodeComm comm(store, rank, 2, 1 << 20, on(shipped("h200x4"), rank.value));
      EXPECT_THAT(message_of([&] { (void)comm.rendezvous(); }, ErrorCode::invalid_argument),
                  HasSubstr(fmt::format("{}='2'", name)));
    });
  }
}

TEST_F(IntraNode, ARankThatDoesNotComeIsNamedAtTheDeadline) {
  const std::shared_ptr<Store> store = memory_store();
  run_threads(2, [&](Rank rank) {
    IntraNodeOptions options;
    options.timeout = Duration{2000};
    IntraNodeComm comm(store, rank, 3, 1 << 20, options);
    const Error error = error_of([&] { (void)comm.rendezvous(); });
    EXPECT_EQ(error.code(), ErrorCode::timeout) << error.message();
    EXPECT_EQ(error.origin(), Rank{2});
  });
}

TEST_F(IntraNode, WhatCannotEvenReachTheOthersIsRefusedByTheConstructor) {
  const auto expect_refused = [](std::shared_ptr<Store> store, int rank, int size, const std::string& name) {
    IntraNodeOptions options;
    options.name = name;
    (void)message_of([&] { (void)IntraNodeComm(std::move(store), Rank{rank}, size, 1 << 20, options); },
                     ErrorCode::invalid_argument);
  };
  expect_refused(nullptr, 0, 2, "world");
  expect_refused(memory_store(), 2, 2, "world");
  expect_refused(memory_store(), -1, 2, "world");
  expect_refused(memory_store(), 0, 0, "world");
  expect_refused(memory_store(), 0, 2, "");
  expect_refused(memory_store(), 0, 2, "a/b");
  IntraNodeComm source(memory_store(), Rank{0}, 2);
  const IntraNodeComm target = std::move(source);
  EXPECT_EQ(target.size(), 2);
  // NOLINTNEXTLINE(bugprone-use-after-move): that it says so is what is tested
  EXPECT_THAT(message_of([&] { (void)source.rendezvous(); }, ErrorCode::invalid_argument),
              HasSubstr("moved"));
}

// --- what it does ---

TEST_F(IntraNode, SelectsOneShotTo256KiBTwoShotTo10MiBAndThenNone) {
  constexpr std::size_t kOneShot = 256 << 10;
  constexpr std::size_t kTwoShot = 10 << 20;
  alignas(16) static const std::array<std::byte, 64> bytes{};  // never read
  run_ranks(
      2,
      [](IntraNodeComm& comm) {
        const auto select = [&](std::size_t size, DType type = DType::f32, std::size_t shift = 0) {
          return comm.select_all_reduce_algorithm(bytes.data() + shift, size / size_of(type), type);
        };
        EXPECT_EQ(select(4), Algorithm::none) << "before rendezvous";
        ASSERT_TRUE(comm.rendezvous());
        for (const DType type : {DType::f32, DType::bf16}) {
          for (const std::size_t size : {std::size_t{0}, std::size_t{4}, kOneShot - 4, kOneShot})
            EXPECT_EQ(select(size, type), Algorithm::one_shot) << size;
          for (const std::size_t size : {kOneShot + 4, kTwoShot - 4, kTwoShot})
            EXPECT_EQ(select(size, type), Algorithm::two_shot) << size;
          EXPECT_EQ(select(kTwoShot + 4, type), Algorithm::none);
        }
        for (int i = 0; i < kDTypeCount; ++i) {
          const auto type = static_cast<DType>(i);
          if (type == DType::f32 || type == DType::bf16) continue;
          for (const std::size_t size : {std::size_t{64}, kOneShot + 64})
            EXPECT_EQ(select(size, type), Algorithm::none) << i;
        }
        EXPECT_EQ(comm.select_all_reduce_algorithm(bytes.data(), 4, static_cast<DType>(99)), Algorithm::none);
        for (const std::size_t size : {std::size_t{2}, std::size_t{34}, kOneShot + 2})
          EXPECT_EQ(select(size, DType::bf16), Algorithm::none) << "a size that is no multiple of 4";
        for (const std::size_t shift : {1, 2, 3})
          EXPECT_EQ(select(64, DType::bf16, shift), Algorithm::none) << shift;
        EXPECT_EQ(select(64, DType::bf16, 4), Algorithm::one_shot);
        EXPECT_EQ(comm.select_all_reduce_algorithm(bytes.data(), ~std::size_t{0}, DType::f32),
                  Algorithm::none);
      },
      {}, 16 << 20);
  run_ranks(
      2,
      [](IntraNodeComm& comm) {
        ASSERT_TRUE(comm.rendezvous());
        EXPECT_EQ(comm.select_all_reduce_algorithm(bytes.data(), 250, DType::f32), Algorithm::one_shot);
        EXPECT_EQ(comm.select_all_reduce_algorithm(bytes.data(), 251, DType::f32), Algorithm::none)
            << "more than the buffer";
      },
      {}, 1000);
  run_ranks(
      2,
      [](IntraNodeComm& comm) {
        ASSERT_TRUE(comm.rendezvous());
        const std::size_t count = (2 << 20) / sizeof(float);
        EXPECT_EQ(comm.select_all_reduce_algorithm(bytes.data(), count, DType::f32), Algorithm::two_shot);
        EXPECT_EQ(comm.select_all_reduce_algorithm(bytes.data(), count + 1, DType::f32), Algorithm::none)
            << "more than the buffer";
      },
      {}, 2 << 20);
}

TEST_F(IntraNode, AllReducesWithWhatItSelectsUpToTheLimits) {
  run_ranks(2, [](IntraNodeComm& comm) {
    ASSERT_TRUE(comm.rendezvous());
    std::vector<float> data((10 << 20) / sizeof(float) + 1);
    const auto select = [&](std::size_t count) {
      return comm.select_all_reduce_algorithm(data.data(), count, DType::f32);
    };
    for (const std::size_t count :
         {std::size_t{0}, std::size_t{1}, std::size_t{65536}, std::size_t{65537}, data.size() - 1}) {
      std::ranges::fill(data, static_cast<float>(comm.rank().value + 1));
      comm.all_reduce(data.data(), count, DType::f32, select(count));
      const auto end = data.begin() + static_cast<std::ptrdiff_t>(count);
      EXPECT_TRUE(std::all_of(data.begin(), end, [](float sum) { return sum == 3; })) << count;
    }
    EXPECT_THAT(comm.usage(), ElementsAre(0, 3, 2));
    EXPECT_EQ(select(data.size()), Algorithm::none);
  });
}

TEST_F(IntraNode, AllReducesInPlaceWithTheAlgorithmOfTheCaller) {
  run_ranks(
      4,
      [](IntraNodeComm& comm) {
        ASSERT_TRUE(comm.rendezvous());
        for (const Algorithm algorithm : {Algorithm::one_shot, Algorithm::two_shot}) {
          // Also beyond the sizes that it would select, and beyond the buffer.
          for (const std::size_t count : {0, 1, 3, 1000, 70'001, 400'000}) {
            std::vector<float> data(count);
            for (std::size_t i = 0; i < count; ++i)
              data[i] = static_cast<float>(i % 1000) + static_cast<float>(comm.rank().value);
            comm.all_reduce(data.data(), count, DType::f32, algorithm);
            for (std::size_t i = 0; i < count; ++i)
              ASSERT_EQ(data[i], 4 * static_cast<float>(i % 1000) + 6) << i;
          }
          std::vector<std::uint16_t> ones(1001, 0x3f80);  // 1.0 as bf16
          comm.all_reduce(ones.data(), ones.size(), DType::bf16, algorithm);
          EXPECT_THAT(ones, Each(0x4080));
          std::vector<std::int64_t> whole(77, comm.rank().value);
          comm.all_reduce(whole.data(), whole.size(), DType::i64, algorithm);
          EXPECT_THAT(whole, Each(6));
        }
        comm.synchronize({});
      },
      {}, 1 << 20);
}

TEST_F(IntraNode, AnAlgorithmThatIsNoneIsRefusedOnAllRanksAndTheCommunicatorWorksOn) {
  run_ranks(3, [](IntraNodeComm& comm) {
    ASSERT_TRUE(comm.rendezvous());
    std::vector<float> data(100, 1);
    for (const Algorithm bad : {Algorithm::none, static_cast<Algorithm>(77)}) {
      // Only rank 1's argument is wrong; all ranks get the error.
      const Error error = error_of([&] {
        comm.all_reduce(data.data(), data.size(), DType::f32,
                        comm.rank() == Rank{1} ? bad : Algorithm::one_shot);
      });
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_EQ(error.origin(), Rank{1});
      EXPECT_THAT(error.message(), HasSubstr("algorithm"));
    }
    EXPECT_THAT(data, Each(1));
    (void)message_of([&] { comm.all_reduce(nullptr, 4, DType::f32, Algorithm::one_shot); },
                     ErrorCode::invalid_argument);
    EXPECT_THAT(comm.usage(), Each(0));
    comm.all_reduce(data.data(), data.size(), DType::f32, Algorithm::two_shot);
    EXPECT_THAT(data, Each(3));
  });
}

TEST_F(IntraNode, RanksThatChooseDifferentlyHearOfIt) {
  run_ranks(2, [](IntraNodeComm& comm) {
    ASSERT_TRUE(comm.rendezvous());
    std::vector<float> data(100, 1);
    const Algorithm own = comm.rank() == Rank{0} ? Algorithm::one_shot : Algorithm::two_shot;
    EXPECT_THAT(
        message_of([&] { comm.all_reduce(data.data(), data.size(), DType::f32, own); }, ErrorCode::mismatch),
        AllOf(HasSubstr("one-shot"), HasSubstr("two-shot")));
    EXPECT_THAT(data, Each(1));
  });
}

TEST_F(IntraNode, CountsAllReducesPerCommunicatorAndInTheProcess) {
  const std::uint64_t before = IntraNodeComm::total_usage();
  run_ranks(2, [](IntraNodeComm& comm) {
    ASSERT_TRUE(comm.rendezvous());
    EXPECT_THAT(comm.usage(), ElementsAre(0, 0, 0));
    float one = 1;
    for (int i = 0; i < 3; ++i) comm.all_reduce(&one, 1, DType::f32, Algorithm::one_shot);
    comm.all_reduce(&one, 1, DType::f32, Algorithm::two_shot);
    comm.all_reduce(nullptr, 0, DType::f32, Algorithm::two_shot);
    {
      GroupCall scope;
      comm.all_reduce(&one, 1, DType::f32, Algorithm::one_shot);
      scope.end();
    }
    all_reduce(comm.group(), std::span(&one, 1));  // a call of the group, and not of the communicator
    EXPECT_THAT(comm.usage(), ElementsAre(0, 4, 2));
  });
  EXPECT_EQ(IntraNodeComm::total_usage() - before, 12u) << "of both ranks, which are threads";
}

}  // namespace
}  // namespace onehop::testing
