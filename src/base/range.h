// SPDX-License-Identifier: Apache-2.0
// NVTX ranges, which profilers such as Nsight Systems show as bars over a thread's calls, in the domain
// "onehop". Without a profiler, or in a build without the NVTX headers (ONEHOP_NVTX), a range costs one load
// and two branches.
#pragma once

#include <atomic>

namespace onehop {

namespace detail {
/// The NVTX domain; nullptr if no profiler is attached.
inline std::atomic<void*> g_range_domain{nullptr};
void push_range(void* domain, const char* name);
void pop_range(void* domain);
}  // namespace detail

/// Determines once per process whether a profiler is attached. Thread-safe.
void start_ranges();

/// A range that lasts from its construction to its destruction, on the same thread. Ranges nest.
class Range {
 public:
  explicit Range(const char* name)
      // acquire: pairs with the store in start_ranges(); the tool may keep the domain in plain memory.
      : domain_(detail::g_range_domain.load(std::memory_order_acquire)) {
    if (domain_ != nullptr) [[unlikely]]
      detail::push_range(domain_, name);
  }
  ~Range() {
    if (domain_ != nullptr) [[unlikely]]
      detail::pop_range(domain_);
  }
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;

 private:
  void* const domain_;
};

}  // namespace onehop
