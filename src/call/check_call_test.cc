// SPDX-License-Identifier: Apache-2.0
#include "call/check_call.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <functional>
#include <limits>

#include "onehop/error.h"
#include "onehop/group.h"

namespace onehop {
namespace {

using ::testing::HasSubstr;

CallRecord some_call() {
  CollectiveCall call;
  call.collective = Collective::all_reduce;
  call.count = 1024;
  return record_of(call);
}

/// The error in a group of 3 in which rank 2 makes a different call.
Error error_when_rank_2(const std::function<void(CallRecord&)>& changes) {
  std::vector<CallRecord> calls(3, some_call());
  changes(calls[2]);
  try {
    require_same_call(calls);
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "accepted";
  return {ErrorCode{}, ""};
}

TEST(RequireSameCall, AcceptsEqualCallsWhereverTheirDataLies) {
  std::vector<CallRecord> calls(3, some_call());
  EXPECT_NO_THROW(require_same_call(calls));
  calls[0].in_buffer = 1;
  calls[1].in_offset = 2;
  calls[2].out_buffer = 3;
  calls[1].out_offset = 4;
  EXPECT_NO_THROW(require_same_call(calls));
}

TEST(RequireSameCall, NamesTheRankAndBothCallsOfAMismatch) {
  struct Row {
    std::function<void(CallRecord&)> change;
    const char* call;
  };
  const Row rows[] = {
      {[](CallRecord& call) { call.count = 1023; }, "rank 2 calls all_reduce(count 1023, f32, sum)"},
      {[](CallRecord& call) { call.dtype = static_cast<std::uint8_t>(DType::bf16); },
       "all_reduce(count 1024, bf16, sum)"},
      {[](CallRecord& call) { call.op = static_cast<std::uint8_t>(ReduceOp::avg); },
       "all_reduce(count 1024, f32, avg)"},
      {[](CallRecord& call) {
         call.op = static_cast<std::uint8_t>(ReduceOp::premul_sum);
         call.factor = std::bit_cast<std::uint64_t>(1.0 / 3);
       },
       "all_reduce(count 1024, f32, premul_sum, factor 0.3333333333333333)"},
      {[](CallRecord& call) { call.algorithm = static_cast<std::uint8_t>(Algorithm::two_shot); },
       "f32, sum, two-shot)"},
      {[](CallRecord& call) { call.symmetric = 1; }, "all_reduce(count 1024, f32, sum, symmetric)"},
      {[](CallRecord& call) { call = {.collective = static_cast<std::uint8_t>(Collective::barrier)}; },
       "rank 2 calls barrier()"},
      {[](CallRecord& call) { call.collective = 200; }, "rank 2 calls an unknown call"},
  };
  for (const Row& row : rows) {
    const Error error = error_when_rank_2(row.change);
    EXPECT_EQ(error.code(), ErrorCode::mismatch);
    EXPECT_EQ(error.origin(), Rank{2});
    EXPECT_THAT(error.message(),
                HasSubstr("ranks disagree: rank 0 calls all_reduce(count 1024, f32, sum), rank 2 calls"));
    EXPECT_THAT(error.message(), HasSubstr(row.call));
  }
}

TEST(RequireSameCall, DescribesEachCollectiveByWhatItHas) {
  struct Row {
    Collective collective;
    const char* text;
  };
  const Row rows[] = {
      {Collective::all_gather, "rank 2 calls all_gather(count 1024, f32)"},
      {Collective::reduce_scatter, "rank 2 calls reduce_scatter(count 1024, f32, sum)"},
      {Collective::broadcast, "rank 2 calls broadcast(count 1024, f32, root 1)"},
      {Collective::reduce, "rank 2 calls reduce(count 1024, f32, sum, root 1)"},
      {Collective::all_to_all, "rank 2 calls all_to_all(count 1024, f32)"},
      {Collective::all_to_all_v, "rank 2 calls all_to_all_v(f32)"},
      {Collective::gather, "rank 2 calls gather(count 1024, f32, root 1)"},
      {Collective::scatter, "rank 2 calls scatter(count 1024, f32, root 1)"},
  };
  for (const Row& row : rows) {
    const Error error = error_when_rank_2([&](CallRecord& call) {
      call.collective = static_cast<std::uint8_t>(row.collective);
      call.root = 1;
    });
    EXPECT_EQ(error.code(), ErrorCode::mismatch);
    EXPECT_THAT(error.message(), ::testing::EndsWith(row.text));
  }
}

TEST(RequireSameCall, ADifferentFactorIsAMismatchThatNamesBoth) {
  std::vector<CallRecord> calls(2, some_call());
  const auto set = [&](double first, double second) {
    calls[0].op = calls[1].op = static_cast<std::uint8_t>(ReduceOp::premul_sum);
    calls[0].factor = std::bit_cast<std::uint64_t>(first);
    calls[1].factor = std::bit_cast<std::uint64_t>(second);
  };
  set(0.5, 0.25);
  try {
    require_same_call(calls);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::mismatch);
    EXPECT_EQ(
        error.message(),
        "ranks disagree: rank 0 calls all_reduce(count 1024, f32, premul_sum, factor 0.5), rank 1 calls "
        "all_reduce(count 1024, f32, premul_sum, factor 0.25)");
  }
  set(0.0, -0.0);
  EXPECT_THROW(require_same_call(calls), Error) << "they give different zeros";
  const double nan = std::numeric_limits<double>::quiet_NaN();
  set(nan, nan);
  EXPECT_NO_THROW(require_same_call(calls));
}

TEST(RequireSameCall, ADifferentRootIsAMismatch) {
  std::vector<CallRecord> calls(2, some_call());
  calls[0].collective = calls[1].collective = static_cast<std::uint8_t>(Collective::gather);
  calls[1].root = 1;
  EXPECT_THROW(require_same_call(calls), Error);
}

TEST(RequireSameCall, AnUnusableArgumentOfOneRankRejectsTheCallWithItsReason) {
  for (const ArgumentError error :
       {ArgumentError::unknown_type, ArgumentError::unknown_op, ArgumentError::unknown_algorithm,
        ArgumentError::too_large, ArgumentError::null_input, ArgumentError::misaligned,
        ArgumentError::overlap, ArgumentError::unsuitable_algorithm, ArgumentError::unknown_root,
        ArgumentError::in_place, ArgumentError::not_one_per_rank, ArgumentError::null_output,
        ArgumentError::factor_without_use, ArgumentError::factor_not_of_type}) {
    const Error heard =
        error_when_rank_2([&](CallRecord& call) { call.rejected = static_cast<std::uint8_t>(error); });
    EXPECT_EQ(heard.code(), ErrorCode::invalid_argument);
    EXPECT_EQ(heard.origin(), Rank{2});
    EXPECT_THAT(heard.message(), HasSubstr("of rank 2 was rejected: "));
    EXPECT_THAT(heard.message(), HasSubstr(to_text(error)));
  }
}

TEST(RequireSameCall, AnUnknownTypeOpOrErrorFromAPeerIsNamedWithoutHarm) {
  EXPECT_THAT(error_when_rank_2([](CallRecord& call) { call.dtype = 99; }).message(), HasSubstr("unknown"));
  EXPECT_THAT(error_when_rank_2([](CallRecord& call) { call.op = 99; }).message(), HasSubstr("unknown"));
  EXPECT_THAT(error_when_rank_2([](CallRecord& call) { call.rejected = 99; }).message(),
              HasSubstr("unusable"));
}

TEST(RequireSameCall, ReportsTheLowestRankThatIsDifferent) {
  std::vector<CallRecord> calls(4, some_call());
  calls[1].count = 1;
  calls[3].rejected = static_cast<std::uint8_t>(ArgumentError::overlap);
  try {
    require_same_call(calls);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.origin(), Rank{1});
  }
}

}  // namespace
}  // namespace onehop
