// SPDX-License-Identifier: Apache-2.0
// Host memory; ranks are threads or processes.
#include <cstring>
#include <new>

#include "conformance/backend.h"
#include "support/ranks.h"
#include "support/sanitizers.h"
#include "support/scoped_variable.h"

namespace onehop::testing {
namespace {

class HostMemory final : public RankMemory {
 public:
  [[nodiscard]] Stream stream() const override { return {}; }
  [[nodiscard]] std::byte* allocate(std::size_t bytes) override {
    return static_cast<std::byte*>(::operator new(bytes, kAlignment));
  }
  void release(std::byte* data) override { ::operator delete(data, kAlignment); }
  void upload(void* to, const void* from, std::size_t bytes) override {
    if (bytes != 0) std::memcpy(to, from, bytes);
  }
  void download(void* to, const void* from, std::size_t bytes) override { upload(to, from, bytes); }

 private:
  static constexpr std::align_val_t kAlignment{64};
};

using Run = void (*)(int, const std::function<void(Group&)>&, const JoinOptions&);

Backend host(std::string name, Run run) {
  return {
      .name = std::move(name),
      .sizes = kSanitized ? std::vector{1, 2, 3, 5} : std::vector{1, 2, 3, 4, 5, 6, 7, 8},
      .few_sizes = kSanitized ? std::vector{1, 2, 5} : std::vector{1, 2, 5, 8},
      .unavailable = [](int) { return std::string(); },
      .run = [run](int ranks, const JoinOptions& options, const auto& body) { run(ranks, body, options); },
      .memory = [](Group&) { return std::make_unique<HostMemory>(); }};
}

/// On machines with few processors, too, ranks read each other's memory.
void run_reading_group(int n, const std::function<void(Group&)>& body, const JoinOptions& defaults) {
  const ScopedVariable on("ONEHOP_SINGLE_COPY", "1");
  run_process_group(n, body, defaults);
}

/// Ranks that do not read each other's memory, as where the system does not permit it. ThreadSanitizer sees the threads
/// of one process.
void run_staged_group(int n, const std::function<void(Group&)>& body, const JoinOptions& defaults) {
  const ScopedVariable off("ONEHOP_SINGLE_COPY", "0");
  (kThreadSanitized ? run_thread_group : run_process_group)(n, body, defaults);
}

/// Threads and processes differ in how memory is shared, not in the algorithms.
Backend host_threads() {
  Backend backend = host("HostThreads", run_thread_group);
  std::erase_if(backend.sizes, [](int ranks) { return ranks == 4 || ranks == 6 || ranks == 7; });
  return backend;
}

Backend host_staged() {
  Backend backend = host("HostStaged", run_staged_group);
  backend.sizes = kSanitized ? std::vector{3} : std::vector{2, 3, 5};
  backend.few_sizes = kSanitized ? std::vector{3} : std::vector{2, 5};
  return backend;
}

}  // namespace

const std::vector<Backend>& backends() {
  static const std::vector<Backend> all = {host_threads(), host("HostProcesses", run_reading_group),
                                           host_staged()};
  return all;
}

}  // namespace onehop::testing
