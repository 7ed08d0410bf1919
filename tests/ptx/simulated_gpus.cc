// SPDX-License-Identifier: Apache-2.0
#include "ptx/simulated_gpus.h"

#include <fmt/core.h>
#include <sys/mman.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "backend/cuda/launcher.h"
#include "call/scale.h"

namespace onehop::ptx {
namespace {

constexpr std::size_t kGuardBytes = 256;
constexpr std::byte kCanary{0xc7};

}  // namespace

const Function& Kernels::find(const std::string& file, const std::string& kernel) {
  auto module = modules_.find(file);
  if (module == modules_.end()) {
    std::ifstream in(folder_ + "/" + file + ".ptx");
    if (!in) throw std::runtime_error("no file " + folder_ + "/" + file + ".ptx");
    std::stringstream text;
    text << in.rdbuf();
    module = modules_.try_emplace(file, text.str()).first;
  }
  const Function* const function = module->second.find(kernel);
  if (function == nullptr) throw std::runtime_error("no kernel " + kernel);
  return *function;
}

const Function& Kernels::reduction(const cuda::ReductionKernel& kernel, DType type, ReduceOp op, int ranks) {
  return find("reductions_" + std::string(to_string(type)),
              fmt::format("{}_{}_{}_{}", kernel.name, to_string(type), cuda::kKernelOps[cuda::kernel_of(op)],
                          kernel.variant(ranks, is_sum(op))));
}

const Function& Kernels::plain(const std::string& kernel) {
  return find("algorithm_kernels", kernel);
}

UserMemory::UserMemory(Memory& memory, std::size_t bytes, std::size_t shift, bool writable, std::string name)
    : memory_(memory),
      storage_(bytes + shift + 3 * kGuardBytes, kCanary),
      bytes_(bytes),
      name_(std::move(name)) {
  const auto begin = reinterpret_cast<std::uintptr_t>(storage_.data());
  data_ = storage_.data() + ((begin + 2 * kGuardBytes - 1) / kGuardBytes * kGuardBytes - begin) + shift;
  if (bytes != 0) memory_.add(data_, bytes, writable, name_);
}

UserMemory::~UserMemory() {
  if (bytes_ != 0) memory_.remove(data_);
}

bool UserMemory::intact() const {
  const auto is_canary = [](std::byte each) { return each == kCanary; };
  return std::all_of(storage_.data(), static_cast<const std::byte*>(data_), is_canary) &&
         std::all_of(static_cast<const std::byte*>(data_) + bytes_, storage_.data() + storage_.size(),
                     is_canary);
}

class SimulatedGpus::Rank final : public cuda::Launcher {
 public:
  Rank(SimulatedGpus& gpus, int rank) : Launcher(gpus.shape_, rank, gpus.segments_), gpus_(gpus) {}

  [[nodiscard]] DeviceGuard call_guard() const override {
    Words& words = gpus_.words(rank());
    return {.failed = &reinterpret_cast<cuda::SegmentHead*>(segment(rank()))->failed,
            .notice = &words.notice,
            .fault = &words.fault,
            .timeout_ns = gpus_.timeout_};
  }
  void launch(const cuda::ReductionKernel& kernel, const CollectiveCall& call, const cuda::LaunchShape& shape,
              cuda::KernelParams params) override {
    simulate(gpus_.kernels_.reduction(kernel, call.type, call.op, size()), shape, params.data);
  }
  void launch(const cuda::PlainKernel& kernel, const cuda::LaunchShape& shape,
              cuda::KernelParams params) override {
    simulate(gpus_.kernels_.plain(kernel.name), shape, params.data);
  }
  void copy(std::byte* to, const std::byte* from, std::size_t bytes, cuda::Lane lane) override {
    gpus_.simulation_.copy(lane_of(lane), to, from, bytes);
  }
  void write(std::byte* to, std::uint32_t word) override {
    const std::uint32_t& kept = written_.emplace_back(word);
    gpus_.simulation_.memory().add(&kept, sizeof kept, false, "a word that is written");
    copy(to, reinterpret_cast<const std::byte*>(&kept), sizeof kept, cuda::Lane::caller);
  }
  void record(cuda::Mark mark, cuda::Lane lane) override {
    marks_[static_cast<std::size_t>(mark)] = gpus_.simulation_.record(lane_of(lane));
  }
  void wait_for(cuda::Mark mark, cuda::Lane lane) override {
    const auto& event = marks_[static_cast<std::size_t>(mark)];
    if (event == nullptr) throw std::runtime_error("a wait for a mark that was not recorded");
    gpus_.simulation_.wait_for(lane_of(lane), event);
  }

 private:
  void simulate(const Function& kernel, const cuda::LaunchShape& shape, const void* params) {
    gpus_.simulation_.launch(lane_of(cuda::Lane::caller), kernel,
                             {.blocks = shape.grid,
                              .rows = shape.rows,
                              .threads = shape.block,
                              .dependent = shape.waits_for_previous},
                             params, kernel.param_bytes);
  }
  [[nodiscard]] unsigned lane_of(cuda::Lane lane) const {
    return 2 * static_cast<unsigned>(rank()) + (lane == cuda::Lane::side ? 1 : 0);
  }

  SimulatedGpus& gpus_;
  std::deque<std::uint32_t> written_;
  std::array<std::shared_ptr<Simulation::Event>, cuda::kMarks> marks_;
};

SimulatedGpus::SimulatedGpus(Kernels& kernels, const cuda::GroupShape& shape, std::uint64_t seed)
    : kernels_(kernels),
      shape_(shape),
      simulation_({.seed = seed, .lanes = 2 * static_cast<unsigned>(shape.ranks), .lanes_per_rank = 2}),
      segment_bytes_(cuda::ScratchLayout(shape).bytes()) {
  for (int r = 0; r < shape.ranks; ++r) {
    void* const memory = mmap(nullptr, segment_bytes_, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::runtime_error("no memory for the segments");
    segments_.push_back(static_cast<std::byte*>(memory));
    simulation_.memory().add(memory, segment_bytes_, true, fmt::format("the segment of rank {}", r));
  }
  simulation_.memory().add(words_.data(), sizeof words_, true, "the words of the host");
  for (int r = 0; r < shape.ranks; ++r) ranks_.push_back(std::make_unique<Rank>(*this, r));
}

SimulatedGpus::~SimulatedGpus() {
  for (std::byte* const segment : segments_) munmap(segment, segment_bytes_);
}

cuda::Launcher& SimulatedGpus::launcher(int rank) {
  return *ranks_[static_cast<std::size_t>(rank)];
}

void SimulatedGpus::run() {
  simulation_.run();
  for (int r = 0; r < shape_.ranks; ++r) {
    if (words(r).fault != 0)
      throw std::runtime_error(fmt::format("rank {} reports the fault {:#x}", r, words(r).fault));
  }
}

}  // namespace onehop::ptx
