// SPDX-License-Identifier: Apache-2.0
// A group of simulated GPUs, on which the library's algorithms run with their compiled kernels.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "backend/cuda/algorithm.h"
#include "backend/cuda/launcher.h"
#include "ptx/interpreter.h"

namespace onehop::ptx {

/// The library's kernels, from files in a folder: reductions_<type>.ptx and algorithm_kernels.ptx.
class Kernels {
 public:
  explicit Kernels(std::string folder) : folder_(std::move(folder)) {}
  [[nodiscard]] const Function& reduction(const cuda::ReductionKernel& kernel, DType type, ReduceOp op,
                                          int ranks);
  [[nodiscard]] const Function& plain(const std::string& kernel);

 private:
  [[nodiscard]] const Function& find(const std::string& file, const std::string& kernel);
  std::string folder_;
  std::map<std::string, Module> modules_;
};

/// Memory of a user, with memory around it that nobody may access.
class UserMemory {
 public:
  UserMemory(Memory& memory, std::size_t bytes, std::size_t shift, bool writable, std::string name);
  ~UserMemory();
  UserMemory(const UserMemory&) = delete;
  UserMemory& operator=(const UserMemory&) = delete;
  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  [[nodiscard]] const std::string& name() const { return name_; }
  /// Whether the memory around is unchanged.
  [[nodiscard]] bool intact() const;

 private:
  Memory& memory_;
  std::vector<std::byte> storage_;
  std::byte* data_;
  std::size_t bytes_;
  std::string name_;
};

class SimulatedGpus {
 public:
  SimulatedGpus(Kernels& kernels, const cuda::GroupShape& shape, std::uint64_t seed);
  ~SimulatedGpus();
  SimulatedGpus(const SimulatedGpus&) = delete;
  SimulatedGpus& operator=(const SimulatedGpus&) = delete;

  [[nodiscard]] const cuda::GroupShape& shape() const { return shape_; }
  [[nodiscard]] cuda::Launcher& launcher(int rank);
  [[nodiscard]] Simulation& simulation() { return simulation_; }
  [[nodiscard]] Memory& memory() { return simulation_.memory(); }
  /// Runs everything that is queued. Throws if a wait of a kernel has failed.
  void run();

  struct Words {
    std::uint32_t notice = 0;
    std::uint64_t fault = 0;
  };
  [[nodiscard]] Words& words(int rank) { return words_[static_cast<std::size_t>(rank)]; }
  /// Of the waits of calls queued from now on, in steps of the simulation. By default they wait forever.
  void set_timeout(std::uint64_t steps) { timeout_ = steps; }

 private:
  class Rank;
  Kernels& kernels_;
  std::uint64_t timeout_ = std::uint64_t{1} << 62;
  const cuda::GroupShape shape_;
  Simulation simulation_;
  std::size_t segment_bytes_ = 0;
  std::vector<std::byte*> segments_;
  std::array<Words, kMaxDevices> words_{};
  std::vector<std::unique_ptr<Rank>> ranks_;
};

}  // namespace onehop::ptx
