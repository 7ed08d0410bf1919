// SPDX-License-Identifier: Apache-2.0
// The parts of the C API that need GPUs: streams, deadlines, views for kernels, device memory, peers.
#include "onehop/c_api.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "onehop/device/view.h"

#include "gpu/on_gpus.h"

namespace onehop::testing::gpu_c_api_test {
namespace {

#define EXPECT_OK(call) EXPECT_EQ((call), ONEHOP_OK) << onehop_last_error()
#define ASSERT_OK(call) ASSERT_EQ((call), ONEHOP_OK) << onehop_last_error()

constexpr std::int64_t kWait = 20'000;  // ms
constexpr std::size_t kWords = 60'000;

/// A group of two GPUs held by one thread, with a buffer on each.
struct TwoGpus {
  std::array<onehop_group_t*, 2> groups{};
  std::array<onehop_buffer_t*, 2> buffers{};
  std::vector<std::unique_ptr<Gpu>> gpus;

  TwoGpus() {
    const std::array<int, 2> devices{0, 1};
    EXPECT_OK(onehop_group_join_local(devices.data(), devices.size(), nullptr, groups.data()));
    for (const int device : devices) gpus.push_back(std::make_unique<Gpu>(DeviceId{device}));
    EXPECT_OK(onehop_groups_run(
        groups.data(), groups.size(),
        [](onehop_group_t* group, void* to) -> onehop_status_t {
          return onehop_group_allocate(group, kWords * 4,
                                       static_cast<onehop_buffer_t**>(to) + onehop_group_rank(group));
        },
        buffers.data()));
  }
  ~TwoGpus() {
    for (onehop_buffer_t* each : buffers) onehop_buffer_destroy(each);
    for (onehop_group_t* each : groups) onehop_group_destroy(each);
  }
  TwoGpus(const TwoGpus&) = delete;
  TwoGpus& operator=(const TwoGpus&) = delete;

  [[nodiscard]] void* stream(std::size_t rank) const { return gpus[rank]->stream().handle; }
  [[nodiscard]] std::uint32_t* local(std::size_t rank) const {
    return static_cast<std::uint32_t*>(onehop_buffer_local(buffers[rank]));
  }
};

TEST(CudaCApi, ReducesOnStreamsAndWaitsWithADeadline) {
  ONEHOP_NEED_GPUS(2);
  const TwoGpus both;
  for (std::size_t r = 0; r < 2; ++r) {
    EXPECT_EQ(onehop_group_device(both.groups[r]), static_cast<int>(r));
    both.gpus[r]->fill(both.local(r), static_cast<std::uint32_t>(r) + 1, kWords);
    ASSERT_OK(onehop_all_reduce(both.groups[r], both.local(r), both.local(r), kWords, ONEHOP_DTYPE_U32,
                                ONEHOP_OP_SUM, both.stream(r), nullptr, nullptr));
  }
  for (std::size_t r = 0; r < 2; ++r) {
    ASSERT_OK(onehop_group_synchronize(both.groups[r], both.stream(r), kWait));
    EXPECT_THAT(both.gpus[r]->read(both.local(r), kWords), ::testing::Each(3u));
  }
}

TEST(CudaCApi, ADeadlineThatPassesNamesTheRankThatDidNotCome) {
  ONEHOP_NEED_GPUS(2);
  const TwoGpus both;
  ASSERT_OK(onehop_all_reduce(both.groups[0], both.local(0), both.local(0), kWords, ONEHOP_DTYPE_U32,
                              ONEHOP_OP_SUM, both.stream(0), nullptr, nullptr));
  EXPECT_EQ(onehop_group_synchronize(both.groups[0], both.stream(0), 200), ONEHOP_ERROR_TIMEOUT);
  EXPECT_EQ(onehop_last_error_rank(), 1) << onehop_last_error();
  EXPECT_NE(onehop_group_check(both.groups[1]), ONEHOP_OK);
}

TEST(CudaCApi, SignalsAndBarriersAreQueuedOnStreams) {
  ONEHOP_NEED_GPUS(2);
  const TwoGpus both;
  for (std::size_t r = 0; r < 2; ++r) {
    const int other = 1 - static_cast<int>(r);
    void* peer = nullptr;
    ASSERT_OK(onehop_buffer_peer(both.buffers[r], other, &peer));
    both.gpus[r]->fill(peer, 40 + static_cast<std::uint32_t>(r), kWords);
    ASSERT_OK(onehop_buffer_put_signal_on_stream(both.buffers[r], both.stream(r), other, 3));
    ASSERT_OK(onehop_buffer_wait_signal_on_stream(both.buffers[r], both.stream(r), other, 3, kWait));
    ASSERT_OK(onehop_buffer_barrier_on_stream(both.buffers[r], both.stream(r), 0, kWait));
  }
  for (std::size_t r = 0; r < 2; ++r) {
    ASSERT_OK(onehop_group_synchronize(both.groups[r], both.stream(r), kWait));
    EXPECT_THAT(both.gpus[r]->read(both.local(r), kWords), ::testing::Each(41u - r));
  }
}

TEST(CudaCApi, ADeviceViewIsWhatKernelsTake) {
  ONEHOP_NEED_GPUS(2);
  const TwoGpus both;
  DeviceView view;
  ASSERT_EQ(onehop_device_view_bytes(), sizeof view);
  ASSERT_OK(onehop_buffer_device_view(both.buffers[1], kWait, &view, sizeof view));
  EXPECT_EQ(view.rank, 1);
  EXPECT_EQ(view.size, 2);
  EXPECT_EQ(view.bytes, kWords * 4);
  EXPECT_EQ(static_cast<void*>(view.peers[1]), onehop_buffer_local(both.buffers[1]));
  EXPECT_NE(view.guard.failed, nullptr);
}

TEST(CudaCApi, DeviceMemoryAndPeersWork) {
  ONEHOP_NEED_GPUS(2);
  onehop_peer_access_t* access = nullptr;
  ASSERT_OK(onehop_peer_access_of_process(&access));
  int yes = 0;
  ASSERT_OK(onehop_peer_access_can_access(access, 0, 1, &yes));
  EXPECT_EQ(yes, 1);
  onehop_pair_attributes_t attributes;
  onehop_pair_attributes_init(&attributes, sizeof attributes);
  ASSERT_OK(onehop_peer_access_pair_attributes(access, 0, 1, &attributes));
  EXPECT_EQ(attributes.access, 1);
  onehop_peer_access_destroy(access);

  onehop_device_memory_t* memory = nullptr;
  ASSERT_OK(onehop_device_memory_create(0, 1000, nullptr, &memory));
  ASSERT_OK(onehop_device_memory_grant(memory, 1));
  const Gpu second(DeviceId{1});
  second.fill(onehop_device_memory_data(memory), 7, 250);
  second.wait();
  EXPECT_THAT(second.read(static_cast<std::uint32_t*>(onehop_device_memory_data(memory)), 250),
              ::testing::Each(7u));
  onehop_memory_kind_t kind = -1;
  ASSERT_OK(onehop_memory_kind(onehop_device_memory_data(memory), &kind));
  EXPECT_EQ(kind, ONEHOP_MEMORY_KIND_VMM);
  int fd = -1;
  ASSERT_OK(onehop_device_memory_export_fd(memory, &fd));
  ::close(fd);
  onehop_device_memory_destroy(memory);

  onehop_peer_check_options_t options;
  onehop_peer_check_options_init(&options, sizeof options);
  const std::array<int, 2> devices{0, 1};
  options.devices = devices.data();
  options.device_count = devices.size();
  options.bytes = 1 << 20;
  options.measure_bandwidth = 0;
  onehop_peer_report_t* report = nullptr;
  ASSERT_OK(onehop_peers_check(&options, &report));
  ASSERT_EQ(onehop_peer_report_count(report), 2u);
  onehop_peer_pair_t pair;
  onehop_peer_pair_init(&pair, sizeof pair);
  ASSERT_OK(onehop_peer_report_pair(report, 0, &pair));
  EXPECT_EQ(pair.from, 0);
  EXPECT_EQ(pair.ok, 1) << pair.failure;
  EXPECT_LT(pair.copy_gbps, 0) << "not measured";
  onehop_peer_test_result_t result;
  onehop_peer_test_result_init(&result, sizeof result);
  ASSERT_GT(pair.test_count, 0u);
  ASSERT_OK(onehop_peer_report_test(report, 0, 0, &result));
  EXPECT_EQ(result.outcome, ONEHOP_PEER_OUTCOME_PASSED) << result.detail;
  onehop_peer_report_destroy(report);
}

#undef EXPECT_OK
#undef ASSERT_OK

}  // namespace
}  // namespace onehop::testing::gpu_c_api_test
