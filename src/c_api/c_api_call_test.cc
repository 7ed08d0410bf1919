// SPDX-License-Identifier: Apache-2.0
// A call as one value in the C API (onehop_run), with threads as ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <vector>

#include "onehop/c_api.h"

#include "c_api/c_api_ranks.h"

namespace onehop {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr int kCallers = 3;

onehop_call_t call_of(onehop_collective_t collective, const std::vector<int>& in, std::vector<int>& out,
                      std::size_t count) {
  onehop_call_t call;
  onehop_call_init(&call, sizeof call);
  call.collective = collective;
  call.dtype = ONEHOP_DTYPE_I32;
  call.in = in.data();
  call.out = out.data();
  call.count = count;
  return call;
}

TEST(CApiCall, MakesEveryCollective) {
  run_ranks(kCallers, [](onehop_group_t* group) {
    const int me = onehop_group_rank(group);
    const std::vector<int> in{10 * me, 10 * me + 1, 10 * me + 2};
    std::vector<int> out(3, -1);
    onehop_algorithm_t used = ONEHOP_ALGORITHM_NONE;
    const auto make = [&](onehop_collective_t collective, std::size_t count, auto&& set) {
      std::fill(out.begin(), out.end(), -1);
      onehop_call_t call = call_of(collective, in, out, count);
      set(call);
      EXPECT_OK(onehop_run(group, &call, &used)) << onehop_collective_name(collective);
      return out;
    };
    const auto nothing = [](onehop_call_t&) {};
    const auto rooted = [](onehop_call_t& call) { call.root = 1; };
    EXPECT_THAT(make(ONEHOP_COLLECTIVE_ALL_REDUCE, 3, nothing), ElementsAre(30, 33, 36));
    EXPECT_EQ(used, ONEHOP_ALGORITHM_ONE_SHOT);
    EXPECT_THAT(make(ONEHOP_COLLECTIVE_ALL_REDUCE, 3,
                     [](onehop_call_t& call) {
                       call.op = ONEHOP_OP_PREMUL_SUM;
                       call.factor = 2;
                       call.algorithm = ONEHOP_ALGORITHM_TWO_SHOT;
                     }),
                ElementsAre(60, 66, 72));
    EXPECT_EQ(used, ONEHOP_ALGORITHM_TWO_SHOT);
    const int own_factor = me + 1;
    EXPECT_THAT(make(ONEHOP_COLLECTIVE_ALL_REDUCE, 3,
                     [&](onehop_call_t& call) {
                       call.op = ONEHOP_OP_PREMUL_SUM;
                       call.own_factor = &own_factor;
                     }),
                ElementsAre(80, 86, 92));
    EXPECT_THAT(make(ONEHOP_COLLECTIVE_ALL_GATHER, 1, nothing), ElementsAre(0, 10, 20));
    EXPECT_THAT(make(ONEHOP_COLLECTIVE_REDUCE_SCATTER, 1, nothing), ElementsAre(30 + 3 * me, -1, -1));
    EXPECT_THAT(make(ONEHOP_COLLECTIVE_BROADCAST, 3, rooted), ElementsAre(10, 11, 12));
    EXPECT_THAT(make(ONEHOP_COLLECTIVE_SCATTER, 1, rooted), ElementsAre(10 + me, -1, -1));
    EXPECT_THAT(make(ONEHOP_COLLECTIVE_ALL_TO_ALL, 1, nothing), ElementsAre(me, 10 + me, 20 + me));
    const std::vector<int> reduced = make(ONEHOP_COLLECTIVE_REDUCE, 3, rooted);
    const std::vector<int> gathered = make(ONEHOP_COLLECTIVE_GATHER, 1, rooted);
    if (me == 1) {
      EXPECT_THAT(reduced, ElementsAre(30, 33, 36));
      EXPECT_THAT(gathered, ElementsAre(0, 10, 20));
    }
    // Each rank sends its element r to rank r, the last one first.
    const std::vector<std::size_t> counts(kCallers, 1);
    const std::vector<std::size_t> there{0, 1, 2};
    const std::vector<std::size_t> back{2, 1, 0};
    EXPECT_THAT(make(ONEHOP_COLLECTIVE_ALL_TO_ALL_V, 77,  // which it ignores
                     [&](onehop_call_t& call) {
                       call.in_counts = call.out_counts = counts.data();
                       call.in_offsets = there.data();
                       call.out_offsets = back.data();
                     }),
                ElementsAre(20 + me, 10 + me, me));
    EXPECT_OK(onehop_group_call_begin());
    (void)make(ONEHOP_COLLECTIVE_SEND, 3, [&](onehop_call_t& call) { call.root = (me + 1) % kCallers; });
    (void)make(ONEHOP_COLLECTIVE_RECV, 3, [&](onehop_call_t& call) { call.root = (me + 2) % kCallers; });
    EXPECT_OK(onehop_group_call_end());
    EXPECT_EQ(out[0], 10 * ((me + 2) % kCallers));
    (void)make(ONEHOP_COLLECTIVE_BARRIER, 0, [&](onehop_call_t& call) { call.dtype = me; });
    EXPECT_EQ(used, ONEHOP_ALGORITHM_NONE);
  });
}

/// Rank 1 makes the usual call as `change` leaves it. All ranks get an error of rank 1, which `told` is a part of and on
/// rank 1 `text`, and can go on.
void expect_refused(const char* text, const char* told, onehop_status_t status,
                    const std::function<const onehop_call_t*(onehop_call_t&)>& change) {
  run_ranks(kCallers, [&](onehop_group_t* group) {
    const bool wrong = onehop_group_rank(group) == 1;
    const std::vector<int> in(3, 1);
    std::vector<int> out(3, -1);
    onehop_call_t usual = call_of(ONEHOP_COLLECTIVE_ALL_REDUCE, in, out, 3);
    const onehop_call_t* const call = wrong ? change(usual) : &usual;
    EXPECT_EQ(onehop_run(group, call, nullptr), wrong ? status : ONEHOP_ERROR_INVALID_ARGUMENT) << text;
    EXPECT_THAT(onehop_last_error(), HasSubstr(wrong ? text : told));
    EXPECT_EQ(onehop_last_error_rank(), 1);
    EXPECT_THAT(out, ElementsAre(-1, -1, -1));
    EXPECT_OK(onehop_group_barrier(group, ONEHOP_TIMEOUT_DEFAULT));
  });
}
constexpr const char* kUnusable = "its options are unusable; the error on that rank says why";

TEST(CApiCall, ThatOneRankGetsWrongIsRefusedOnAll) {
  const auto expect_invalid = [](const char* text, const char* told, auto&& change) {
    expect_refused(text, told, ONEHOP_ERROR_INVALID_ARGUMENT, change);
  };
  const auto expect_rejected = [&](const char* text, void (*change)(onehop_call_t&)) {
    expect_invalid(text, text, [&](onehop_call_t& call) { return change(call), &call; });
  };
  expect_rejected("its collective is unknown",
                  [](onehop_call_t& call) { onehop_call_init(&call, sizeof call); });
  expect_rejected("its collective is unknown",
                  [](onehop_call_t& call) { call.collective = ONEHOP_COLLECTIVE_BARRIER + 1; });
  expect_rejected("its element type is unknown", [](onehop_call_t& call) {
    onehop_call_init(&call, sizeof call);
    call.collective = ONEHOP_COLLECTIVE_ALL_REDUCE;
  });
  expect_rejected("its timeout is negative", [](onehop_call_t& call) { call.timeout_ms = -7; });
  expect_invalid("call must not be NULL", kUnusable, [](onehop_call_t&) { return nullptr; });
  expect_invalid("call->size is 0", kUnusable, [](onehop_call_t& call) { return call.size = 0, &call; });
}

TEST(CApiCall, OfANewerCallerWithUnknownFieldsIsRefused) {
  struct Newer {
    onehop_call_t call;
    int unknown[4];
  };
  Newer newer{};
  expect_refused("sets a field that onehop", kUnusable, ONEHOP_ERROR_UNSUPPORTED, [&](onehop_call_t& call) {
    onehop_call_init(&newer.call, sizeof newer);
    const std::size_t size = newer.call.size;
    newer.call = call;
    newer.call.size = size;
    newer.unknown[3] = 1;
    return &newer.call;
  });
}

}  // namespace
}  // namespace onehop
