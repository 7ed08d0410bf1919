// SPDX-License-Identifier: Apache-2.0
// The binary interface of this version, which must not change under compiled programs. Rules:
// docs/guide/c-api.md, "Stable ABI".
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "onehop/c_api.h"
#include "onehop/types.h"

namespace onehop {
namespace {

// The C numbers are those of C++, without a gap.
static_assert(ONEHOP_DTYPE_F16 == static_cast<int>(DType::f16));
static_assert(ONEHOP_DTYPE_BF16 == static_cast<int>(DType::bf16));
static_assert(ONEHOP_DTYPE_F32 == static_cast<int>(DType::f32));
static_assert(ONEHOP_DTYPE_F64 == static_cast<int>(DType::f64));
static_assert(ONEHOP_DTYPE_E4M3 == static_cast<int>(DType::e4m3));
static_assert(ONEHOP_DTYPE_E5M2 == static_cast<int>(DType::e5m2));
static_assert(ONEHOP_DTYPE_I8 == static_cast<int>(DType::i8));
static_assert(ONEHOP_DTYPE_U8 == static_cast<int>(DType::u8));
static_assert(ONEHOP_DTYPE_I32 == static_cast<int>(DType::i32));
static_assert(ONEHOP_DTYPE_U32 == static_cast<int>(DType::u32));
static_assert(ONEHOP_DTYPE_I64 == static_cast<int>(DType::i64));
static_assert(ONEHOP_DTYPE_U64 == static_cast<int>(DType::u64));
static_assert(ONEHOP_DTYPE_U64 + 1 == kDTypeCount);

static_assert(ONEHOP_OP_SUM == static_cast<int>(ReduceOp::sum));
static_assert(ONEHOP_OP_PROD == static_cast<int>(ReduceOp::prod));
static_assert(ONEHOP_OP_MIN == static_cast<int>(ReduceOp::min));
static_assert(ONEHOP_OP_MAX == static_cast<int>(ReduceOp::max));
static_assert(ONEHOP_OP_AVG == static_cast<int>(ReduceOp::avg));
static_assert(ONEHOP_OP_PREMUL_SUM == static_cast<int>(ReduceOp::premul_sum));
static_assert(ONEHOP_OP_PREMUL_SUM + 1 == kReduceOpCount);

static_assert(ONEHOP_COLLECTIVE_ALL_REDUCE == static_cast<int>(Collective::all_reduce));
static_assert(ONEHOP_COLLECTIVE_BARRIER == static_cast<int>(Collective::barrier));
static_assert(ONEHOP_COLLECTIVE_BARRIER + 1 == kCollectiveCount);

struct Field {
  Field(const char* of, std::size_t at, std::size_t must_be) : name(of), offset(at), pinned(must_be) {}
  const char* name;
  std::size_t offset;
  std::size_t pinned;
};
struct Structure {
  const char* name;
  std::size_t size;
  std::size_t pinned;
  std::vector<Field> fields;
};
struct Number {
  const char* name;
  int value;
  int pinned;
};

// New fields go at the end, beyond the old size: add an entry for the field and give its structure a new
// size. No other number here changes.
#define FIELD(structure, field, pinned) Field(#field, offsetof(structure, field), pinned)

std::vector<Structure> structures() {
  return {
      {"onehop_tcp_options_t",
       sizeof(onehop_tcp_options_t),
       40,
       {FIELD(onehop_tcp_options_t, size, 0), FIELD(onehop_tcp_options_t, host, 8),
        FIELD(onehop_tcp_options_t, secret, 16), FIELD(onehop_tcp_options_t, timeout_ms, 24),
        FIELD(onehop_tcp_options_t, port, 32)}},
      {"onehop_store_callbacks_t",
       sizeof(onehop_store_callbacks_t),
       72,
       {FIELD(onehop_store_callbacks_t, size, 0), FIELD(onehop_store_callbacks_t, context, 8),
        FIELD(onehop_store_callbacks_t, set, 16), FIELD(onehop_store_callbacks_t, get, 24),
        FIELD(onehop_store_callbacks_t, add, 32), FIELD(onehop_store_callbacks_t, compare_set, 40),
        FIELD(onehop_store_callbacks_t, delete_key, 48), FIELD(onehop_store_callbacks_t, destroy, 56),
        FIELD(onehop_store_callbacks_t, description, 64)}},
      {"onehop_job_info_t",
       sizeof(onehop_job_info_t),
       56,
       {FIELD(onehop_job_info_t, size, 0), FIELD(onehop_job_info_t, rank, 8),
        FIELD(onehop_job_info_t, world_size, 12), FIELD(onehop_job_info_t, local_rank, 16),
        FIELD(onehop_job_info_t, launcher, 20)}},
      {"onehop_join_options_t",
       sizeof(onehop_join_options_t),
       64,
       {FIELD(onehop_join_options_t, size, 0), FIELD(onehop_join_options_t, name, 8),
        FIELD(onehop_join_options_t, timeout_ms, 16), FIELD(onehop_join_options_t, scratch_bytes, 24),
        FIELD(onehop_join_options_t, rank, 32), FIELD(onehop_join_options_t, world_size, 36),
        FIELD(onehop_join_options_t, device, 40), FIELD(onehop_join_options_t, allow_overlapping_devices, 44),
        FIELD(onehop_join_options_t, tuning, 48), FIELD(onehop_join_options_t, require_verified_peers, 56),
        FIELD(onehop_join_options_t, share_by, 60)}},
      {"onehop_buffer_view_t",
       sizeof(onehop_buffer_view_t),
       56,
       {FIELD(onehop_buffer_view_t, size, 0), FIELD(onehop_buffer_view_t, rank, 8),
        FIELD(onehop_buffer_view_t, world_size, 12), FIELD(onehop_buffer_view_t, bytes, 16),
        FIELD(onehop_buffer_view_t, offset, 24), FIELD(onehop_buffer_view_t, peers, 32),
        FIELD(onehop_buffer_view_t, signal_pads, 40), FIELD(onehop_buffer_view_t, channels, 48)}},
      {"onehop_buffer_options_t",
       sizeof(onehop_buffer_options_t),
       16,
       {FIELD(onehop_buffer_options_t, size, 0), FIELD(onehop_buffer_options_t, channels, 8)}},
      {"onehop_call_options_t",
       sizeof(onehop_call_options_t),
       56,
       {FIELD(onehop_call_options_t, size, 0), FIELD(onehop_call_options_t, timeout_ms, 8),
        FIELD(onehop_call_options_t, algorithm, 16), FIELD(onehop_call_options_t, factor, 24),
        FIELD(onehop_call_options_t, symmetric, 32), FIELD(onehop_call_options_t, own_factor, 40),
        FIELD(onehop_call_options_t, own_factor_on_host, 48)}},
      {"onehop_call_t",
       sizeof(onehop_call_t),
       128,
       {FIELD(onehop_call_t, size, 0), FIELD(onehop_call_t, collective, 8), FIELD(onehop_call_t, dtype, 12),
        FIELD(onehop_call_t, op, 16), FIELD(onehop_call_t, root, 20), FIELD(onehop_call_t, in, 24),
        FIELD(onehop_call_t, out, 32), FIELD(onehop_call_t, count, 40), FIELD(onehop_call_t, stream, 48),
        FIELD(onehop_call_t, in_counts, 56), FIELD(onehop_call_t, in_offsets, 64),
        FIELD(onehop_call_t, out_counts, 72), FIELD(onehop_call_t, out_offsets, 80),
        FIELD(onehop_call_t, timeout_ms, 88), FIELD(onehop_call_t, factor, 96),
        FIELD(onehop_call_t, algorithm, 104), FIELD(onehop_call_t, symmetric, 108),
        FIELD(onehop_call_t, own_factor, 112), FIELD(onehop_call_t, own_factor_on_host, 120)}},
      {"onehop_device_memory_options_t",
       sizeof(onehop_device_memory_options_t),
       16,
       {FIELD(onehop_device_memory_options_t, size, 0), FIELD(onehop_device_memory_options_t, share_by, 8),
        FIELD(onehop_device_memory_options_t, gpu_direct_rdma, 12)}},
      {"onehop_pair_attributes_t",
       sizeof(onehop_pair_attributes_t),
       24,
       {FIELD(onehop_pair_attributes_t, size, 0), FIELD(onehop_pair_attributes_t, access, 8),
        FIELD(onehop_pair_attributes_t, performance_rank, 12),
        FIELD(onehop_pair_attributes_t, native_atomics, 16),
        FIELD(onehop_pair_attributes_t, array_access, 20)}},
      {"onehop_peer_check_options_t",
       sizeof(onehop_peer_check_options_t),
       72,
       {FIELD(onehop_peer_check_options_t, size, 0), FIELD(onehop_peer_check_options_t, devices, 8),
        FIELD(onehop_peer_check_options_t, device_count, 16), FIELD(onehop_peer_check_options_t, bytes, 24),
        FIELD(onehop_peer_check_options_t, measure_bandwidth, 32),
        FIELD(onehop_peer_check_options_t, repetitions, 36),
        FIELD(onehop_peer_check_options_t, round_trips, 40), FIELD(onehop_peer_check_options_t, seed, 48),
        FIELD(onehop_peer_check_options_t, timeout_ms, 56),
        FIELD(onehop_peer_check_options_t, remember, 64)}},
      {"onehop_peer_pair_t",
       sizeof(onehop_peer_pair_t),
       88,
       {FIELD(onehop_peer_pair_t, size, 0), FIELD(onehop_peer_pair_t, from, 8),
        FIELD(onehop_peer_pair_t, to, 12), FIELD(onehop_peer_pair_t, ok, 16),
        FIELD(onehop_peer_pair_t, access, 20), FIELD(onehop_peer_pair_t, performance_rank, 24),
        FIELD(onehop_peer_pair_t, native_atomics, 28), FIELD(onehop_peer_pair_t, array_access, 32),
        FIELD(onehop_peer_pair_t, failure, 40), FIELD(onehop_peer_pair_t, test_count, 48),
        FIELD(onehop_peer_pair_t, store_gbps, 56), FIELD(onehop_peer_pair_t, load_gbps, 64),
        FIELD(onehop_peer_pair_t, copy_gbps, 72), FIELD(onehop_peer_pair_t, latency_ns, 80)}},
      {"onehop_peer_test_result_t",
       sizeof(onehop_peer_test_result_t),
       24,
       {FIELD(onehop_peer_test_result_t, size, 0), FIELD(onehop_peer_test_result_t, test, 8),
        FIELD(onehop_peer_test_result_t, outcome, 12), FIELD(onehop_peer_test_result_t, detail, 16)}},
      {"onehop_host_info_t",
       sizeof(onehop_host_info_t),
       48,
       {FIELD(onehop_host_info_t, size, 0), FIELD(onehop_host_info_t, hostname, 8),
        FIELD(onehop_host_info_t, cpu_model, 16), FIELD(onehop_host_info_t, cores, 24),
        FIELD(onehop_host_info_t, cpus, 28), FIELD(onehop_host_info_t, numa_node_count, 32),
        FIELD(onehop_host_info_t, cache_count, 40)}},
      {"onehop_numa_node_t",
       sizeof(onehop_numa_node_t),
       40,
       {FIELD(onehop_numa_node_t, size, 0), FIELD(onehop_numa_node_t, id, 8),
        FIELD(onehop_numa_node_t, memory_bytes, 16), FIELD(onehop_numa_node_t, cpus, 24),
        FIELD(onehop_numa_node_t, cpu_count, 32)}},
      {"onehop_cache_info_t",
       sizeof(onehop_cache_info_t),
       40,
       {FIELD(onehop_cache_info_t, size, 0), FIELD(onehop_cache_info_t, level, 8),
        FIELD(onehop_cache_info_t, bytes, 16), FIELD(onehop_cache_info_t, cpus, 24),
        FIELD(onehop_cache_info_t, cpu_count, 32)}},
      {"onehop_device_info_t",
       sizeof(onehop_device_info_t),
       88,
       {FIELD(onehop_device_info_t, size, 0), FIELD(onehop_device_info_t, uuid, 8),
        FIELD(onehop_device_info_t, name, 16), FIELD(onehop_device_info_t, pci_bus_id, 24),
        FIELD(onehop_device_info_t, numa_node, 32), FIELD(onehop_device_info_t, compute_capability, 36),
        FIELD(onehop_device_info_t, memory_bytes, 40), FIELD(onehop_device_info_t, fabric, 48),
        FIELD(onehop_device_info_t, fabric_cluster, 56), FIELD(onehop_device_info_t, fabric_clique, 64),
        FIELD(onehop_device_info_t, fabric_handles, 68), FIELD(onehop_device_info_t, fabric_note, 72),
        FIELD(onehop_device_info_t, multicast_supported, 80)}},
      {"onehop_pair_info_t",
       sizeof(onehop_pair_info_t),
       32,
       {FIELD(onehop_pair_info_t, size, 0), FIELD(onehop_pair_info_t, nvlinks, 8),
        FIELD(onehop_pair_info_t, peer_access, 12), FIELD(onehop_pair_info_t, native_atomics, 16),
        FIELD(onehop_pair_info_t, array_access, 20), FIELD(onehop_pair_info_t, performance_rank, 24),
        FIELD(onehop_pair_info_t, path, 28)}},
      {"onehop_finding_t",
       sizeof(onehop_finding_t),
       56,
       {FIELD(onehop_finding_t, size, 0), FIELD(onehop_finding_t, section, 8),
        FIELD(onehop_finding_t, name, 16), FIELD(onehop_finding_t, health, 24),
        FIELD(onehop_finding_t, detail, 32), FIELD(onehop_finding_t, remedy, 40),
        FIELD(onehop_finding_t, essential, 48)}},
      {"onehop_tuning_row_t",
       sizeof(onehop_tuning_row_t),
       72,
       {FIELD(onehop_tuning_row_t, size, 0), FIELD(onehop_tuning_row_t, collective, 8),
        FIELD(onehop_tuning_row_t, backend, 12), FIELD(onehop_tuning_row_t, ranks, 16),
        FIELD(onehop_tuning_row_t, types, 20), FIELD(onehop_tuning_row_t, buffers, 24),
        FIELD(onehop_tuning_row_t, derived, 28), FIELD(onehop_tuning_row_t, up_to, 32),
        FIELD(onehop_tuning_row_t, algorithm, 40), FIELD(onehop_tuning_row_t, chunk, 48),
        FIELD(onehop_tuning_row_t, blocks, 56), FIELD(onehop_tuning_row_t, threads, 60),
        FIELD(onehop_tuning_row_t, text, 64)}},
  };
}

#undef FIELD

// Append new enumerators here, too.
const Number kNumbers[] = {
    {"ONEHOP_OK", ONEHOP_OK, 0},
    {"ONEHOP_ERROR_INVALID_ARGUMENT", ONEHOP_ERROR_INVALID_ARGUMENT, 1},
    {"ONEHOP_ERROR_TIMEOUT", ONEHOP_ERROR_TIMEOUT, 2},
    {"ONEHOP_ERROR_PEER_LOST", ONEHOP_ERROR_PEER_LOST, 3},
    {"ONEHOP_ERROR_ABORTED", ONEHOP_ERROR_ABORTED, 4},
    {"ONEHOP_ERROR_MISMATCH", ONEHOP_ERROR_MISMATCH, 5},
    {"ONEHOP_ERROR_REFUSED", ONEHOP_ERROR_REFUSED, 6},
    {"ONEHOP_ERROR_UNSUPPORTED", ONEHOP_ERROR_UNSUPPORTED, 7},
    {"ONEHOP_ERROR_OUT_OF_RESOURCES", ONEHOP_ERROR_OUT_OF_RESOURCES, 8},
    {"ONEHOP_ERROR_SYSTEM", ONEHOP_ERROR_SYSTEM, 9},
    {"ONEHOP_ERROR_PROTOCOL", ONEHOP_ERROR_PROTOCOL, 10},
    {"ONEHOP_ERROR_NOT_FOUND", ONEHOP_ERROR_NOT_FOUND, 11},
    {"ONEHOP_ERROR_DRIVER", ONEHOP_ERROR_DRIVER, 12},
    {"ONEHOP_DTYPE_F16", ONEHOP_DTYPE_F16, 0},
    {"ONEHOP_DTYPE_BF16", ONEHOP_DTYPE_BF16, 1},
    {"ONEHOP_DTYPE_F32", ONEHOP_DTYPE_F32, 2},
    {"ONEHOP_DTYPE_F64", ONEHOP_DTYPE_F64, 3},
    {"ONEHOP_DTYPE_E4M3", ONEHOP_DTYPE_E4M3, 4},
    {"ONEHOP_DTYPE_E5M2", ONEHOP_DTYPE_E5M2, 5},
    {"ONEHOP_DTYPE_I8", ONEHOP_DTYPE_I8, 6},
    {"ONEHOP_DTYPE_U8", ONEHOP_DTYPE_U8, 7},
    {"ONEHOP_DTYPE_I32", ONEHOP_DTYPE_I32, 8},
    {"ONEHOP_DTYPE_U32", ONEHOP_DTYPE_U32, 9},
    {"ONEHOP_DTYPE_I64", ONEHOP_DTYPE_I64, 10},
    {"ONEHOP_DTYPE_U64", ONEHOP_DTYPE_U64, 11},
    {"ONEHOP_OP_SUM", ONEHOP_OP_SUM, 0},
    {"ONEHOP_OP_PROD", ONEHOP_OP_PROD, 1},
    {"ONEHOP_OP_MIN", ONEHOP_OP_MIN, 2},
    {"ONEHOP_OP_MAX", ONEHOP_OP_MAX, 3},
    {"ONEHOP_OP_AVG", ONEHOP_OP_AVG, 4},
    {"ONEHOP_OP_PREMUL_SUM", ONEHOP_OP_PREMUL_SUM, 5},
    {"ONEHOP_ALGORITHM_AUTO", ONEHOP_ALGORITHM_AUTO, -1},
    {"ONEHOP_ALGORITHM_NONE", ONEHOP_ALGORITHM_NONE, 0},
    {"ONEHOP_ALGORITHM_ONE_SHOT", ONEHOP_ALGORITHM_ONE_SHOT, 1},
    {"ONEHOP_ALGORITHM_TWO_SHOT", ONEHOP_ALGORITHM_TWO_SHOT, 2},
    {"ONEHOP_SHARE_BY_AUTOMATIC", ONEHOP_SHARE_BY_AUTOMATIC, 0},
    {"ONEHOP_SHARE_BY_POSIX_FD", ONEHOP_SHARE_BY_POSIX_FD, 1},
    {"ONEHOP_SHARE_BY_FABRIC", ONEHOP_SHARE_BY_FABRIC, 2},
    {"ONEHOP_SHARE_BY_IPC", ONEHOP_SHARE_BY_IPC, 3},
    {"ONEHOP_MEMORY_KIND_HOST", ONEHOP_MEMORY_KIND_HOST, 0},
    {"ONEHOP_MEMORY_KIND_PINNED_HOST", ONEHOP_MEMORY_KIND_PINNED_HOST, 1},
    {"ONEHOP_MEMORY_KIND_MANAGED", ONEHOP_MEMORY_KIND_MANAGED, 2},
    {"ONEHOP_MEMORY_KIND_DEVICE", ONEHOP_MEMORY_KIND_DEVICE, 3},
    {"ONEHOP_MEMORY_KIND_VMM", ONEHOP_MEMORY_KIND_VMM, 4},
    {"ONEHOP_MEMORY_KIND_POOL", ONEHOP_MEMORY_KIND_POOL, 5},
    {"ONEHOP_MEMORY_KIND_OTHER", ONEHOP_MEMORY_KIND_OTHER, 6},
    {"ONEHOP_PEER_TEST_STORE", ONEHOP_PEER_TEST_STORE, 0},
    {"ONEHOP_PEER_TEST_LOAD", ONEHOP_PEER_TEST_LOAD, 1},
    {"ONEHOP_PEER_TEST_COPY", ONEHOP_PEER_TEST_COPY, 2},
    {"ONEHOP_PEER_TEST_ATOMICS", ONEHOP_PEER_TEST_ATOMICS, 3},
    {"ONEHOP_PEER_TEST_SHARED_ATOMICS", ONEHOP_PEER_TEST_SHARED_ATOMICS, 4},
    {"ONEHOP_PEER_TEST_FLAG", ONEHOP_PEER_TEST_FLAG, 5},
    {"ONEHOP_PEER_OUTCOME_PASSED", ONEHOP_PEER_OUTCOME_PASSED, 0},
    {"ONEHOP_PEER_OUTCOME_FAILED", ONEHOP_PEER_OUTCOME_FAILED, 1},
    {"ONEHOP_PEER_OUTCOME_HUNG", ONEHOP_PEER_OUTCOME_HUNG, 2},
    {"ONEHOP_PEER_OUTCOME_SKIPPED", ONEHOP_PEER_OUTCOME_SKIPPED, 3},
    {"ONEHOP_PEER_OUTCOME_NOT_RUN", ONEHOP_PEER_OUTCOME_NOT_RUN, 4},
    {"ONEHOP_FABRIC_STATE_UNSUPPORTED", ONEHOP_FABRIC_STATE_UNSUPPORTED, 0},
    {"ONEHOP_FABRIC_STATE_NOT_STARTED", ONEHOP_FABRIC_STATE_NOT_STARTED, 1},
    {"ONEHOP_FABRIC_STATE_IN_PROGRESS", ONEHOP_FABRIC_STATE_IN_PROGRESS, 2},
    {"ONEHOP_FABRIC_STATE_COMPLETED", ONEHOP_FABRIC_STATE_COMPLETED, 3},
    {"ONEHOP_PCI_PATH_SELF", ONEHOP_PCI_PATH_SELF, 0},
    {"ONEHOP_PCI_PATH_PIX", ONEHOP_PCI_PATH_PIX, 1},
    {"ONEHOP_PCI_PATH_PXB", ONEHOP_PCI_PATH_PXB, 2},
    {"ONEHOP_PCI_PATH_PHB", ONEHOP_PCI_PATH_PHB, 3},
    {"ONEHOP_PCI_PATH_NODE", ONEHOP_PCI_PATH_NODE, 4},
    {"ONEHOP_PCI_PATH_SYS", ONEHOP_PCI_PATH_SYS, 5},
    {"ONEHOP_PCI_PATH_UNKNOWN", ONEHOP_PCI_PATH_UNKNOWN, 6},
    {"ONEHOP_CONNECTIVITY_UNKNOWN", ONEHOP_CONNECTIVITY_UNKNOWN, 0},
    {"ONEHOP_CONNECTIVITY_FULLY_CONNECTED", ONEHOP_CONNECTIVITY_FULLY_CONNECTED, 1},
    {"ONEHOP_HEALTH_WORKS", ONEHOP_HEALTH_WORKS, 0},
    {"ONEHOP_HEALTH_FAILS", ONEHOP_HEALTH_FAILS, 1},
    {"ONEHOP_HEALTH_NOT_APPLICABLE", ONEHOP_HEALTH_NOT_APPLICABLE, 2},
    {"ONEHOP_COLLECTIVE_ALL_REDUCE", ONEHOP_COLLECTIVE_ALL_REDUCE, 0},
    {"ONEHOP_BACKEND_HOST", ONEHOP_BACKEND_HOST, 0},
    {"ONEHOP_BACKEND_CUDA", ONEHOP_BACKEND_CUDA, 1},
    {"ONEHOP_TYPE_CLASS_FLOATS", ONEHOP_TYPE_CLASS_FLOATS, 0},
    {"ONEHOP_TYPE_CLASS_ANY", ONEHOP_TYPE_CLASS_ANY, 1},
    {"ONEHOP_BUFFERS_ANY", ONEHOP_BUFFERS_ANY, 0},
    {"ONEHOP_BUFFERS_SYMMETRIC", ONEHOP_BUFFERS_SYMMETRIC, 1},
    {"ONEHOP_LINKS_NVLINK", ONEHOP_LINKS_NVLINK, 0},
    {"ONEHOP_LINKS_PCIE", ONEHOP_LINKS_PCIE, 1},
};

TEST(CApiAbi, StructuresBeginWithTheirSizeAndKeepTheirLayout) {
  static_assert(sizeof(void*) == 8 && sizeof(int) == 4, "the numbers are those of 64-bit Linux");
  for (const Structure& each : structures()) {
    EXPECT_EQ(each.size, each.pinned) << each.name << ": append the new field's entry, and the new size";
    ASSERT_FALSE(each.fields.empty()) << each.name;
    EXPECT_STREQ(each.fields.front().name, "size") << each.name;
    std::size_t end = 0;
    for (const Field& field : each.fields) {
      EXPECT_EQ(field.offset, field.pinned) << each.name << "." << field.name << ": fields never move";
      EXPECT_GE(field.offset, end) << each.name << "." << field.name << " is not appended";
      end = field.offset + 1;
    }
  }
}

TEST(CApiAbi, NumbersNeverChange) {
  for (const Number& each : kNumbers) EXPECT_EQ(each.value, each.pinned) << each.name;
  EXPECT_EQ(ONEHOP_TIMEOUT_DEFAULT, -1);
  EXPECT_EQ(ONEHOP_DEVICE_HOST, -1);
  EXPECT_EQ(ONEHOP_FABRIC_HANDLE_BYTES, 64);
  static_assert(sizeof(onehop_status_t) == sizeof(int));
}

/// The size of a structure for a caller whose version ends before `field`.
#define BEFORE(structure, field) offsetof(structure, field)

/// Fills the structure by its _init function as that caller does, and checks that the rest is unchanged.
template <class T>
T as_older(void (*init)(T*, std::size_t), std::size_t size) {
  T out;
  std::memset(&out, 0x5a, sizeof out);
  init(&out, size);
  EXPECT_EQ(out.size, size);
  const auto* const raw = reinterpret_cast<const unsigned char*>(&out);
  for (std::size_t i = size; i < sizeof(T); ++i) EXPECT_EQ(raw[i], 0x5a) << "byte " << i;
  return out;
}

TEST(CApiAbi, AnOlderCallersOptionsHaveDefaultsForWhatTheyLack) {
  onehop_store_t* store = nullptr;
  auto tcp = as_older(onehop_tcp_options_init, BEFORE(onehop_tcp_options_t, timeout_ms));
  onehop_tcp_server_t* server = nullptr;
  EXPECT_EQ(onehop_tcp_server_start(&tcp, &server), ONEHOP_OK) << onehop_last_error();
  onehop_tcp_server_destroy(server);

  auto join = as_older(onehop_join_options_init, BEFORE(onehop_join_options_t, tuning));
  join.rank = -3;
  ASSERT_EQ(onehop_store_memory(&store), ONEHOP_OK);
  onehop_group_t* group = nullptr;
  EXPECT_EQ(onehop_group_join(store, &join, &group), ONEHOP_ERROR_INVALID_ARGUMENT);
  EXPECT_NE(std::string(onehop_last_error()).find("rank -3"), std::string::npos) << onehop_last_error();
  onehop_store_destroy(store);

  const std::vector<int> devices{ONEHOP_DEVICE_HOST, ONEHOP_DEVICE_HOST};
  std::vector<onehop_group_t*> groups(2);
  join.rank = 0;
  ASSERT_EQ(onehop_group_join_local(devices.data(), 2, &join, groups.data()), ONEHOP_OK)
      << onehop_last_error();
  auto call = as_older(onehop_call_options_init, BEFORE(onehop_call_options_t, factor));
  EXPECT_EQ(onehop_groups_run(
                groups.data(), 2,
                [](onehop_group_t* each, void* options) -> onehop_status_t {
                  float value = 1;
                  return onehop_all_reduce(each, &value, &value, 1, ONEHOP_DTYPE_F32, ONEHOP_OP_SUM, nullptr,
                                           static_cast<onehop_call_options_t*>(options), nullptr);
                },
                &call),
            ONEHOP_OK)
      << onehop_last_error();
  for (onehop_group_t* each : groups) onehop_group_destroy(each);

  auto callbacks = as_older(onehop_store_callbacks_init, BEFORE(onehop_store_callbacks_t, description));
  EXPECT_EQ(onehop_store_callbacks(&callbacks, &store), ONEHOP_ERROR_INVALID_ARGUMENT);
  EXPECT_NE(std::string(onehop_last_error()).find("must set all of"), std::string::npos);

  // These two need GPUs, so they fail here, but not because of the size.
  const auto memory =
      as_older(onehop_device_memory_options_init, BEFORE(onehop_device_memory_options_t, share_by));
  onehop_device_memory_t* made = nullptr;
  EXPECT_NE(onehop_device_memory_create(4711, 1, &memory, &made), ONEHOP_OK);
  EXPECT_EQ(std::string(onehop_last_error()).find("size"), std::string::npos) << onehop_last_error();
  auto check = as_older(onehop_peer_check_options_init, BEFORE(onehop_peer_check_options_t, bytes));
  const int device = 4711;
  check.devices = &device;
  check.device_count = 1;
  onehop_peer_report_t* report = nullptr;
  EXPECT_NE(onehop_peers_check(&check, &report), ONEHOP_OK);
  EXPECT_EQ(std::string(onehop_last_error()).find("size"), std::string::npos) << onehop_last_error();
}

TEST(CApiAbi, AnOlderCallersResultsGetWhatTheyHaveRoomFor) {
  onehop_topology_t* topology = nullptr;
  ASSERT_EQ(onehop_topology_probe(&topology), ONEHOP_OK) << onehop_last_error();
  auto host = as_older(onehop_host_info_init, BEFORE(onehop_host_info_t, cpus));
  const int beyond = host.cpus;
  ASSERT_EQ(onehop_topology_host(topology, &host), ONEHOP_OK) << onehop_last_error();
  EXPECT_EQ(host.size, BEFORE(onehop_host_info_t, cpus));
  EXPECT_NE(host.hostname, nullptr);
  EXPECT_EQ(host.cpus, beyond) << "beyond the caller's structure";
  onehop_topology_destroy(topology);
}

TEST(CApiAbi, ANewerCallersResultsAreZeroBeyondThisVersion) {
  onehop_topology_t* topology = nullptr;
  ASSERT_EQ(onehop_topology_probe(&topology), ONEHOP_OK) << onehop_last_error();
  struct {
    onehop_host_info_t known;
    std::int64_t novel;
  } newer;
  onehop_host_info_init(&newer.known, sizeof newer);
  newer.novel = 7;
  ASSERT_EQ(onehop_topology_host(topology, &newer.known), ONEHOP_OK) << onehop_last_error();
  EXPECT_EQ(newer.known.size, sizeof newer);
  EXPECT_EQ(newer.novel, 0);
  onehop_topology_destroy(topology);
}

TEST(CApiAbi, AResultWithoutASizeIsRefusedAndNotWritten) {
  onehop_topology_t* topology = nullptr;
  ASSERT_EQ(onehop_topology_probe(&topology), ONEHOP_OK) << onehop_last_error();
  for (const std::size_t size : {std::size_t{0}, std::size_t{7}, std::size_t{1} << 40}) {
    onehop_host_info_t host{};
    host.size = size;
    EXPECT_EQ(onehop_topology_host(topology, &host), ONEHOP_ERROR_INVALID_ARGUMENT) << size;
    EXPECT_NE(std::string(onehop_last_error()).find("_init"), std::string::npos);
    EXPECT_EQ(host.hostname, nullptr);
  }
  onehop_topology_destroy(topology);
}

}  // namespace
}  // namespace onehop
