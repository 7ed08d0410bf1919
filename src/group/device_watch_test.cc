// SPDX-License-Identifier: Apache-2.0
#include "group/device_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <functional>
#include <thread>

#include "onehop/error.h"

#include "base/deadline.h"
#include "os/socket.h"

namespace onehop {
namespace {

using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Mesh = IpcChannel::Mesh;

/// A device whose stream ends, and which fails, when the test says so. It fails in a wait for rank 1 unless
/// told otherwise.
class FakeCommunicator : public Communicator {
 public:
  std::function<bool()> wait_fails = [] { return false; };
  DeviceFailure fails_with{.reason = DeviceFault::timeout,
                           .awaited = Rank{1},
                           .phase = DeviceFault::phase_of(Collective::all_reduce)};
  std::function<bool()> stream_ends = [] { return false; };
  mutable std::atomic<bool> aborted{false};
  mutable std::atomic<std::uint32_t> left{0};

  FakeCommunicator() : Communicator({.ranks = 1}, 0, {nullptr}) {}

  [[nodiscard]] DeviceGuard call_guard() const override { return {}; }
  void copy(std::byte*, const std::byte*, std::size_t, cuda::Lane) override {}
  void write(std::byte*, std::uint32_t) override {}
  void record(cuda::Mark, cuda::Lane) override {}
  void wait_for(cuda::Mark, cuda::Lane) override {}
  void barrier(const DeviceView&, int, Stream) override {}
  void put_signal(const DeviceView&, Rank, int, Stream) override {}
  void wait_signal(const DeviceView&, Rank, int, Stream) override {}
  [[nodiscard]] DeviceGuard guard(Duration) const override { return {}; }
  [[nodiscard]] std::optional<DeviceFailure> failure() const override {
    if (!wait_fails()) return std::nullopt;
    return fails_with;
  }
  void launch(const cuda::ReductionKernel&, const CollectiveCall&, const cuda::LaunchShape&,
              cuda::KernelParams) override {}
  void launch(const cuda::PlainKernel&, const cuda::LaunchShape&, cuda::KernelParams) override {}
  void abort() noexcept override { aborted = true; }
  [[nodiscard]] bool release_segments(Duration /*timeout*/) noexcept override { return true; }
  void mark_left(Rank r) noexcept override { left |= 1u << r.value; }
  void order_streams(Stream, Stream) const override {}
  [[nodiscard]] bool idle(Stream) const override { return stream_ends() || aborted; }
  [[nodiscard]] bool finish(Duration /*timeout*/) noexcept override { return true; }
  [[nodiscard]] bool quiesce(Duration /*timeout*/) noexcept override { return true; }

 private:
  void begin_call(Stream, Duration, std::size_t) override {}
  void end_call() override {}
  void leave_call() noexcept override {}
};

/// Rank 0 with its device, and rank 1's end of the socket between them.
class Watched : public ::testing::Test {
 protected:
  Watched() { begin(); }
  void begin() {
    communicator_.aborted = false;
    communicator_.left = 0;
    auto [own, peer] = os::socket_pair();
    mesh_ = mesh(Rank{0}, std::move(own));
    peer_ = mesh(Rank{1}, std::move(peer));
  }
  static std::shared_ptr<Mesh> mesh(Rank rank, os::UniqueFd socket) {
    std::vector<os::UniqueFd> sockets(2);
    sockets[rank.value == 0 ? 1 : 0] = std::move(socket);
    return std::make_shared<Mesh>(rank, 2, std::move(sockets));
  }

  /// The error that synchronize throws; its code is `system` if it throws none.
  Error synchronize(Duration timeout, Duration group_timeout) {
    DeviceWatch watch(mesh_, communicator_, progress_, group_timeout);
    try {
      watch.synchronize({}, timeout);
    } catch (const Error& error) {
      return error;
    }
    return {ErrorCode::system, "nothing was thrown"};
  }
  static std::function<bool()> once(Duration passed) {
    return [deadline = Deadline::after(passed)] { return deadline.expired(); };
  }

  /// Nothing has failed yet when synchronize looks for the first time, at its deadline. The watch never sees
  /// the failure.
  static std::function<bool()> at_the_second_look() {
    return [looks = 0, waiting = std::this_thread::get_id()]() mutable {
      return std::this_thread::get_id() == waiting && ++looks > 1;
    };
  }

  /// Rank 1 reads its socket and answers, as its own watch would: whenever rank 0 looks at its stream, and so however
  /// busy the machine is.
  void let_the_peer_answer() {
    communicator_.stream_ends = [this] {
      (void)peer_->look("anything");
      return false;
    };
  }

  FakeCommunicator communicator_;
  std::array<host::Progress, 2> counts_;
  DeviceProgress progress_{Rank{0}, {&counts_[0], &counts_[1]}};
  std::shared_ptr<Mesh> mesh_;
  std::shared_ptr<Mesh> peer_;
};

TEST_F(Watched, AStreamThatEndsIsWaitedFor) {
  communicator_.stream_ends = once(Duration{20});
  EXPECT_EQ(synchronize(seconds{20}, seconds{20}).message(), "nothing was thrown");
}

TEST_F(Watched, AStreamThatDoesNotEndNamesTheRankThatDoesNotAnswer) {
  const Error error = synchronize(Duration{100}, seconds{20});
  EXPECT_EQ(error.code(), ErrorCode::timeout);
  EXPECT_EQ(error.origin(), Rank{1});
  EXPECT_THAT(error.message(), HasSubstr("rank 0 waited 100 ms for its stream, which waits for rank 1"));
  EXPECT_TRUE(communicator_.aborted);
}

TEST_F(Watched, AStreamThatDoesNotEndNamesTheRankThatHasBegunFewerCollectives) {
  let_the_peer_answer();
  counts_[0].begun = 7;
  counts_[1].begun = 6;
  EXPECT_EQ(synchronize(Duration{100}, seconds{20}).origin(), Rank{1});
}

TEST_F(Watched, AStreamThatDoesNotEndThoughNobodyIsBehindIsThisRanksFailure) {
  let_the_peer_answer();
  const Error error = synchronize(Duration{30}, Duration{30});
  EXPECT_EQ(error.code(), ErrorCode::timeout);
  EXPECT_EQ(error.origin(), Rank{0});
  EXPECT_THAT(error.message(), HasSubstr("rank 0 waited 30 ms for its stream"));
  EXPECT_TRUE(communicator_.aborted);
  EXPECT_THROW(peer_->check("anything"), Error) << "the others hear of it";
}

TEST_F(Watched, AWaitThatFailsAMomentAfterTheHostsDeadlineNamesTheAwaitedRank) {
  Error error(ErrorCode::system, "");
  // Again if this thread was so late that its first look was its last.
  for (int tries = 0; tries < 5 && error.message().find("all_reduce") == std::string::npos; ++tries) {
    begin();
    communicator_.wait_fails = at_the_second_look();
    error = synchronize(Duration{50}, Duration{50});
  }
  EXPECT_EQ(error.code(), ErrorCode::timeout);
  EXPECT_EQ(error.origin(), Rank{1});
  EXPECT_THAT(error.message(),
              HasSubstr("all_reduce: rank 0 waited for rank 1 on its GPU until its timeout"));
}

TEST_F(Watched, AWaitThatFailedIsToBlameAlsoWhereTheStreamGoesOnWithOtherWork) {
  communicator_.wait_fails = once(Duration{20});
  const Error error = synchronize(Duration{50}, Duration{50});
  EXPECT_EQ(error.origin(), Rank{1});
}

TEST_F(Watched, WhoWaitsLessThanTheGroupsTimeoutHasNoGraceToGive) {
  let_the_peer_answer();
  communicator_.wait_fails = at_the_second_look();
  const Error error = synchronize(Duration{200}, seconds{20});
  EXPECT_EQ(error.origin(), Rank{0});
  EXPECT_THAT(error.message(), HasSubstr("waited 200 ms for its stream"));
}

TEST(ParseFault, ReadsWaitsAndArgumentsAsKernelsWriteThem) {
  EXPECT_FALSE(parse_fault(0));
  const DeviceFailure wait = parse_fault(std::uint64_t{2} << 56 | std::uint64_t{7} << 48 | 4).value();
  EXPECT_EQ(wait.reason, DeviceFault::left);
  EXPECT_EQ(wait.awaited, Rank{7});
  EXPECT_EQ(wait.phase, DeviceFault::phase_of(Collective::all_gather));
  for (const int channel : {16, -1, 1 << 30}) {
    const DeviceFailure misuse = parse_fault(std::uint64_t{4} << 56 | std::uint64_t{1} << 48 |
                                             std::uint64_t{4096} << 32 | static_cast<std::uint32_t>(channel))
                                     .value();
    EXPECT_EQ(misuse.reason, DeviceFault::no_channel);
    EXPECT_TRUE(misuse.awaited.none());
    EXPECT_EQ(misuse.phase, DeviceFault::barrier);
    EXPECT_EQ(misuse.argument, channel);
    EXPECT_EQ(misuse.limit, 4096);
  }
}

TEST_F(Watched, AChannelOrRankThatAKernelMadeUpIsThisRanksErrorAndTheOthersHear) {
  communicator_.wait_fails = [] { return true; };
  communicator_.fails_with = {
      .reason = DeviceFault::no_channel, .phase = DeviceFault::barrier, .argument = 16, .limit = 16};
  const Error error = synchronize(seconds{20}, seconds{20});
  EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
  EXPECT_EQ(error.origin(), Rank{0});
  EXPECT_THAT(error.message(),
              AllOf(HasSubstr("barrier: a kernel of rank 0 used channel 16 of a buffer that has 0..15"),
                    HasSubstr("BufferOptions::channels")));
  EXPECT_TRUE(communicator_.aborted) << "waits on the device end";
  EXPECT_THROW(peer_->check("anything"), Error);

  communicator_.fails_with = {
      .reason = DeviceFault::no_rank, .phase = DeviceFault::signal, .argument = 2, .limit = 2};
  EXPECT_THAT(
      error_of(*communicator_.failure(), Rank{0}).message(),
      HasSubstr("put_signal or wait_signal: a kernel of rank 0 named rank 2 of a group that has 0..1"));
}

TEST_F(Watched, APeersFailureEndsTheWait) {
  peer_->fail_group(Error(ErrorCode::aborted, "enough", Rank{1}));
  const Error error = synchronize(seconds{20}, seconds{20});
  EXPECT_EQ(error.code(), ErrorCode::aborted);
  EXPECT_EQ(error.origin(), Rank{1});
}

TEST_F(Watched, APeersFailureWhileTheStreamRunsEndsItsWaitsAndThisOne) {
  std::thread peer([&] { peer_->fail_group(Error(ErrorCode::aborted, "enough", Rank{1})); });
  const Error error = synchronize(seconds{20}, seconds{20});
  peer.join();
  EXPECT_EQ(error.code(), ErrorCode::aborted);
}

TEST_F(Watched, ThePeersThatHaveLeftAreMarkedOnTheDevice) {
  peer_->leave();
  communicator_.stream_ends = [&] { return (communicator_.left & 2u) != 0; };
  EXPECT_EQ(synchronize(seconds{20}, seconds{20}).message(), "nothing was thrown");
}

}  // namespace
}  // namespace onehop
