// SPDX-License-Identifier: Apache-2.0
// Failing system calls. Every function of the C library that the ranks of a job call between opening their
// store and leaving is made to fail on one rank: at the first call, at the second call, and so on. Each time,
// no process hangs, crashes or leaks a descriptor. Either the failure has no effect, or all ranks get an
// Error whose origin is the rank in which the call failed. Afterwards the same processes form a group that
// works.
//
//   ONEHOP_FAILING_CALLS_TABLE=FILE  runs every cell (k up to 30, all stores, each rank) and writes a table
//   ONEHOP_FAILING_CALLS=NAME,...    runs the cells of these functions only
#include "fault/failing_calls.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>

#include "onehop/diagnose.h"

#include "doctor_checks.h"
#include "fault/weak_rank.h"
#include "fault/world.h"

namespace onehop::fault::failing_calls_test {
namespace {

using std::chrono::seconds;

constexpr std::size_t kTogether = 6;
constexpr int kMostCalls = 30;

struct Cell {
  const FailingCall* call;
  StoreKind store;
  int weak;
  int nth;

  [[nodiscard]] std::string name() const {
    return fmt::format("{} number {} fails with {} on rank {}, {} store", call->name, nth, error_name(), weak,
                       to_text(store));
  }
  [[nodiscard]] const char* error_name() const {
    const char* const known = ::strerrorname_np(call->error);
    return known == nullptr ? "EAI_MEMORY" : known;
  }
};

/// How the cells of one function and one store ended.
struct Row {
  int recovered = 0;
  int same_error = 0;
  int named = 0;
  int wrong = 0;

  void count(Outcome outcome) {
    ++(outcome == Outcome::recovered    ? recovered
       : outcome == Outcome::same_error ? same_error
       : outcome == Outcome::named      ? named
                                        : wrong);
  }
  [[nodiscard]] int cells() const { return recovered + same_error + named + wrong; }
};

bool chosen(const char* name) {
  const char* const only = std::getenv("ONEHOP_FAILING_CALLS");
  return only == nullptr || fmt::format(",{},", only).find(fmt::format(",{},", name)) != std::string::npos;
}

/// Runs the cells that `all` chooses, a few at a time. A function is complete once a whole batch of its cells
/// was not struck, since it is not called that often.
class Matrix {
 public:
  using Expect = std::function<void(const Cell&, Outcome, const WeakRankJob&)>;

  explicit Matrix(Expect expect) : expect_(std::move(expect)) {}

  void run(const FailingCall& call, StoreKind store, int weak, const std::vector<int>& numbers) {
    bool struck = true;
    for (std::size_t first = 0; struck && first < numbers.size(); first += kTogether) {
      std::vector<Cell> cells;
      std::vector<std::unique_ptr<WeakRankJob>> jobs;
      for (std::size_t i = first; i < std::min(first + kTogether, numbers.size()); ++i) {
        cells.push_back({&call, store, weak, numbers[i]});
        jobs.push_back(job(cells.back()));
      }
      for (std::size_t i = 0; i < jobs.size(); ++i) struck = finish(cells[i], std::move(jobs[i]));
    }
  }

  [[nodiscard]] const std::map<std::string, std::map<StoreKind, Row>>& rows() const { return rows_; }
  [[nodiscard]] Row total() const {
    Row sum;
    for (const auto& [name, stores] : rows_) {
      for (const auto& [store, row] : stores) {
        sum.recovered += row.recovered;
        sum.same_error += row.same_error;
        sum.named += row.named;
        sum.wrong += row.wrong;
      }
    }
    return sum;
  }

 private:
  [[nodiscard]] std::unique_ptr<WeakRankJob> job(const Cell& cell) const {
    return std::make_unique<WeakRankJob>(
        cell.weak, cell.store, cell.store == StoreKind::tcp ? &server_ : nullptr,
        [call = cell.call, nth = cell.nth] { arm_failing_call(*call, nth); },
        [] { return disarm_failing_call(); });
  }

  /// True when the function was called often enough for the fault to strike.
  bool finish(const Cell& cell, std::unique_ptr<WeakRankJob> one) {
    Outcome outcome = one->finish();
    for (int again = 0; again < 3 && one->is_inconclusive(); ++again) {
      one = job(cell);
      outcome = one->finish();
    }
    if (!one->struck() && outcome == Outcome::recovered) return false;
    rows_[cell.call->name][cell.store].count(outcome);
    if (outcome == Outcome::wrong) ADD_FAILURE() << cell.name() << ": " << one->wrong();
    expect_(cell, outcome, *one);
    return one->struck();
  }

  const Expect expect_;
  const StoreServer server_;
  std::map<std::string, std::map<StoreKind, Row>> rows_;
};

std::vector<int> up_to(int most) {
  std::vector<int> numbers;
  for (int i = 0; i < most; ++i) numbers.push_back(i);
  return numbers;
}

void write_table(const std::string& path, const Matrix& matrix) {
  std::ofstream file(path);
  file << R"(# Failing system calls

This page shows how a job behaves when a system call fails on one rank. A test writes it:

```sh
ONEHOP_FAILING_CALLS_TABLE=docs/failing-system-calls.md build/release/tests/fault/fault_test \
  --gtest_filter=FailingCalls.AnyCallMayFailAtAnyTime
```

Three ranks join, allocate, all-reduce, send and receive, gather large data, pass descriptors, fork, split, call two groups at once, and leave. On one rank,
one call of one C library function fails: the first, the second, ... the thirtieth, on each rank in turn, over each kind of store. No
process hangs, crashes or leaks a descriptor, and afterwards the same processes form a group that works.

Each such failure is one cell, with one of these results:

- *recovered*: all ranks succeed.
- *same error*: all ranks throw the same error. Its `origin()` is the rank in which the call failed; on that rank it may be `none()`.
- *named*: that rank could not report the reason. The others throw `timeout` or `peer_lost` and name it.
- *misnamed*: any other result.

| function | fails with | store | cells | recovered | same error | named | misnamed |
|---|---|---|---|---|---|---|---|
)";
  for (const FailingCall& call : failing_calls()) {
    const auto stores = matrix.rows().find(call.name);
    if (stores == matrix.rows().end()) {
      file << fmt::format("| `{}` | | | not called | | | | |\n", call.name);
      continue;
    }
    for (const auto& [store, row] : stores->second) {
      file << fmt::format("| `{}` | {} | {} | {} | {} | {} | {} | {} |\n", call.name,
                          Cell{&call, store, 0, 0}.error_name(), to_text(store), row.cells(), row.recovered,
                          row.same_error, row.named, row.wrong);
    }
  }
  const Row sum = matrix.total();
  file << fmt::format("| all | | | {} | {} | {} | {} | {} |\n", sum.cells(), sum.recovered, sum.same_error,
                      sum.named, sum.wrong);
}

void print_total(const Matrix& matrix) {
  const Row sum = matrix.total();
  fmt::print(
      "{} system calls failed one by one: {} recovered, {} the same error on all ranks, {} named without a "
      "reason, {} misnamed; no hang, crash or leak\n",
      sum.cells(), sum.recovered, sum.same_error, sum.named, sum.wrong);
}

TEST(FailingCalls, AnyCallMayFailAtAnyTime) {
  if (!can_fail_calls()) GTEST_SKIP() << "system calls cannot be made to fail under ThreadSanitizer";
  const char* const table = std::getenv("ONEHOP_FAILING_CALLS_TABLE");
  Matrix matrix([&](const Cell& cell, Outcome outcome, const WeakRankJob& job) {
    if (table != nullptr && outcome == Outcome::named) fmt::print("named: {}{}\n", cell.name(), job.errors());
  });
  int turn = 0;
  for (const FailingCall& call : failing_calls()) {
    if (!chosen(call.name)) continue;
    if (table != nullptr) {
      for (const StoreKind store : {StoreKind::file, StoreKind::tcp}) {
        for (int weak = 0; weak < WeakRankJob::kRanks; ++weak)
          matrix.run(call, store, weak, up_to(kMostCalls));
      }
      matrix.run(call, StoreKind::hosted, 0, up_to(kMostCalls));
      continue;
    }
    // The short form: each function and store on one rank in turn, and fewer of the calls.
    const std::vector<int> few = kSanitized ? std::vector{0, 2, 7} : std::vector{0, 1, 3, 6, 11, 19};
    for (const StoreKind store : {StoreKind::file, StoreKind::tcp})
      matrix.run(call, store, turn++ % WeakRankJob::kRanks, few);
    if (turn % 4 == 0) matrix.run(call, StoreKind::hosted, 0, few);
    ++turn;
  }
  print_total(matrix);
  if (table != nullptr) write_table(table, matrix);
  EXPECT_GT(matrix.total().cells(), 30);
}

TEST(FailingCalls, ASignalDuringAnyCallChangesNothing) {
  if (!can_fail_calls()) GTEST_SKIP() << "system calls cannot be made to fail under ThreadSanitizer";
  Matrix matrix([](const Cell& cell, Outcome outcome, const WeakRankJob&) {
    EXPECT_EQ(outcome, Outcome::recovered) << cell.name();
  });
  int turn = 0;
  for (const FailingCall& call : interrupted_calls()) {
    if (!chosen(call.name)) continue;
    const int weak = turn++ % WeakRankJob::kRanks;
    const StoreKind store = turn % 2 == 0 ? StoreKind::file : StoreKind::tcp;
    matrix.run(call, store, weak, kSanitized ? up_to(6) : up_to(18));
  }
  fmt::print("{} system calls interrupted one by one\n", matrix.total().cells());
}

// Doctor must report the real cause of each failure; no check may throw, hang, or leave anything open.
TEST(FailingCalls, DoctorSaysWhatFailsAndEnds) {
  if (!can_fail_calls()) GTEST_SKIP() << "system calls cannot be made to fail under ThreadSanitizer";
  int cells = 0;
  int said = 0;
  for (const FailingCall& call : failing_calls()) {
    if (!chosen(call.name)) continue;
    bool struck = true;
    for (int nth = 0; struck && nth < kMostCalls; ++nth) {
      const Cell cell{&call, StoreKind::file, 0, nth};
      enum Figure { kStruck, kLeaked, kFails, kBadLines, kMisnamed };
      World world(1, [&](World& self, Rank rank) {
        Card& card = self.card(rank);
        const int before = testing::footprint().descriptors;
        arm_failing_call(call, nth);
        std::vector<Finding> findings;
        card.attempts[0].run([&] {
          findings = cli::check_machine();
          for (Finding& finding : diagnose_gpus().findings) findings.push_back(std::move(finding));
        });
        card.figures[kStruck] = disarm_failing_call() ? 1 : 0;
        card.figures[kLeaked] = testing::footprint().descriptors - before;
        for (const Finding& finding : findings) {
          if (finding.health == Health::fails) {
            card.figures[kFails] += 1;
            if (finding.detail.find(cell.error_name()) == std::string::npos) {
              card.figures[kMisnamed] += 1;
              fmt::print(stderr, "{} number {}: {}: {}\n", call.name, nth, finding.name, finding.detail);
            }
          }
          if (finding.detail.empty() || finding.detail.find('\n') != std::string::npos)
            card.figures[kBadLines] += 1;
        }
      });
      SCOPED_TRACE(cell.name());
      EXPECT_TRUE(world.finish(seconds{20})) << "doctor hung";
      const Card& card = world.card(Rank{0});
      struck = card.figures[kStruck] != 0;
      if (!struck) break;
      ++cells;
      said += card.figures[kFails] != 0 ? 1 : 0;
      EXPECT_EQ(world.exit_of(Rank{0}), 0);
      EXPECT_EQ(card.attempts[0].state.load(), Attempt::succeeded) << card.attempts[0].text();
      EXPECT_EQ(card.figures[kLeaked], 0);
      EXPECT_EQ(card.figures[kBadLines], 0);
      EXPECT_EQ(card.figures[kMisnamed], 0)
          << "what doctor says fails for another reason than the one injected";
    }
  }
  fmt::print("doctor: {} system calls failed one by one; in {} of them it found something that fails here\n",
             cells, said);
}

}  // namespace
}  // namespace onehop::fault::failing_calls_test
