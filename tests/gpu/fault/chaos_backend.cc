// SPDX-License-Identifier: Apache-2.0
#include "gpu/fault/chaos_backend.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <vector>

#include "gpu/stress_call.h"
#include "gpu/stress_checks.h"
#include "support/gpu.h"

namespace onehop::fault {
namespace {

using testing::Gpu;
using testing::Graph;
using testing::StressArena;
using testing::StressBatch;
using testing::StressChecks;
using testing::StressFindings;
using testing::StressOp;
using testing::StressPlan;

std::string describe(const StressFindings& found) {
  if (found.wrong == 0) return "";
  return fmt::format("{} wrong elements, the first in {}: {:#x} instead of {:#x} at {}", found.wrong,
                     testing::describe(found.op), found.got, found.wanted, found.element);
}

class OnGpu final : public ChaosBackend {
 public:
  explicit OnGpu(DeviceId device)
      : gpu_(device),
        findings_(gpu_.make<StressFindings>(1)),
        ordinary_(gpu_.allocate(StressPlan::kPartBytes)) {}

  [[nodiscard]] DeviceId device() const override { return gpu_.device(); }
  [[nodiscard]] Stream stream() const override { return gpu_.stream(); }

  void load(int most) override {
    StressChecks::load(gpu_.device());
    JoinOptions options;
    options.allow_overlapping_devices = true;
    options.timeout = std::chrono::seconds{60};
    // There are kernels for 2 ranks, for 4, and for any number.
    for (int ranks = 2; ranks <= std::min(most, 4); ++ranks) {
      (void)Group::join_local(std::vector<DeviceId>(static_cast<std::size_t>(ranks), gpu_.device()), options);
    }
  }

  void begin(int rank, int ranks, std::byte* symmetric) override {
    arena_ = {.ordinary = ordinary_, .symmetric = symmetric};
    gpu_.write(findings_, std::vector<StressFindings>(1));
    checks_.emplace(gpu_, rank, ranks, arena_, findings_);
  }
  [[nodiscard]] StressArena arena() const override { return arena_; }
  void fill(const StressBatch& batch) override { checks_->fill(batch); }
  void check(const StressBatch& batch) override { checks_->check(batch); }
  void advance() override { checks_->advance(); }
  void replay(Group& group, const StressBatch& batch, int times) override {
    graph_ = std::make_unique<Graph>(gpu_, [&] { make_calls(group, arena_, batch, stream()); });
    for (int i = 0; i < times; ++i) {
      fill(batch);
      graph_->launch();
      check(batch);
      advance();
    }
  }
  [[nodiscard]] std::string findings() const override { return describe(gpu_.read(findings_, 1)[0]); }

  void fill_words(std::byte* at, std::uint32_t word, std::size_t count) override {
    gpu_.fill(at, word, count);
  }
  [[nodiscard]] std::uint32_t read_word(const std::byte* at) const override {
    return gpu_.read(reinterpret_cast<const std::uint32_t*>(at), 1)[0];
  }
  [[nodiscard]] bool usable() override {
    try {
      graph_.reset();
      gpu_.synchronize_device();
      // Try a kernel, a fill and a copy.
      gpu_.write(findings_, std::vector<StressFindings>(1));
      StressChecks(gpu_, 0, 2, {}, findings_).advance();
      gpu_.fill(ordinary_, 0x5eed, 1);
      return gpu_.read(findings_, 1)[0].round == 1 && read_word(ordinary_) == 0x5eed;
    } catch (const std::exception& error) {
      fmt::print("device {}: {}\n", device().value, error.what());
      (void)std::fflush(stdout);
      return false;
    }
  }

 private:
  Gpu gpu_;
  StressFindings* findings_;
  std::byte* ordinary_;
  StressArena arena_;
  std::optional<StressChecks> checks_;
  std::unique_ptr<Graph> graph_;  ///< the last one, which may still run
};

class OnHost final : public ChaosBackend {
 public:
  [[nodiscard]] DeviceId device() const override { return DeviceId::host; }
  [[nodiscard]] Stream stream() const override { return {}; }
  void load(int /*most*/) override {}

  void begin(int rank, int ranks, std::byte* symmetric) override {
    arena_ = {.ordinary = ordinary_.data(), .symmetric = symmetric};
    rank_ = rank;
    ranks_ = ranks;
    found_ = {};
  }
  [[nodiscard]] StressArena arena() const override { return arena_; }
  void fill(const StressBatch& batch) override {
    for (const StressOp& op : batch) {
      if (op.depth != 1) continue;
      const unsigned bytes = testing::element_bytes(op.type);
      const std::uint32_t count = input_count(op, rank_, ranks_);
      for (std::uint32_t i = 0; i < count; ++i) {
        const std::uint64_t bits = input_bits(op, round(), rank_, ranks_, i);
        std::memcpy(arena_.at(op.in) + std::size_t{i} * bytes, &bits, bytes);
      }
    }
  }
  void check(const StressBatch& batch) override {
    for (const StressOp& op : batch) {
      if (!op.checked) continue;
      const unsigned bytes = testing::element_bytes(op.type);
      const std::uint32_t count = output_count(op, rank_, ranks_);
      for (std::uint32_t i = 0; i < count; ++i) {
        std::uint64_t got = 0;
        std::memcpy(&got, arena_.at(op.out) + std::size_t{i} * bytes, bytes);
        const std::uint64_t wanted = output_bits(op, round(), rank_, ranks_, i);
        if (got == wanted) continue;
        if (found_.wrong++ != 0) continue;
        found_.got = got;
        found_.wanted = wanted;
        found_.element = i;
        found_.op = op;
      }
    }
  }
  void advance() override { ++found_.round; }
  void replay(Group& group, const StressBatch& batch, int times) override {
    for (int i = 0; i < times; ++i) {
      fill(batch);
      make_calls(group, arena_, batch, {});
      check(batch);
      advance();
    }
  }
  [[nodiscard]] std::string findings() const override { return describe(found_); }

  void fill_words(std::byte* at, std::uint32_t word, std::size_t count) override {
    std::fill_n(reinterpret_cast<std::uint32_t*>(at), count, word);
  }
  [[nodiscard]] std::uint32_t read_word(const std::byte* at) const override {
    return *reinterpret_cast<const std::uint32_t*>(at);
  }
  [[nodiscard]] bool usable() override { return true; }

 private:
  [[nodiscard]] std::uint32_t round() const { return static_cast<std::uint32_t>(found_.round); }

  std::vector<std::byte> ordinary_ = std::vector<std::byte>(StressPlan::kPartBytes);
  StressArena arena_;
  int rank_ = 0;
  int ranks_ = 0;
  StressFindings found_;
};

}  // namespace

std::unique_ptr<ChaosBackend> ChaosBackend::on_gpu(DeviceId device) {
  return std::make_unique<OnGpu>(device);
}
std::unique_ptr<ChaosBackend> ChaosBackend::on_host() {
  return std::make_unique<OnHost>();
}

}  // namespace onehop::fault
