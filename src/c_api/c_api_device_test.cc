// SPDX-License-Identifier: Apache-2.0
// Calls that need GPUs fail on machines without any, with one clear line and without a result.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "onehop/c_api.h"

#include "c_api/c_api_ranks.h"

namespace onehop {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

/// A device that no machine has, so that these tests behave the same on machines with GPUs.
constexpr int kNone = 4711;

void expect_refused(onehop_status_t status) {
  EXPECT_THAT(status, AnyOf(ONEHOP_ERROR_UNSUPPORTED, ONEHOP_ERROR_INVALID_ARGUMENT));
  EXPECT_STRNE(onehop_last_error(), "");
}

TEST(CApiDeviceMemory, IsRefusedWithoutTheGpu) {
  onehop_device_memory_t* memory = nullptr;
  const std::array<unsigned char, ONEHOP_FABRIC_HANDLE_BYTES> handle{};
  expect_refused(onehop_device_memory_create(kNone, 1, nullptr, &memory));
  expect_refused(onehop_device_memory_import_fd(-1, 1, kNone, &memory));
  expect_refused(onehop_device_memory_import_fabric(handle.data(), 1, kNone, &memory));
  EXPECT_EQ(memory, nullptr);
  onehop_device_memory_options_t options;
  onehop_device_memory_options_init(&options, sizeof options);
  EXPECT_EQ(options.share_by, ONEHOP_SHARE_BY_AUTOMATIC);
  EXPECT_EQ(options.gpu_direct_rdma, 1);
  options.share_by = 3;
  EXPECT_EQ(onehop_device_memory_create(0, 1, &options, &memory), ONEHOP_ERROR_INVALID_ARGUMENT);
  EXPECT_THAT(onehop_last_error(), HasSubstr("options->share_by 3 is not within 0 to 2"));
  options.size = 0;
  EXPECT_EQ(onehop_device_memory_create(0, 1, &options, &memory), ONEHOP_ERROR_INVALID_ARGUMENT);
  EXPECT_THAT(onehop_last_error(), HasSubstr("_init"));
}

TEST(CApiDeviceMemory, NullHandlesAreHarmless) {
  onehop_device_memory_destroy(nullptr);
  EXPECT_EQ(onehop_device_memory_bytes(nullptr), 0u);
  EXPECT_EQ(onehop_device_memory_data(nullptr), nullptr);
  EXPECT_EQ(onehop_device_memory_device(nullptr), -1);
  onehop_device_memory_t* memory = nullptr;
  int number = 0;
  char handle[ONEHOP_FABRIC_HANDLE_BYTES];
  expect_null_refused(onehop_device_memory_create(0, 1, nullptr, nullptr), "memory");
  expect_null_refused(onehop_device_memory_import_fd(0, 1, 0, nullptr), "memory");
  expect_null_refused(onehop_device_memory_import_fabric(nullptr, 1, 0, &memory), "handle");
  expect_null_refused(onehop_device_memory_export_fd(nullptr, &number), "memory");
  expect_null_refused(onehop_device_memory_export_fd(nullptr, nullptr), "fd");
  expect_null_refused(onehop_device_memory_export_fabric(nullptr, handle), "memory");
  expect_null_refused(onehop_device_memory_grant(nullptr, 0), "memory");
  expect_null_refused(onehop_device_memory_granted(nullptr, 0, &number), "memory");
}

TEST(CApiMemoryKind, OfTheStackIsHost) {
  int local = 0;
  onehop_memory_kind_t kind = -1;
  ASSERT_OK(onehop_memory_kind(&local, &kind));
  EXPECT_EQ(kind, ONEHOP_MEMORY_KIND_HOST);
  EXPECT_STREQ(onehop_memory_kind_name(kind), "host");
  expect_null_refused(onehop_memory_kind(&local, nullptr), "kind");
}

TEST(CApiIpc, CarriesNoHostMemoryAndReadsNoNonsense) {
  int local = 0;
  char* handle = nullptr;
  std::size_t bytes = 77;
  expect_refused(onehop_ipc_export(&local, sizeof local, &handle, &bytes));
  EXPECT_EQ(handle, nullptr);
  EXPECT_EQ(bytes, 77u);
  expect_null_refused(onehop_ipc_export(&local, 1, nullptr, &bytes), "handle");
  expect_null_refused(onehop_ipc_export(&local, 1, &handle, nullptr), "handle_bytes");
  onehop_ipc_mapping_t* mapping = nullptr;
  EXPECT_EQ(onehop_ipc_mapping_open("nonsense", 8, 0, &mapping), ONEHOP_ERROR_PROTOCOL);
  EXPECT_EQ(onehop_ipc_mapping_open(nullptr, 0, 0, &mapping), ONEHOP_ERROR_PROTOCOL);
  expect_null_refused(onehop_ipc_mapping_open(nullptr, 8, 0, &mapping), "handle");
  expect_null_refused(onehop_ipc_mapping_open("nonsense", 8, 0, nullptr), "mapping");
  EXPECT_EQ(mapping, nullptr);
  EXPECT_EQ(onehop_ipc_mapping_data(nullptr), nullptr);
  EXPECT_EQ(onehop_ipc_mapping_bytes(nullptr), 0u);
  onehop_ipc_mapping_destroy(nullptr);
}

TEST(CApiPeerAccess, IsRefusedWithoutTheGpu) {
  onehop_peer_access_t* access = nullptr;
  ASSERT_OK(onehop_peer_access_of_process(&access));
  int number = 77;
  expect_refused(onehop_peer_access_can_access(access, kNone, 0, &number));
  EXPECT_EQ(number, 77);
  expect_refused(onehop_peer_access_grant_current_pool(access, kNone, 0));
  int pool = 0;
  expect_refused(onehop_peer_access_grant_pool(access, &pool, kNone));
  onehop_pair_attributes_t attributes;
  onehop_pair_attributes_init(&attributes, sizeof attributes);
  expect_refused(onehop_peer_access_pair_attributes(access, kNone, 0, &attributes));
  onehop_peer_access_destroy(access);

  ASSERT_OK(onehop_peer_access_create(3, &access));
  ASSERT_OK(onehop_peer_access_device_count(access, &number));
  EXPECT_EQ(number, 3);
  EXPECT_OK(onehop_peer_access_reset(access, 2));
  EXPECT_OK(onehop_peer_access_device_count(access, &number));
  EXPECT_EQ(number, 2);
  EXPECT_EQ(onehop_peer_access_reset(access, -1), ONEHOP_ERROR_INVALID_ARGUMENT);
  expect_null_refused(onehop_peer_access_can_access(access, 0, 1, nullptr), "yes");
  expect_null_refused(onehop_peer_access_grant_pool(access, nullptr, 0), "pool");
  expect_null_refused(onehop_peer_access_device_count(access, nullptr), "device_count");
  onehop_peer_access_destroy(access);
}

TEST(CApiPeerAccess, NullHandlesAreHarmless) {
  onehop_peer_access_destroy(nullptr);
  onehop_peer_access_t* access = nullptr;
  EXPECT_EQ(onehop_peer_access_create(-1, &access), ONEHOP_ERROR_INVALID_ARGUMENT);
  int number = 0;
  onehop_pair_attributes_t attributes;
  onehop_pair_attributes_init(&attributes, sizeof attributes);
  expect_null_refused(onehop_peer_access_of_process(nullptr), "access");
  expect_null_refused(onehop_peer_access_create(1, nullptr), "access");
  expect_null_refused(onehop_peer_access_can_access(nullptr, 0, 0, &number), "access");
  expect_null_refused(onehop_peer_access_grant_current_pool(nullptr, 0, 0), "access");
  expect_null_refused(onehop_peer_access_grant_pool(nullptr, &number, 0), "access");
  expect_null_refused(onehop_peer_access_pair_attributes(nullptr, 0, 0, &attributes), "access");
  expect_null_refused(onehop_peer_access_reset(nullptr, 0), "access");
  expect_null_refused(onehop_peer_access_device_count(nullptr, &number), "access");
}

TEST(CApiPeerCheck, IsRefusedWithoutTheGpus) {
  onehop_peer_check_options_t options;
  onehop_peer_check_options_init(&options, sizeof options);
  EXPECT_EQ(options.bytes, std::size_t{256} << 20);
  EXPECT_EQ(options.repetitions, 10);
  EXPECT_EQ(options.round_trips, 1000);
  EXPECT_EQ(options.seed, 1u);
  EXPECT_EQ(options.measure_bandwidth, 1);
  EXPECT_EQ(options.remember, 0);
  const int devices[] = {kNone, kNone + 1};
  options.devices = devices;
  options.device_count = 2;
  onehop_peer_report_t* report = nullptr;
  expect_refused(onehop_peers_check(&options, &report));
  int verified = 77;
  expect_refused(onehop_peers_verified(devices, 2, &verified));
  EXPECT_EQ(verified, 77);
  options.devices = nullptr;
  expect_null_refused(onehop_peers_check(&options, &report), "devices");
  options.device_count = 0;
  options.timeout_ms = -2;
  EXPECT_EQ(onehop_peers_check(&options, &report), ONEHOP_ERROR_INVALID_ARGUMENT);
  EXPECT_THAT(onehop_last_error(), HasSubstr("-2 ms"));
  EXPECT_EQ(report, nullptr);
  expect_null_refused(onehop_peers_check(nullptr, nullptr), "report");
  expect_null_refused(onehop_peers_verified(nullptr, 2, &verified), "devices");
  expect_null_refused(onehop_peers_verified(devices, 2, nullptr), "verified");
  onehop_peer_pair_t pair;
  onehop_peer_pair_init(&pair, sizeof pair);
  onehop_peer_test_result_t result;
  onehop_peer_test_result_init(&result, sizeof result);
  EXPECT_EQ(onehop_peer_report_count(nullptr), 0u);
  expect_null_refused(onehop_peer_report_pair(nullptr, 0, &pair), "report");
  expect_null_refused(onehop_peer_report_test(nullptr, 0, 0, &result), "report");
  onehop_peer_report_destroy(nullptr);
}

}  // namespace
}  // namespace onehop
