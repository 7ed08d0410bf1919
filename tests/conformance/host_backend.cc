#include "conformance/backend.h"

#include <cstring>
#include <new>

#include "support/ranks.h"

namespace onehop::testing {
namespace {

constexpr std::align_val_t kAlignment{64};

void copy(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes != 0) std::memcpy(to, from, bytes);
}

/// Host memory; `run` tells whether ranks are threads or processes.
Backend host_backend(std::string name,
                     std::function<void(int, const JoinOptions&, const std::function<void(Group&)>&)> run) {
  return {.name = std::move(name),
          .unavailable = [](int) { return std::string(); },
          .run = std::move(run),
          .allocate =
              [](std::size_t bytes) { return static_cast<std::byte*>(::operator new(bytes, kAlignment)); },
          .release = [](std::byte* data) { ::operator delete(data, kAlignment); },
          .upload = copy,
          .download = copy};
}

}  // namespace

const std::vector<Backend>& backends() {
  static const std::vector<Backend> all = {
      host_backend("HostThreads", [](int ranks, const JoinOptions& options,
                                     const auto& body) { run_thread_group(ranks, body, options); }),
      host_backend("HostProcesses", [](int ranks, const JoinOptions& options,
                                       const auto& body) { run_process_group(ranks, body, options); }),
  };
  return all;
}

}  // namespace onehop::testing
