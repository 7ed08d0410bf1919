// SPDX-License-Identifier: Apache-2.0
// A member of a group that writes what no honest one would where the others read: its own announcements, offsets
// and sizes. The others get an error that names it. They do not crash, and write nothing outside their buffers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <thread>
#include <vector>

#include "backend/host/staging.h"
#include "call/call_record.h"
#include "fault/world.h"
#include "group/host_rank.h"
#include "group/state.h"
#include "support/ranks.h"

namespace onehop::fault::hostile_test {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;
using testing::TempDir;

constexpr Rank kHostile{0};
constexpr Rank kHonest{1};
enum Event { kHonestEnded };

struct Case {
  std::function<void(Group&, SymmetricBuffer&)> hostile;
  std::function<void(Group&, SymmetricBuffer&)> honest;
  const char* single_copy = "1";
};

constexpr std::size_t kBytes = 1 << 20;
constexpr std::size_t kCount = kBytes / 2 / 4;  // the input of one rank; a half of the buffer

/// What a rank announces that makes this call with data at an offset in the buffer.
CallRecord announce(Group& group, const SymmetricBuffer& buffer, Collective collective,
                    std::uint64_t offset) {
  const auto [state, number] = group.state().find_buffer(buffer.local(), 1);
  if (state == nullptr) throw std::logic_error("no buffer");
  CallRecord call;
  call.count = kCount;
  call.collective = static_cast<std::uint8_t>(collective);
  call.dtype = static_cast<std::uint8_t>(DType::f32);
  call.algorithm = kAnyAlgorithm;
  if (collective == Collective::all_reduce) call.algorithm = static_cast<std::uint8_t>(Algorithm::two_shot);
  call.in_buffer = call.out_buffer = number;
  call.in_offset = call.out_offset = offset;
  return call;
}

/// The error that the honest rank gets, which must be of this kind and name the hostile one.
std::string run(const Case& each) {
  const TempDir store;
  World world(2, [&](World& self, Rank rank) {
    (void)::setenv("ONEHOP_SINGLE_COPY", each.single_copy, 1);
    Group group = Group::join(file_store(store.path()), {.rank = rank, .size = 2, .timeout = seconds{20}});
    SymmetricBuffer buffer = group.allocate(kBytes);
    if (rank == kHostile) {
      try {
        each.hostile(group, buffer);
      } catch (const Error&) {
        // The honest rank has failed the group.
      }
      (void)self.await(kHonestEnded, 1, seconds{20});
    } else {
      self.card(rank).attempts[0].run([&] { each.honest(group, buffer); });
      self.raise(kHonestEnded);
    }
  });
  EXPECT_TRUE(world.finish(seconds{60}));
  EXPECT_EQ(world.exit_of(kHonest), 0);
  const Attempt& attempt = world.card(kHonest).attempts[0];
  EXPECT_EQ(attempt.state.load(), Attempt::failed) << attempt.text();
  EXPECT_EQ(attempt.error(), ErrorCode::protocol) << attempt.text();
  EXPECT_EQ(attempt.origin, kHostile.value) << attempt.text();
  return attempt.text();
}

TEST(HostileMember, ThatShowsDataWhereNobodyReadsItIsNamed) {
  EXPECT_THAT(run({.hostile =
                       [](Group& group, SymmetricBuffer&) {
                         HostRank::of(group.state())
                             .pairs()
                             .show(kHonest.value,
                                   {.count = kCount, .dtype = static_cast<std::uint8_t>(DType::f32)},
                                   reinterpret_cast<const std::byte*>(std::uintptr_t{64}));
                       },
                   .honest =
                       [](Group& group, SymmetricBuffer&) {
                         std::vector<float> data(kCount);
                         (void)recv(group, data.data(), kCount, DType::f32, kHostile);
                       },
                   .single_copy = "0"}),
              HasSubstr("rank 0 shows data in its memory, which the ranks of this group do not read"));
}

TEST(HostileMember, ThatAnnouncesAnOffsetOutsideItsBufferIsNamed) {
  for (const std::uint64_t offset :
       {std::uint64_t{kBytes}, std::uint64_t{kBytes / 2 + 4}, std::uint64_t{1} << 40, ~std::uint64_t{0}}) {
    for (const Collective collective : {Collective::all_gather, Collective::all_reduce}) {
      SCOPED_TRACE(fmt::format("offset {}, {}", offset,
                               collective == Collective::all_gather ? "all_gather" : "all_reduce"));
      EXPECT_THAT(run({.hostile =
                           [&](Group& group, SymmetricBuffer& buffer) {
                             const CallRecord call = announce(group, buffer, collective, offset);
                             host::StepBarrier& barrier = group.state().local().step_barrier();
                             barrier.publish(&call);
                             // A reduction reads in a later step.
                             while (true) {
                               while (!barrier.arrived(kHonest.value)) {
                                 group.check();  // throws when the honest rank has found it out
                                 std::this_thread::yield();
                               }
                               barrier.publish();
                             }
                           },
                       .honest =
                           [&](Group& group, SymmetricBuffer& buffer) {
                             auto* const in = reinterpret_cast<float*>(buffer.local());
                             if (collective == Collective::all_reduce) {
                               (void)all_reduce(group, in, in + kCount, kCount, DType::f32, ReduceOp::sum, {},
                                                {.algorithm = Algorithm::two_shot, .timeout = {}});
                             } else {
                               std::vector<float> out(2 * kCount);
                               (void)all_gather(group, in, out.data(), kCount, DType::f32);
                             }
                           }}),
                  HasSubstr("rank 0 announced data that is not within its symmetric memory"));
    }
  }
}

TEST(HostileMember, ThatSendsAFractionOfAnElementIsNamedAndNothingIsWrittenBeyondTheOutput) {
  constexpr std::size_t kExpected = 4;
  EXPECT_THAT(
      run({.hostile =
               [](Group& group, SymmetricBuffer&) {
                 // As all_to_all_v has it (host_all_to_all_v.cc): one entry for each rank.
                 struct Entry {
                   std::uint64_t sent, from, received;
                 };
                 const std::vector<Entry> page{{0, 0, 0}, {kExpected * 4 + 3, 0, 0}};
                 host::StepBarrier& barrier = group.state().local().step_barrier();
                 std::memcpy(
                     barrier.staging(kHostile.value) +
                         host::StagingLayout(barrier.staging_bytes()).input_offset(barrier.next_step(), 2048),
                     page.data(), page.size() * sizeof(Entry));
                 CallRecord call;
                 call.collective = static_cast<std::uint8_t>(Collective::all_to_all_v);
                 call.dtype = static_cast<std::uint8_t>(DType::f32);
                 call.algorithm = kAnyAlgorithm;
                 barrier.publish(&call);
               },
           .honest =
               [](Group& group, SymmetricBuffer&) {
                 std::vector<float> out(kExpected + 1, 7);
                 const std::vector<std::size_t> none(2, 0);
                 const std::vector<std::size_t> counts{kExpected, 0};
                 try {
                   (void)all_to_all_v(group, out.data(), {none, none}, out.data(), {counts, none},
                                      DType::f32);
                 } catch (const Error&) {
                   if (out.back() != 7) throw std::logic_error("written beyond the output");
                   throw;
                 }
               }}),
      HasSubstr("all_to_all_v: rank 0 announced 19 bytes of elements of 4"));
}

}  // namespace
}  // namespace onehop::fault::hostile_test
