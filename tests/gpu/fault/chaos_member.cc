// SPDX-License-Identifier: Apache-2.0
#include "gpu/fault/chaos_member.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <random>
#include <span>
#include <stdexcept>

#include "gpu/stress_call.h"
#include "gpu/stress_plan.h"
#include "os/futex.h"

namespace onehop::fault {
namespace {

using std::chrono::seconds;
using testing::StressBatch;
using testing::StressOp;
using testing::StressPlan;

constexpr int kMostOps = 8;  // per batch: many small steps rather than few large ones
constexpr seconds kMostTraffic{60};
// Bytes per block of all_gather. On GPUs, blocks are long enough for copy engines.
constexpr std::size_t kHostBlockBytes = 256 << 10;
constexpr std::size_t kWordsOfHalf = 5000;

void wait_for(std::atomic<std::uint32_t>& word, std::uint32_t at_least) {
  for (std::uint32_t now = word.load(); now < at_least; now = word.load())
    os::futex_wait(word, now, seconds{1});
}

/// Makes the calls of one group.
class Session {
 public:
  Session(Group& group, ChaosBackend& backend, const ChaosTask& task, ChaosReport& report)
      : group_(group),
        backend_(backend),
        task_(task),
        report_(report),
        together_(task.seed),
        own_(task.seed * 64 + static_cast<std::uint64_t>(task.rank) + 1),
        plan_(task.seed, task.rank, task.size),
        sums_(task.seed, task.rank, task.size, {Collective::all_reduce}) {}

  /// Runs until a call throws.
  void run() {
    begin();
    for (const std::int64_t start = now_ns();
         now_ns() - start < std::chrono::nanoseconds(kMostTraffic).count();) {
      step();
      report_.steps.fetch_add(1);
    }
    throw std::logic_error("nothing happened to this group");
  }
  /// Checks that the group works: a few all-reduces, verified.
  void try_out() {
    begin();
    call("barrier", group_.timeout(), [&] { group_.barrier(); });
  }

 private:
  [[nodiscard]] std::uint32_t below(std::uint32_t limit) {
    return static_cast<std::uint32_t>(together_() % limit);
  }
  [[nodiscard]] bool on_host() const { return group_.device().is_host(); }

  /// Runs a call that may block. Records its name and how long it may take, so that the parent can judge its
  /// failure.
  template <class Body>
  void call(const char* what, Duration timeout, Body&& body) {
    std::snprintf(report_.step, sizeof report_.step, "%s", what);
    report_.call_timeout = timeout;
    report_.work.begin_call();
    body();
  }

  void begin() {
    call("allocate", group_.timeout(), [&] { symmetric_ = group_.allocate(StressPlan::kPartBytes); });
    backend_.begin(task_.rank, task_.size, symmetric_.local());
    for (int i = 0; i < 3; ++i) queue(sums_);
    finish();
  }

  void step() {
    const std::uint32_t which = below(32);
    if (which < 2) {
      call("barrier", group_.timeout(), [&] { group_.barrier(); });
    } else if (which < 3) {
      gather_text();
    } else if (which < 4) {
      gather_in_new_memory();
    } else if (which < 5) {
      split();
    } else if (which < 8) {
      signal(which < 6);
    } else if (which < 12) {
      replay();
    } else {
      for (std::uint32_t i = below(4); i < 4; ++i) queue(plan_);
      finish();
    }
  }

  /// Makes a batch of calls with their checks, on the stream if there is one.
  void queue(StressPlan& plan) {
    const StressBatch batch = plan.batch(kMostOps, 0);
    backend_.fill(batch);
    for (std::size_t at = 0; at < batch.size();) {
      std::size_t end = at + 1;
      while (end < batch.size() && batch[end].together) ++end;
      call(testing::stress_name(batch[at].kind), group_.timeout(), [&] {
        make_calls(group_, backend_.arena(), std::span(batch).subspan(at, end - at), backend_.stream());
      });
      at = end;
    }
    backend_.check(batch);
    backend_.advance();
    count(batch, 1);
  }
  void replay() {
    const StressBatch batch = plan_.batch(kMostOps, 0);
    const int times = 1 + static_cast<int>(below(8));
    call("graph", group_.timeout(), [&] { backend_.replay(group_, batch, times); });
    count(batch, static_cast<std::uint64_t>(times));
    finish();
  }
  void count(const StressBatch& batch, std::uint64_t times) {
    queued_calls_ += times * batch.size();
    for (const StressOp& op : batch) {
      if (op.checked) queued_elements_ += times * output_count(op, task_.rank, task_.size);
    }
  }
  /// Waits for the queued calls and checks their results.
  void finish() {
    const Duration timeout = patience();
    call("synchronize", timeout, [&] { group_.synchronize(backend_.stream(), timeout); });
    if (const std::string wrong = backend_.findings(); !wrong.empty()) throw std::logic_error(wrong);
    report_.calls += queued_calls_;
    report_.elements += queued_elements_;
    queued_calls_ = queued_elements_ = 0;
  }
  [[nodiscard]] Duration patience() {
    ChaosTask::Patience patience = task_.patience;
    if (patience == ChaosTask::mixed) patience = static_cast<ChaosTask::Patience>(own_() % 3);
    if (patience == ChaosTask::equal) return group_.timeout();
    if (patience == ChaosTask::longer) return 2 * group_.timeout();
    return group_.timeout() / 3 + Duration{static_cast<long>(own_() % 300)};
  }

  void gather_text() {
    const std::string own = fmt::format("rank {} of round {}", task_.rank, task_.round);
    std::vector<std::string> all;
    call("all_gather of bytes", group_.timeout(), [&] { all = group_.all_gather(own); });
    for (int r = 0; r < task_.size; ++r) {
      if (all[static_cast<std::size_t>(r)] != fmt::format("rank {} of round {}", r, task_.round))
        throw std::logic_error("all_gather of bytes: wrong bytes");
    }
  }

  /// Long enough for copy engines, which write directly into the peers' buffers.
  void gather_in_new_memory() {
    const auto peers = static_cast<std::size_t>(task_.size - 1);
    const std::size_t block = on_host() ? kHostBlockBytes : ((64 + (peers - 1) * 12) / peers + 1) << 20;
    call("allocate", group_.timeout(),
         [&] { scratch_ = group_.allocate(block * static_cast<std::size_t>(task_.size)); });
    std::byte* const all = scratch_.local();
    std::byte* const own = all + static_cast<std::size_t>(task_.rank) * block;
    const auto word = [&](int r) {
      return static_cast<std::uint32_t>(task_.seed * 8) + static_cast<unsigned>(r);
    };
    backend_.fill_words(own, word(task_.rank), block / 4);
    call("all_gather, symmetric", group_.timeout(), [&] {
      (void)all_gather(group_, own, all, block / 4, DType::u32, backend_.stream(),
                       {.algorithm = {}, .timeout = {}, .symmetric = true});
    });
    finish();
    for (int r = 0; r < task_.size; ++r) {
      const std::byte* const begin = all + static_cast<std::size_t>(r) * block;
      for (const std::size_t at : {std::size_t{0}, block / 8 * 4, block - 4})
        expect_word(begin + at, word(r), "all_gather, symmetric");
    }
    scratch_ = {};
  }

  /// Splits into two groups, or into one with the ranks in reverse order.
  void split() {
    const int colors = task_.size >= 4 ? 2 : 1;
    const int color = task_.rank % colors;
    call("split", group_.timeout(), [&] { half_ = group_.split(color, -task_.rank); });
    std::byte* const data = backend_.arena().ordinary;
    backend_.fill_words(data, 1, kWordsOfHalf);
    try {
      call("all_reduce after split", half_->timeout(), [&] {
        (void)all_reduce(*half_, data, data, kWordsOfHalf, DType::u32, ReduceOp::sum, backend_.stream());
        half_->synchronize(backend_.stream());
      });
      call("barrier after split", half_->timeout(), [&] { half_->barrier(); });
    } catch (const Error& error) {
      if (error.origin().none()) throw;
      // Ranks of the half count down from the last member of the color.
      const int last = (task_.size - 1 - color) / colors * colors + color;
      throw Error(error.code(), error.message(), Rank{last - colors * error.origin().value});
    }
    expect_word(data + (kWordsOfHalf - 1) * 4, static_cast<std::uint32_t>(half_->size()),
                "all_reduce after split");
    half_.reset();
  }
  void expect_word(const std::byte* at, std::uint32_t wanted, const char* what) const {
    if (const std::uint32_t got = backend_.read_word(at); got != wanted)
      throw std::logic_error(fmt::format("{}: {:#x} instead of {:#x}", what, got, wanted));
  }

  void signal(bool barrier) {
    const Stream stream = backend_.stream();
    const Rank to{(task_.rank + 1) % task_.size};
    const Rank from{(task_.rank + task_.size - 1) % task_.size};
    const Duration timeout = group_.timeout();
    call(barrier ? "barrier of a buffer" : "signals", timeout, [&] {
      if (barrier) return on_host() ? symmetric_.barrier(1, timeout) : symmetric_.barrier(stream, 1, timeout);
      if (on_host()) {
        symmetric_.put_signal(to, 2);
        return symmetric_.wait_signal(from, 2, timeout);
      }
      symmetric_.put_signal(stream, to, 2);
      symmetric_.wait_signal(stream, from, 2, timeout);
    });
    finish();
  }

  Group& group_;
  ChaosBackend& backend_;
  const ChaosTask& task_;
  ChaosReport& report_;
  std::mt19937_64 together_;
  std::mt19937_64 own_;
  StressPlan plan_;
  StressPlan sums_;
  SymmetricBuffer symmetric_;
  // Members, so that a failed call has ended before they are destroyed.
  SymmetricBuffer scratch_;
  std::optional<Group> half_;
  std::uint64_t queued_calls_ = 0;
  std::uint64_t queued_elements_ = 0;
};

void make_task(ChaosBoard& board, ChaosSlot& slot, ChaosBackend& backend, const std::string& dir) {
  const ChaosTask& task = slot.task;
  ChaosReport& report = slot.report;
  JoinOptions options;
  options.name = fmt::format("{}-{}", task.kind == ChaosTask::traffic ? "traffic" : "regroup", task.round);
  options.rank = Rank{task.rank};
  options.size = task.size;
  options.device = backend.device();
  options.timeout = task.timeout;
  {
    std::optional<Group> group;
    report.call_timeout = task.timeout;
    report.join.run([&] { group.emplace(Group::join(file_store(dir), options)); });
    if (!group) return;
    Session session(*group, backend, task, report);
    report.work.run([&] { task.kind == ChaosTask::traffic ? session.run() : session.try_out(); });
    if (task.kind == ChaosTask::traffic && !task.leaves_at_once)
      wait_for(board.heard, static_cast<std::uint32_t>(task.round));
  }
  report.context_usable = backend.usable();
}

}  // namespace

void live_as_member(ChaosBoard& board, ChaosSlot& slot, ChaosBackend& backend, int most,
                    const std::string& dir) {
  backend.load(most);
  slot.ready.store(1);
  for (std::uint32_t task = 1;; ++task) {
    wait_for(slot.given, task);
    if (slot.task.kind == ChaosTask::end) return;
    make_task(board, slot, backend, dir);
    slot.done.store(task);
  }
}

}  // namespace onehop::fault
