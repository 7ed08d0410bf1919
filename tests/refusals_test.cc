// SPDX-License-Identifier: Apache-2.0
// If one rank refuses a call, all ranks get the error. A rank with an invalid argument never returns alone,
// since its next call would be paired with the one that the others still wait in. One table covers all calls
// of a group, in C++ and in C.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <functional>
#include <memory>

#include "onehop/c_api.h"
#include "onehop/onehop.h"

#include "c_api/handles.h"
#include "support/errors.h"
#include "support/group_checks.h"
#include "support/ranks.h"

namespace onehop {
namespace {

using std::chrono::milliseconds;
using testing::error_of;
using ::testing::HasSubstr;
using testing::run_thread_group;

constexpr int kMembers = 3;
constexpr Rank kOdd{1};

/// The objects that a call may use. `group` is a group of three ranks.
struct Site {
  Group& group;
  SymmetricBuffer buffer;
  std::array<float, 3 * 64> in{};
  std::array<float, 3 * 64> out{};
  std::array<std::size_t, 3> counts{8, 8, 8};
  std::array<std::size_t, 3> offsets{0, 8, 16};

  [[nodiscard]] Rank next() const { return Rank{(group.rank().value + 1) % kMembers}; }
  [[nodiscard]] Rank before() const { return Rank{(group.rank().value + kMembers - 1) % kMembers}; }
};

/// A call that the odd rank makes with an invalid argument, and all others correctly.
struct Row {
  const char* name;
  std::function<void(Site&)> usual;
  std::function<void(Site&)> odd;
  const char* text;          ///< part of every rank's message
  bool stays_usable = true;  ///< the group
};

CallOptions late() {
  return {.algorithm = {}, .timeout = milliseconds{-1}};
}

std::vector<Row> rows() {
  constexpr auto f32 = DType::f32;
  constexpr auto sum = ReduceOp::sum;
  const auto with = [](auto call) {
    return std::pair{std::function<void(Site&)>([call](Site& s) { call(s, CallOptions{}); }),
                     std::function<void(Site&)>([call](Site& s) { call(s, late()); })};
  };
  std::vector<Row> all;
  const auto add_late = [&](const char* name, auto call, bool stays_usable = true) {
    const auto [usual, odd] = with(call);
    all.push_back({name, usual, odd, "negative", stays_usable});
  };
  add_late("all_reduce", [=](Site& s, const CallOptions& o) {
    (void)all_reduce(s.group, s.in.data(), s.out.data(), 64, f32, sum, {}, o);
  });
  add_late("reduce", [=](Site& s, const CallOptions& o) {
    (void)reduce(s.group, s.in.data(), s.out.data(), 64, f32, sum, Rank{0}, {}, o);
  });
  add_late("reduce_scatter", [=](Site& s, const CallOptions& o) {
    (void)reduce_scatter(s.group, s.in.data(), s.out.data(), 64, f32, sum, {}, o);
  });
  add_late("broadcast", [=](Site& s, const CallOptions& o) {
    (void)broadcast(s.group, s.in.data(), s.out.data(), 64, f32, Rank{0}, {}, o);
  });
  add_late("all_gather", [=](Site& s, const CallOptions& o) {
    (void)all_gather(s.group, s.in.data(), s.out.data(), 64, f32, {}, o);
  });
  add_late("all_to_all", [=](Site& s, const CallOptions& o) {
    (void)all_to_all(s.group, s.in.data(), s.out.data(), 64, f32, {}, o);
  });
  add_late("all_to_all_v", [=](Site& s, const CallOptions& o) {
    const Blocks blocks{.counts = s.counts, .offsets = s.offsets};
    (void)all_to_all_v(s.group, s.in.data(), blocks, s.out.data(), blocks, f32, {}, o);
  });
  add_late("gather", [=](Site& s, const CallOptions& o) {
    (void)gather(s.group, s.in.data(), s.out.data(), 64, f32, Rank{0}, {}, o);
  });
  add_late("scatter", [=](Site& s, const CallOptions& o) {
    (void)scatter(s.group, s.in.data(), s.out.data(), 64, f32, Rank{0}, {}, o);
  });
  add_late(
      "send",
      [=](Site& s, const CallOptions& o) {
        GroupCall scope;
        (void)send(s.group, s.in.data(), 64, f32, s.next(), {}, o);
        (void)recv(s.group, s.out.data(), 64, f32, s.before());
        scope.end();
        s.group.barrier();  // ranks that do not wait for the odd one get the error here
      },
      false);
  add_late(
      "recv",
      [=](Site& s, const CallOptions& o) {
        GroupCall scope;
        (void)send(s.group, s.in.data(), 64, f32, s.next());
        (void)recv(s.group, s.out.data(), 64, f32, s.before(), {}, o);
        scope.end();
        s.group.barrier();  // ranks that do not wait for the odd one get the error here
      },
      false);

  // See tests/conformance/rejections_test.cc for the other arguments of collectives. Transfers:
  const auto transfer = [=](auto change, const char* text) {
    const auto call = [=](Site& s, const std::function<void(Site&)>& odd) {
      odd(s);
      GroupCall scope;
      (void)send(s.group, s.in.data(), 64, f32, s.next());
      (void)recv(s.group, s.out.data(), 64, f32, s.before());
      scope.end();
      s.group.barrier();  // ranks that do not wait for the odd one get the error here
    };
    return Row{"transfer", [=](Site& s) { call(s, [](Site&) {}); }, [=](Site& s) { call(s, change); }, text,
               false};
  };
  all.push_back(
      transfer([=](Site& s) { (void)send(s.group, nullptr, 1, f32, s.next()); }, "its input is null"));
  all.push_back(
      transfer([=](Site& s) { (void)recv(s.group, nullptr, 1, f32, s.next()); }, "its output is null"));
  all.push_back(
      transfer([=](Site& s) { (void)send(s.group, s.in.data(), SIZE_MAX / 8, f32, s.next()); }, "too large"));
  all.push_back(
      transfer([](Site& s) { (void)recv(s.group, s.out.data(), 1, static_cast<DType>(77), s.next()); },
               "type is unknown"));
  all.push_back(transfer([=](Site& s) { (void)send(s.group, s.in.data(), 1, f32, Rank{9}); },
                         "rank 9 is not in a group"));
  all.push_back(transfer([=](Site& s) { (void)recv(s.group, s.out.data(), 1, f32, Rank{}); },
                         "rank -1 is not in a group"));
  all.push_back(transfer([=](Site& s) { (void)send(s.group, s.in.data(), 1, f32, s.group.rank()); },
                         "only in a GroupCall"));

  all.push_back({"barrier", [](Site& s) { s.group.barrier(); },
                 [](Site& s) { s.group.barrier(milliseconds{-1}); }, "negative"});
  all.push_back({"Group::all_gather", [](Site& s) { (void)s.group.all_gather("x"); },
                 [](Site& s) { (void)s.group.all_gather(std::string(70'000, 'x')); },
                 "70000 bytes of rank 1"});
  all.push_back({"allocate", [](Site& s) { (void)s.group.allocate(64); },
                 [](Site& s) { (void)s.group.allocate(0); }, "rank 1: cannot allocate 0 bytes"});
  all.push_back({"allocate's channels", [](Site& s) { (void)s.group.allocate(64); },
                 [](Site& s) { (void)s.group.allocate(64, {.channels = 5000}); },
                 "rank 1: 5000 channels are not within 1..4096"});
  all.push_back({"IpcChannel::all_gather", [](Site& s) { (void)s.group.channel().all_gather("x"); },
                 [](Site& s) { (void)s.group.channel().all_gather("x", milliseconds{-1}); }, "negative"});
  all.push_back({"IpcChannel::barrier", [](Site& s) { s.group.channel().barrier(); },
                 [](Site& s) { s.group.channel().barrier(milliseconds{-1}); }, "negative"});
  all.push_back({"all_gather_fds", [](Site& s) { (void)s.group.channel().all_gather_fds(-1); },
                 [](Site& s) { (void)s.group.channel().all_gather_fds(-1, milliseconds{-1}); }, "negative",
                 false});
  // Its ranks do not wait for each other: they get the error in their next call.
  const auto broadcast = [](Site& s) {
    (void)s.group.channel().broadcast_fds(-1, Rank{0});
    s.group.channel().barrier();
  };
  all.push_back({"broadcast_fds", broadcast,
                 [](Site& s) { (void)s.group.channel().broadcast_fds(-1, Rank{0}, milliseconds{-1}); },
                 "negative", false});
  all.push_back({"broadcast_fds' root", broadcast,
                 [](Site& s) { (void)s.group.channel().broadcast_fds(-1, Rank{5}); }, "root 5", false});
  const auto fd_ring = [](Site& s) {
    s.group.channel().send_fd(s.next(), -1);
    (void)s.group.channel().recv_fd(s.before());
    (void)s.group.channel().recv_fd(s.before());
  };
  all.push_back(
      {"send_fd's rank", fd_ring, [](Site& s) { s.group.channel().send_fd(Rank{7}, -1); }, "rank 7", false});
  all.push_back({"send_fd", fd_ring,
                 [](Site& s) { s.group.channel().send_fd(s.next(), -1, milliseconds{-1}); }, "negative",
                 false});
  all.push_back({"SymmetricBuffer::barrier", [](Site& s) { s.buffer.barrier(); },
                 [](Site& s) { s.buffer.barrier(0, milliseconds{-1}); }, "negative", false});
  all.push_back({"SymmetricBuffer::barrier's channel", [](Site& s) { s.buffer.barrier(3); },
                 [](Site& s) { s.buffer.barrier(16); }, "channel 16 is not within 0..15", false});
  const auto wait = [](Site& s) { s.buffer.wait_signal(kOdd, 2); };
  all.push_back({"put_signal's channel", wait, [](Site& s) { s.buffer.put_signal(Rank{0}, -1); },
                 "channel -1 is not within 0..15", false});
  all.push_back({"put_signal's rank", wait, [](Site& s) { s.buffer.put_signal(Rank{3}, 2); },
                 "rank 3 is not in a group", false});
  return all;
}

/// Makes one row's call on all ranks of a fresh group, and checks their errors and whether the group still
/// works.
void expect_heard_by_all(const Row& row) {
  SCOPED_TRACE(row.name);
  run_thread_group(kMembers, [&](Group& group) {
    Site site{.group = group, .buffer = group.allocate(64)};
    group.barrier();
    const Error error = error_of([&] { (group.rank() == kOdd ? row.odd : row.usual)(site); });
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << error.message();
    EXPECT_EQ(error.origin(), kOdd) << error.message();
    EXPECT_THAT(error.message(), HasSubstr(row.text));
    float one = 1;
    const auto next_call = [&] { (void)all_reduce(group, &one, &one, 1, DType::f32); };
    if (row.stays_usable) {
      next_call();
      EXPECT_EQ(one, kMembers);
    } else {
      EXPECT_EQ(error_of(next_call).code(), ErrorCode::invalid_argument);
      EXPECT_EQ(one, 1) << "the refused call was taken for this one";
    }
  });
}

TEST(Refusals, AreHeardByAllRanksWhateverTheCall) {
  for (const Row& row : rows()) expect_heard_by_all(row);
}

// The waiting side consumes nothing, so a refusal harms no rank: the caller may wait again.
TEST(Refusals, OfAWaitForASignalOrADescriptorAreThisRanksAlone) {
  run_thread_group(2, [](Group& group) {
    const SymmetricBuffer buffer = group.allocate(64);
    const Rank other{1 - group.rank().value};
    EXPECT_EQ(error_of([&] { buffer.wait_signal(other, 0, milliseconds{-1}); }).code(),
              ErrorCode::invalid_argument);
    EXPECT_EQ(error_of([&] { (void)group.channel().recv_fd(other, milliseconds{-1}); }).code(),
              ErrorCode::invalid_argument);
    buffer.put_signal(other, 0);
    group.channel().send_fd(other, -1);
    buffer.wait_signal(other, 0);
    EXPECT_EQ(group.channel().recv_fd(other), -1);
    group.barrier();
  });
}

// --- the C API ---

/// A call in C. It returns its status.
struct CRow {
  const char* name;
  std::function<onehop_status_t(onehop_group_t*, bool odd)> call;
  const char* own;     ///< part of the odd rank's message
  const char* others;  ///< part of the others' messages
};

onehop_call_options_t options_with(const std::function<void(onehop_call_options_t&)>& change) {
  onehop_call_options_t options;
  onehop_call_options_init(&options, sizeof options);
  change(options);
  return options;
}

std::vector<CRow> c_rows() {
  static std::array<float, 192> in{};
  static thread_local std::array<float, 192> out;
  const auto all_reduce_with = [](const onehop_call_options_t& options) {
    return [options](onehop_group_t* group, bool odd) {
      return onehop_all_reduce(group, in.data(), out.data(), 8, ONEHOP_DTYPE_F32, ONEHOP_OP_SUM, nullptr,
                               odd ? &options : nullptr, nullptr);
    };
  };
  const auto bad_size = options_with([](onehop_call_options_t& o) { o.size = 3; });
  constexpr const char* kOptions = "its options are unusable; the error on that rank says why";
  std::vector<CRow> rows{
      {"type",
       [](onehop_group_t* g, bool odd) {
         return onehop_all_reduce(g, in.data(), out.data(), 8, odd ? 256 : ONEHOP_DTYPE_F32, ONEHOP_OP_SUM,
                                  nullptr, nullptr, nullptr);
       },
       "its element type is unknown", "its element type is unknown"},
      {"op",
       [](onehop_group_t* g, bool odd) {
         return onehop_reduce(g, in.data(), out.data(), 8, ONEHOP_DTYPE_F32, odd ? -1 : ONEHOP_OP_SUM, 0,
                              nullptr, nullptr, nullptr);
       },
       "its reduction is unknown", "its reduction is unknown"},
      {"algorithm", all_reduce_with(options_with([](onehop_call_options_t& o) { o.algorithm = 259; })),
       "its algorithm is unknown", "its algorithm is unknown"},
      {"no algorithm",
       all_reduce_with(options_with([](onehop_call_options_t& o) { o.algorithm = ONEHOP_ALGORITHM_NONE; })),
       "its algorithm is unknown", "its algorithm is unknown"},
      {"timeout", all_reduce_with(options_with([](onehop_call_options_t& o) { o.timeout_ms = -7; })),
       "its timeout is negative", "its timeout is negative"},
      {"size of options", all_reduce_with(bad_size), "options->size is 3", kOptions},
      {"in",
       [](onehop_group_t* g, bool odd) {
         return onehop_all_reduce(g, odd ? nullptr : in.data(), out.data(), 8, ONEHOP_DTYPE_F32,
                                  ONEHOP_OP_SUM, nullptr, nullptr, nullptr);
       },
       "its input is null", "its input is null"},
      {"out",
       [](onehop_group_t* g, bool odd) {
         return onehop_all_reduce(g, in.data(), odd ? nullptr : out.data(), 8, ONEHOP_DTYPE_F32,
                                  ONEHOP_OP_SUM, nullptr, nullptr, nullptr);
       },
       "its output is null", "its output is null"},
      {"counts",
       [](onehop_group_t* g, bool odd) {
         static const std::array<std::size_t, 3> counts{8, 8, 8};
         static const std::array<std::size_t, 3> offsets{0, 8, 16};
         return onehop_all_to_all_v(g, in.data(), odd ? nullptr : counts.data(), offsets.data(), out.data(),
                                    counts.data(), offsets.data(), ONEHOP_DTYPE_F32, nullptr, nullptr,
                                    nullptr);
       },
       "one count and one offset per rank", "one count and one offset per rank"},
      {"barrier's timeout",
       [](onehop_group_t* g, bool odd) { return onehop_group_barrier(g, odd ? -5 : ONEHOP_TIMEOUT_DEFAULT); },
       "its timeout is negative", "its timeout is negative"},
      {"split's result",
       [](onehop_group_t* g, bool odd) {
         onehop_group_t* part = nullptr;
         return onehop_group_split(g, 0, 0, odd ? nullptr : &part);
       },
       "part must not be NULL", "part must not be NULL"},
      {"allocate's result",
       [](onehop_group_t* g, bool odd) {
         onehop_buffer_t* buffer = nullptr;
         return onehop_group_allocate(g, 64, odd ? nullptr : &buffer);
       },
       "buffer must not be NULL", "cannot allocate 0 bytes"},
      {"a pool's result",
       [](onehop_group_t* g, bool odd) {
         onehop_pool_t* pool = nullptr;
         return onehop_pool_create(g, odd ? 64 : 4096, odd ? nullptr : &pool);
       },
       "cannot allocate 0 bytes", "cannot allocate 0 bytes"},
      {"all_gather_bytes' payload",
       [](onehop_group_t* g, bool odd) {
         onehop_payloads_t* payloads = nullptr;
         return onehop_group_all_gather_bytes(g, odd ? nullptr : "x", 1, &payloads);
       },
       "rank 1: payload must not be NULL when it has 1 bytes", "rank 1: payload must not be NULL"},
      {"all_gather_bytes' result",
       [](onehop_group_t* g, bool odd) {
         onehop_payloads_t* payloads = nullptr;
         return onehop_group_all_gather_bytes(g, "x", 1, odd ? nullptr : &payloads);
       },
       "rank 1: payloads must not be NULL", "rank 1: payloads must not be NULL"},
      {"a channel's payload",
       [](onehop_group_t* g, bool odd) {
         onehop_ipc_channel_t* channel = nullptr;
         if (onehop_group_channel(g, &channel) != ONEHOP_OK) return onehop_status_t{ONEHOP_ERROR_SYSTEM};
         onehop_payloads_t* payloads = nullptr;
         const onehop_status_t status = onehop_ipc_channel_all_gather(channel, odd ? nullptr : "x", 1,
                                                                      ONEHOP_TIMEOUT_DEFAULT, &payloads);
         onehop_ipc_channel_destroy(channel);
         return status;
       },
       "rank 1: payload must not be NULL when it has 1 bytes", "rank 1: payload must not be NULL"},
      {"size of allocate's options",
       [](onehop_group_t* g, bool odd) {
         onehop_buffer_options_t options;
         onehop_buffer_options_init(&options, sizeof options);
         options.size = 3;
         onehop_buffer_t* buffer = nullptr;
         return onehop_group_allocate_with(g, 64, odd ? &options : nullptr, &buffer);
       },
       "options->size is 3", "cannot allocate 0 bytes"},
      {"allocate's channels",
       [](onehop_group_t* g, bool odd) {
         onehop_buffer_options_t options;
         onehop_buffer_options_init(&options, sizeof options);
         options.channels = odd ? -1 : 20;
         onehop_buffer_t* buffer = nullptr;
         return onehop_group_allocate_with(g, 64, &options, &buffer);
       },
       "-1 channels are not within 1..4096", "-1 channels are not within 1..4096"},
  };
  using Made = std::function<onehop_status_t(onehop_group_t*, const onehop_call_options_t*)>;
  const std::pair<const char*, Made> others[] = {
      {"all_gather",
       [](auto* g, auto* o) {
         return onehop_all_gather(g, in.data(), out.data(), 8, ONEHOP_DTYPE_F32, nullptr, o, nullptr);
       }},
      {"reduce_scatter",
       [](auto* g, auto* o) {
         return onehop_reduce_scatter(g, in.data(), out.data(), 8, ONEHOP_DTYPE_F32, ONEHOP_OP_SUM, nullptr,
                                      o, nullptr);
       }},
      {"broadcast",
       [](auto* g, auto* o) {
         return onehop_broadcast(g, in.data(), out.data(), 8, ONEHOP_DTYPE_F32, 0, nullptr, o, nullptr);
       }},
      {"reduce",
       [](auto* g, auto* o) {
         return onehop_reduce(g, in.data(), out.data(), 8, ONEHOP_DTYPE_F32, ONEHOP_OP_SUM, 0, nullptr, o,
                              nullptr);
       }},
      {"all_to_all",
       [](auto* g, auto* o) {
         return onehop_all_to_all(g, in.data(), out.data(), 8, ONEHOP_DTYPE_F32, nullptr, o, nullptr);
       }},
      {"gather",
       [](auto* g, auto* o) {
         return onehop_gather(g, in.data(), out.data(), 8, ONEHOP_DTYPE_F32, 0, nullptr, o, nullptr);
       }},
      {"scatter",
       [](auto* g, auto* o) {
         return onehop_scatter(g, in.data(), out.data(), 8, ONEHOP_DTYPE_F32, 0, nullptr, o, nullptr);
       }},
  };
  for (const onehop_collective_t each :
       {ONEHOP_COLLECTIVE_ALL_REDUCE, ONEHOP_COLLECTIVE_ALL_TO_ALL, ONEHOP_COLLECTIVE_BARRIER}) {
    rows.push_back({"the caller's refusal",
                    [each](onehop_group_t* g, bool odd) {
                      // The other ranks may even make another call.
                      return odd ? onehop_refuse_call(g, each, ONEHOP_ERROR_INVALID_ARGUMENT, "no array: 5")
                                 : onehop_all_reduce(g, in.data(), out.data(), 8, ONEHOP_DTYPE_F32,
                                                     ONEHOP_OP_SUM, nullptr, nullptr, nullptr);
                    },
                    "no array: 5", "of rank 1 was rejected: no array: 5"});
  }
  rows.push_back({"the caller's refusal in a group of calls",
                  [](onehop_group_t* g, bool odd) {
                    EXPECT_EQ(onehop_group_call_begin(), ONEHOP_OK);
                    EXPECT_EQ(odd ? onehop_refuse_call(g, ONEHOP_COLLECTIVE_ALL_REDUCE,
                                                       ONEHOP_ERROR_INVALID_ARGUMENT, "no array: 5")
                                  : onehop_all_reduce(g, in.data(), out.data(), 8, ONEHOP_DTYPE_F32,
                                                      ONEHOP_OP_SUM, nullptr, nullptr, nullptr),
                              ONEHOP_OK);
                    return onehop_group_call_end();
                  },
                  "no array: 5", "of rank 1 was rejected: no array: 5"});
  for (const auto& [name, make] : others) {
    rows.push_back(
        {name, [=, make = make](onehop_group_t* g, bool odd) { return make(g, odd ? &bad_size : nullptr); },
         "options->size is 3", kOptions});
  }
  return rows;
}

TEST(CRefusals, AreHeardByAllRanksWhateverTheCall) {
  for (const CRow& row : c_rows()) {
    SCOPED_TRACE(row.name);
    run_thread_group(kMembers, [&](Group& joined) {
      const bool odd = joined.rank() == kOdd;
      onehop_group handle{std::move(joined)};
      EXPECT_EQ(row.call(&handle, odd), ONEHOP_ERROR_INVALID_ARGUMENT) << onehop_last_error();
      EXPECT_EQ(onehop_last_error_rank(), kOdd.value) << onehop_last_error();
      EXPECT_THAT(onehop_last_error(), HasSubstr(odd ? row.own : row.others));
      float one = 1;
      EXPECT_EQ(onehop_all_reduce(&handle, &one, &one, 1, ONEHOP_DTYPE_F32, ONEHOP_OP_SUM, nullptr, nullptr,
                                  nullptr),
                ONEHOP_OK)
          << onehop_last_error();
      EXPECT_EQ(one, kMembers);
    });
  }
}

TEST(CRefusals, OfTheCallerKeepTheirStatusAndRank) {
  struct Refusal {
    onehop_status_t status;
    bool usable;
  };
  for (const Refusal& row :
       {Refusal{ONEHOP_ERROR_OUT_OF_RESOURCES, true}, Refusal{ONEHOP_ERROR_ABORTED, false}}) {
    SCOPED_TRACE(onehop_status_name(row.status));
    run_thread_group(kMembers, [&](Group& joined) {
      const bool odd = joined.rank() == kOdd;
      onehop_group handle{std::move(joined)};
      std::array<float, 8> data{};
      const auto reduce = [&] {
        return onehop_all_reduce(&handle, data.data(), data.data(), data.size(), ONEHOP_DTYPE_F32,
                                 ONEHOP_OP_SUM, nullptr, nullptr, nullptr);
      };
      const std::string long_reason = "no memory for a copy" + std::string(100'000, '.');
      EXPECT_EQ(
          odd ? onehop_refuse_call(&handle, ONEHOP_COLLECTIVE_ALL_REDUCE, row.status, long_reason.c_str())
              : reduce(),
          row.status);
      EXPECT_EQ(onehop_last_error_rank(), kOdd.value) << onehop_last_error();
      EXPECT_THAT(onehop_last_error(), HasSubstr("no memory for a copy"));
      EXPECT_LT(std::string_view(onehop_last_error()).size(), 1200U);
      EXPECT_EQ(reduce(), row.usable ? ONEHOP_OK : row.status) << onehop_last_error();
    });
  }
}

TEST(CRefusals, OfAllocationsAndSplits) {
  run_thread_group(kMembers, [&](Group& joined) {
    const bool odd = joined.rank() == kOdd;
    onehop_group handle{std::move(joined)};
    onehop_buffer_t* buffer = nullptr;
    onehop_group_t* part = nullptr;
    onehop_pool_t* pool = nullptr;
    const auto expect_heard = [](onehop_status_t status, const char* call) {
      EXPECT_EQ(status, ONEHOP_ERROR_INVALID_ARGUMENT);
      EXPECT_EQ(onehop_last_error_rank(), kOdd.value);
      EXPECT_THAT(onehop_last_error(), HasSubstr(fmt::format("{}: rank {}: no number", call, kOdd.value)));
    };
    const auto refuse_allocation = [&] {
      return onehop_refuse_allocation(&handle, ONEHOP_ERROR_INVALID_ARGUMENT, "no number");
    };
    expect_heard(odd ? refuse_allocation() : onehop_group_allocate(&handle, 64, &buffer), "allocate");
    expect_heard(odd ? refuse_allocation() : onehop_pool_create(&handle, 64, &pool), "allocate");
    expect_heard(odd ? onehop_refuse_split(&handle, ONEHOP_ERROR_INVALID_ARGUMENT, "no number")
                     : onehop_group_split(&handle, 0, 0, &part),
                 "split");
    EXPECT_EQ(onehop_group_allocate(&handle, 64, &buffer), ONEHOP_OK);
    onehop_buffer_destroy(buffer);
  });
}

TEST(CRefusals, OfTransfersAndRegistrations) {
  run_thread_group(2, [&](Group& joined) {
    const bool first = joined.rank() == Rank{0};
    onehop_group handle{std::move(joined)};
    onehop_buffer_t* buffer = nullptr;
    std::array<float, 8> data{};
    // Host ranks cannot register memory in any case.
    const onehop_status_t registered =
        first ? onehop_refuse_registration(&handle, ONEHOP_ERROR_INVALID_ARGUMENT, "no array: 5")
              : onehop_group_register_buffer(&handle, data.data(), sizeof data, &buffer);
    EXPECT_EQ(registered, first ? ONEHOP_ERROR_INVALID_ARGUMENT : ONEHOP_ERROR_UNSUPPORTED);
    EXPECT_EQ(onehop_group_barrier(&handle, ONEHOP_TIMEOUT_DEFAULT), ONEHOP_OK);
    EXPECT_EQ(first
                  ? onehop_refuse_call(&handle, ONEHOP_COLLECTIVE_BARRIER, ONEHOP_ERROR_INVALID_ARGUMENT, "")
                  : onehop_group_barrier(&handle, ONEHOP_TIMEOUT_DEFAULT),
              ONEHOP_ERROR_INVALID_ARGUMENT);
    EXPECT_THAT(onehop_last_error(), HasSubstr("its caller gave no reason"));
    const onehop_status_t received = first ? onehop_refuse_call(&handle, ONEHOP_COLLECTIVE_SEND,
                                                                ONEHOP_ERROR_INVALID_ARGUMENT, "no array: 5")
                                           : onehop_recv(&handle, data.data(), data.size(), ONEHOP_DTYPE_F32,
                                                         0, nullptr, nullptr, nullptr);
    EXPECT_EQ(received, ONEHOP_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(onehop_last_error_rank(), 0);
    EXPECT_THAT(onehop_last_error(), HasSubstr("no array: 5"));
  });
}

TEST(Refusals, OfTheInstructionSetInTheEnvironmentAreHeardWhenJoining) {
  // In processes of their own, since the choice is made once per process.
  testing::TempDir directory;
  testing::Processes processes(2, [&](Rank rank) {
    if (rank == Rank{1}) ::setenv("ONEHOP_HOST_ISA", "mmx", 1);
    return std::string(error_of([&] {
                         (void)Group::join(file_store(directory.path() + "/store"),
                                           {.rank = rank, .size = 2});
                       }).message());
  });
  for (const testing::Exit& exit : processes.wait(std::chrono::seconds{30}))
    EXPECT_THAT(exit.text, HasSubstr("rank 1: ONEHOP_HOST_ISA='mmx'"));
}

}  // namespace
}  // namespace onehop
