// SPDX-License-Identifier: Apache-2.0
// all_to_all_v among host ranks: an exchange in which the ranks announce their block sizes in the first step.
#include <algorithm>
#include <vector>

#include "backend/host/exchange.h"
#include "backend/host/staging.h"
#include "base/check.h"
#include "call/check_call.h"

namespace onehop::host {
namespace {

/// The block sizes and offsets in bytes that the ranks exchange through their staging areas in the first
/// step.
class Ledger {
 public:
  static constexpr std::size_t kBytes = 2048;
  struct Entry {
    std::uint64_t sent;      ///< to that rank
    std::uint64_t from;      ///< offset of that data, counted from the first byte sent to any rank
    std::uint64_t received;  ///< from that rank
  };

  /// Stages this rank's page, one entry per rank. Called before the first step.
  Ledger(const StepBarrier& barrier, const CollectiveCall& call)
      : step_barrier_(barrier),
        slot_(StagingLayout(barrier.staging_bytes()).input_offset(barrier.next_step(), kBytes)) {
    const std::byte* const begin = call.input().data();
    for (int r = 0; r < call.ranks; ++r) {
      const std::span<const std::byte> sent = call.block_to(r);
      const Entry entry{.sent = sent.size(),
                        .from = sent.empty() ? 0 : static_cast<std::uint64_t>(sent.data() - begin),
                        .received = call.block_from(r).size()};
      at(call.rank, r)->write(entry);
    }
  }

  /// Reads the pages of all ranks. Called after the first step and before the next one.
  void read() {
    const int n = step_barrier_.size();
    pages_.reserve(static_cast<std::size_t>(n * n));
    for (int rank = 0; rank < n; ++rank) {
      for (int other = 0; other < n; ++other) pages_.push_back(at(rank, other)->read());
    }
  }

  /// Rank `rank`'s entry for rank `other`.
  [[nodiscard]] const Entry& entry(int rank, int other) const {
    return pages_[static_cast<std::size_t>(rank * step_barrier_.size() + other)];
  }

  /// Throws, identically on all ranks, if a rank does not send what another expects.
  void require_agreement(std::size_t element) const {
    for (int s = 0; s < step_barrier_.size(); ++s) {
      for (int r = 0; r < step_barrier_.size(); ++r) {
        const std::uint64_t sent = entry(s, r).sent;
        require_same_count(Rank{s}, sent / element, Rank{r}, entry(r, s).received / element);
        if (sent % element != 0) {
          fail_from(Rank{s}, ErrorCode::protocol,
                    "all_to_all_v: rank {} announced {} bytes of elements of {}", s, sent, element);
        }
      }
    }
  }

 private:
  [[nodiscard]] os::Untrusted<Entry>* at(int rank, int other) const {
    return reinterpret_cast<os::Untrusted<Entry>*>(step_barrier_.staging(rank) + slot_) + other;
  }

  const StepBarrier& step_barrier_;
  std::size_t slot_;
  std::vector<Entry> pages_;  ///< by rank, then by other rank; see read()
};
static_assert(kMaxHostRanks * sizeof(os::Untrusted<Ledger::Entry>) <= Ledger::kBytes);

}  // namespace

void all_to_all_v(Steps& steps, std::optional<std::size_t> /*chunk*/) {
  const CollectiveCall& call = steps.call();
  const int me = call.rank;
  Ledger ledger(steps.barrier(), call);
  const std::span<const std::byte> input = call.input();
  // A rank that sends nothing announces its output. What matters is that it can reach the buffer.
  const std::span<const std::byte> shown = input.empty() ? call.output() : input;
  steps.show_input(shown);
  steps.begin();
  ledger.read();
  ledger.require_agreement(call.element_bytes());

  Exchange moved;
  moved.in = input.data();
  moved.out = call.out_at();
  for (int i = 1; i < call.ranks; ++i) {
    const Ledger::Entry& entry = ledger.entry(me, (me + i) % call.ranks);
    if (entry.sent != 0) moved.send(entry.from, entry.sent);
  }
  for (int s = 0; s < call.ranks; ++s) {
    std::size_t stream = 0;
    for (int i = 1; i < call.ranks; ++i) {
      const int r = (s + i) % call.ranks;
      if (r == me) moved.arrival(s).at = stream;
      stream += ledger.entry(s, r).sent;
    }
    moved.longest = std::max(moved.longest, stream);
    const Ledger::Entry& entry = ledger.entry(s, me);
    Exchange::Arrival& arrival = moved.arrival(s);
    const std::span<std::byte> received = call.block_from(s);
    arrival.from = entry.from;
    arrival.bytes = received.size();  // which is entry.sent
    arrival.to = received.empty() ? 0 : static_cast<std::size_t>(received.data() - call.out_at());
  }
  if (steps.shows(moved.longest)) moved.in_peers = steps.inputs();
  exchange(steps, moved);
}

}  // namespace onehop::host
