// SPDX-License-Identifier: Apache-2.0
// GPUs: rank r is on GPU r.
#include "conformance/backend.h"
#include "support/gpu.h"
#include "support/ranks.h"

namespace onehop::testing {
namespace {

class GpuMemory final : public RankMemory {
 public:
  explicit GpuMemory(DeviceId device) : gpu_(device) {}
  [[nodiscard]] Stream stream() const override { return gpu_.stream(); }
  [[nodiscard]] std::byte* allocate(std::size_t bytes) override { return gpu_.allocate(bytes); }
  void release(std::byte* data) override { gpu_.free(data); }
  void upload(void* to, const void* from, std::size_t bytes) override { gpu_.upload(to, from, bytes); }
  void download(void* to, const void* from, std::size_t bytes) override { gpu_.download(to, from, bytes); }

 private:
  Gpu gpu_;
};

using Run = void (*)(int, const std::function<void(Group&)>&, const JoinOptions&);

Backend gpus(std::string name, std::vector<int> sizes, std::function<std::string(int)> unavailable, Run run) {
  return {.name = std::move(name),
          .on_gpus = true,
          .sizes = std::move(sizes),
          .few_sizes = {1, 2, 4},
          .unavailable = std::move(unavailable),
          .run =
              [run](int ranks, const JoinOptions& defaults, const auto& body) {
                JoinOptions options = defaults;
                options.device = DeviceId{0};
                run(ranks, body, options);
              },
          .memory = [](Group& group) { return std::make_unique<GpuMemory>(group.device()); }};
}

}  // namespace

const std::vector<Backend>& backends() {
  static const std::vector<Backend> all = {
      gpus(
          "CudaProcesses", {1, 2, 4, 8}, [](int n) { return forked_gpus_unavailable(n); }, run_process_group),
      gpus(
          "CudaThreads", {1, 2, 3, 4, 5, 6, 7, 8}, [](int n) { return gpus_unavailable(n); },
          run_thread_group),
  };
  return all;
}

}  // namespace onehop::testing
