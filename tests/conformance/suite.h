// SPDX-License-Identifier: Apache-2.0
// Shared by the tests of the conformance suite: the backends and numbers of ranks, the data, and a function
// that runs cases one after another.
#pragma once

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <initializer_list>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "onehop/tuning.h"

#include "base/env.h"
#include "conformance/backend.h"
#include "conformance/collective_case.h"
#include "conformance/reference.h"
#include "support/ranks.h"
#include "support/sanitizers.h"
#include "support/scoped_variable.h"

namespace onehop::testing {

inline constexpr std::size_t kSmallScratch = 64 << 10;
inline constexpr std::size_t kDefaultScratch = 10 << 20;

// In builds that are an order of magnitude slower, tests run every n-th case.
inline constexpr std::size_t kThin = kSanitized ? 8 : 1;

inline std::uint64_t seed() {
  static const std::uint64_t value =
      std::strtoull(env::get("ONEHOP_TEST_SEED").value_or("20250301").c_str(), nullptr, 10);
  return value;
}

/// Streams of every type, created before the ranks start, so that ranks that are processes inherit them.
class AllStreams {
 public:
  AllStreams(int ranks, std::initializer_list<DType> types) {
    for (const DType type : types)
      streams_.emplace(type, Streams(ranks, type, seed() + static_cast<std::uint64_t>(type)));
  }
  explicit AllStreams(int ranks) {
    for (int t = 0; t < kDTypeCount; ++t) {
      streams_.emplace(static_cast<DType>(t),
                       Streams(ranks, static_cast<DType>(t), seed() + static_cast<std::uint64_t>(t)));
    }
  }
  const Streams& operator[](DType type) const { return streams_.at(type); }

 private:
  std::map<DType, Streams> streams_;
};

inline std::vector<std::size_t> small_counts() {
  return {0, 1, 2, 3, 7, 15, 16, 17, 31, 61, 63, 64, 65, 127, 509, 1021, 1023, 1025, 4093, 4099};
}

inline constexpr std::optional<Algorithm> kAlgorithms[] = {std::nullopt, Algorithm::one_shot,
                                                           Algorithm::two_shot};

/// An all-reduce with everything but type, op and count drawn at random.
inline CollectiveCase random_all_reduce(std::mt19937_64& random) {
  CollectiveCase result;
  result.algorithm = kAlgorithms[random() % std::size(kAlgorithms)];
  result.placement = static_cast<Placement>(random() % kPlacementCount);
  result.in_place = random() % 2 == 0;
  result.shift = random() % 3 == 0 ? 0 : random() % 64;
  result.start = random() % Streams::kPeriod;
  return result;
}

/// Cases for a group whose tuning table has one row.
struct TunedCases {
  TuningRow row;
  std::vector<CollectiveCase> cases;
};

/// The backend and the collective as tuning tables name them.
inline onehop::Backend kind_of(const Backend& backend) {
  return backend.on_gpus ? onehop::Backend::cuda : onehop::Backend::host;
}
inline onehop::Collective in_tables(Collective collective) {
  return static_cast<onehop::Collective>(collective);
}

/// Bytes per block up to which the library's tables use one algorithm, and beyond which another.
inline std::vector<std::size_t> table_limits(const Backend& backend, Collective collective, int ranks) {
  std::vector<std::size_t> limits;
  for (const Links links : {Links::nvlink, Links::pcie}) {
    for (const TuningRow& row : default_tuning(kind_of(backend), ranks, links).rows) {
      if (row.collective == in_tables(collective) && row.up_to != kNoLimit) limits.push_back(row.up_to);
    }
  }
  return limits;
}

/// Bytes per block, in whole megabytes, from which on copy engines transfer between GPUs if all ranks promise
/// symmetric memory.
inline std::size_t long_block(const Backend& backend, Collective collective, int ranks) {
  constexpr std::size_t kMiB = std::size_t{1} << 20;
  std::size_t bytes = kMiB;
  if (!backend.on_gpus) return bytes;
  for (const std::size_t limit : table_limits(backend, collective, ranks))
    bytes = std::max(bytes, (limit / kMiB + 1) * kMiB);
  return bytes;
}

/// Numbers in a rank's memory.
template <class T>
class Array {
 public:
  Array(RankMemory& memory, std::size_t count, T value)
      : memory_(memory), count_(count), data_(reinterpret_cast<T*>(memory.allocate(count * sizeof(T)))) {
    const std::vector<T> values(count, value);
    memory.upload(data_, values.data(), count * sizeof(T));
  }
  ~Array() { memory_.release(reinterpret_cast<std::byte*>(data_)); }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  [[nodiscard]] T* data() const { return data_; }
  [[nodiscard]] std::vector<T> values() const {
    std::vector<T> values(count_);
    memory_.download(values.data(), data_, count_ * sizeof(T));
    return values;
  }

 private:
  RankMemory& memory_;
  std::size_t count_;
  T* data_;
};

struct Parameter {
  const Backend* backend;
  int ranks;
};
/// Called by GoogleTest, which would otherwise print the bytes.
inline void PrintTo(const Parameter& parameter, std::ostream* out) {
  *out << parameter.backend->name << parameter.ranks;
}

/// A test on one backend with one number of ranks.
class CollectiveTest : public ::testing::TestWithParam<Parameter> {
 protected:
  void SetUp() override {
    const std::string reason = backend().unavailable(ranks());
    if (!reason.empty()) GTEST_SKIP() << reason;
  }
  [[nodiscard]] const Backend& backend() const { return *GetParam().backend; }
  [[nodiscard]] int ranks() const { return GetParam().ranks; }

  /// Runs the cases one after another on one group.
  void run(const std::vector<CollectiveCase>& cases, const AllStreams& streams,
           std::size_t scratch_bytes) const {
    JoinOptions options;
    options.scratch_bytes = scratch_bytes;
    run(cases, streams, options);
  }
  void run(const std::vector<CollectiveCase>& cases, const AllStreams& streams,
           const JoinOptions& options) const {
    backend().run(ranks(), options, [&](Group& group) { run(group, cases, streams); });
  }
  /// Runs each list of cases on a group of its own, one after another. Ranks that are processes stay the same ones: to
  /// start one on a GPU takes longer than the cases.
  void run(const std::vector<TunedCases>& all, const AllStreams& streams) const {
    const TempDir folder;
    for (std::size_t i = 0; i < all.size(); ++i) {
      std::ofstream(table_of(folder, i)) << Tuning{.device = "", .rows = {all[i].row}}.to_json();
    }
    backend().run(ranks(), {}, [&](Group& group) {
      for (std::size_t i = 0; i < all.size(); ++i) {
        const auto& choice = all[i].row.choice;
        SCOPED_TRACE(choice ? to_string(*choice) : "default");
        JoinOptions options;
        options.rank = group.rank();
        options.size = group.size();
        options.device = group.device();
        options.allow_overlapping_devices = shared_gpus() > 0;
        options.scratch_bytes = kSmallScratch;
        options.tuning = table_of(folder, i);
        Group tuned = Group::join(file_store(fmt::format("{}/store-{}", folder.path(), i)), options);
        run(tuned, all[i].cases, streams);
      }
    });
  }

 private:
  [[nodiscard]] static std::string table_of(const TempDir& folder, std::size_t i) {
    return fmt::format("{}/tuning-{}.json", folder.path(), i);
  }
  void run(Group& group, const std::vector<CollectiveCase>& cases, const AllStreams& streams) const {
    std::size_t max_bytes = 0;
    for (const CollectiveCase& each : cases) max_bytes = std::max(max_bytes, each.max_bytes(ranks()));
    Workspace workspace(backend(), group, max_bytes);
    for (const CollectiveCase& each : cases) {
      const Algorithm used = workspace.run(each, streams[each.type]);
      ASSERT_EQ(used, each.algorithm.value_or(used)) << each.describe();
      ASSERT_NE(used, Algorithm::none) << each.describe();
    }
  }
};

inline std::vector<Parameter> parameters(std::vector<int> Backend::*sizes, int fewest = 1) {
  std::vector<Parameter> all;
  for (const Backend& backend : backends()) {
    for (const int ranks : backend.*sizes) {
      if (ranks >= fewest) all.push_back({&backend, ranks});
    }
  }
  return all;
}
/// The number of ranks of tests that need ranks that differ.
inline constexpr int kSeveral = 2;

/// The parameters of tests that need several GPUs. Empty in programs without them, so that no tests are
/// always skipped.
inline std::vector<Parameter> gpu_parameters() {
  std::vector<Parameter> all = parameters(&Backend::sizes, kSeveral);
  std::erase_if(all, [](const Parameter& each) { return !each.backend->on_gpus; });
  return all;
}

inline std::string name_of(const ::testing::TestParamInfo<Parameter>& info) {
  return ::testing::PrintToString(info.param);
}

}  // namespace onehop::testing
