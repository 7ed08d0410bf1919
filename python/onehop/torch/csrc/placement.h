// SPDX-License-Identifier: Apache-2.0
// Whether onehop can carry a process group: on how many machines its ranks are, and what they want otherwise.
#pragma once

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>
#include <vector>

#include "onehop/c_api.h"

#include "status.h"
#include "store.h"

namespace onehop_torch {

/// This machine, as groups of the library tell machines apart.
inline std::string host_id(const Membership& members) {
  char* id = nullptr;
  check(onehop_host_id(&id), "creation", members);
  std::string result(id);
  onehop_free(id);
  return result;
}

/// Each rank publishes its machine and its setting when the process group is created. The last one compares
/// them and publishes the result, so that all ranks act upon one and the same.
class Placement {
 public:
  struct Verdict {
    int machines = 1;
    std::string fallback;  ///< of all ranks
    std::string refusal;   ///< "" or why there is none
  };

  /// Never waits.
  Placement(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, const std::string& fallback,
            const Membership& members)
      : store_(store), size_(size), members_(members) {
    if (size == 1) return;
    store_->set(key_of(rank), bytes_of(c10::str(host_id(members), "\n", fallback)));
    // A store may outlive the process group, and serve the next one of the same name.
    if (store_->add("where/created", 1) % size == 0) store_->set(kVerdict, bytes_of(compare()));
  }

  /// Of a process group whose ranks know all of it beforehand.
  explicit Placement(Verdict known) : known_(std::move(known)) {}

  /// Waits until all ranks have created the process group.
  Verdict verdict(std::chrono::milliseconds timeout, const Cancellation& cancelled) const {
    if (known_) return *known_;
    const auto found =
        run_for(timeout, cancelled, [self = *this, timeout, cancelled]() -> std::optional<std::string> {
          const auto store = StoreBridge::clone(self.store_);
          switch (wait_for(*store, {kVerdict}, timeout, *cancelled)) {
            case Waited::found:
              return text_of(store->get(kVerdict));
            case Waited::cancelled:
              return std::nullopt;
            case Waited::timed_out:
              break;
          }
          C10_THROW_ERROR(DistBackendError,
                          c10::str("onehop: process group '", self.members_.group, "': after ",
                                   timeout.count(), " ms, it was not created by", self.missing(*store)));
        });
    TORCH_CHECK_WITH(DistBackendError, !*cancelled, "onehop: process group '", members_.group,
                     "' was aborted");
    TORCH_CHECK_WITH(DistBackendError, found, "onehop: process group '", members_.group,
                     "': its store did not answer within ", timeout.count(), " ms");
    return parse(**found);
  }

 private:
  static constexpr const char* kVerdict = "where/verdict";

  static std::string key_of(int rank) { return c10::str("where/", rank); }
  static std::vector<uint8_t> bytes_of(const std::string& text) { return {text.begin(), text.end()}; }
  static std::string text_of(const std::vector<uint8_t>& bytes) { return {bytes.begin(), bytes.end()}; }

  /// The verdict's text: the number of machines and the setting, or 0 and the refusal.
  std::string compare() const {
    std::set<std::string> machines;
    std::string first;
    for (int rank = 0; rank < size_; ++rank) {
      const std::string own = text_of(store_->get(key_of(rank)));
      const size_t end = own.find('\n');
      const std::string fallback = own.substr(end + 1);
      machines.insert(own.substr(0, end));
      if (rank == 0) first = fallback;
      if (fallback != first) {
        return c10::str("0\nranks ", members_.global(0), " and ", members_.global(rank),
                        " differ in their fallback: '", first, "' and '", fallback,
                        "'. Set ONEHOP_FALLBACK, or the option fallback, to one value on all ranks");
      }
    }
    return c10::str(machines.size(), "\n", first);
  }

  static Verdict parse(const std::string& text) {
    const size_t end = text.find('\n');
    Verdict verdict{std::stoi(text.substr(0, end))};
    (verdict.machines == 0 ? verdict.refusal : verdict.fallback) = text.substr(end + 1);
    return verdict;
  }

  std::string missing(c10d::Store& store) const {
    std::string ranks;
    for (int rank = 0; rank < size_; ++rank) {
      if (!store.check({key_of(rank)}))
        ranks += c10::str(ranks.empty() ? " rank " : ", ", members_.global(rank));
    }
    return ranks;
  }

  std::optional<Verdict> known_;
  c10::intrusive_ptr<c10d::Store> store_;
  int size_ = 0;
  Membership members_;
};

}  // namespace onehop_torch
