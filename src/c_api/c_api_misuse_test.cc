// SPDX-License-Identifier: Apache-2.0
// Calls every function of the C API with invalid arguments. None crashes or hangs, and every refusal is one
// line.
#include "c_api/c_api_misuse.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <set>
#include <string_view>

#include "c_api/c_api_ranks.h"
#include "support/scoped_variable.h"

namespace onehop {
namespace misuse {

World::World() {
  onehop_join_options_t options;
  onehop_join_options_init(&options, sizeof options);
  options.rank = 0;
  options.world_size = 1;
  options.scratch_bytes = 64 << 10;
  onehop_tcp_options_t tcp;
  onehop_tcp_options_init(&tcp, sizeof tcp);
  EXPECT_OK(onehop_store_memory(&store));
  EXPECT_OK(onehop_tcp_server_start(&tcp, &server));
  EXPECT_OK(onehop_store_exchange_create(store, "misuse", 0, 1, &exchange));
  EXPECT_OK(onehop_group_join(store, &options, &group));
  EXPECT_OK(onehop_group_all_gather_bytes(group, "bytes", 5, &payloads));
  EXPECT_OK(onehop_group_allocate(group, 4096, &buffer));
  EXPECT_OK(onehop_pool_create(group, 4096, &pool));
  EXPECT_OK(onehop_group_channel(group, &channel));
  EXPECT_OK(onehop_intra_node_comm_create(store, 0, 1, nullptr, &comm));
  EXPECT_OK(onehop_topology_load(ONEHOP_TEST_TOPOLOGIES "/h200x4.json", &topology));
  EXPECT_OK(onehop_tuning_default(ONEHOP_BACKEND_HOST, 2, ONEHOP_LINKS_NVLINK, &tuning));
}

World::~World() {
  dispose(tuning);
  dispose(topology);
  dispose(comm);
  dispose(channel);
  dispose(pool);
  dispose(buffer);
  dispose(payloads);
  dispose(group);
  dispose(exchange);
  dispose(server);
  dispose(store);
}

const char* Arguments::text() {
  static const std::string endless(100'000, 'y');
  static const std::string escapes = std::string("a\nb\r\x1b[31m\x7f") + "\xff\xfe";
  return one_of<const char*>({"", "x", "../..", endless.c_str(), escapes.c_str(), "/nonexistent/x",
                              "/dev/zero", "{}", "[[[[", "{\"a\n\": 1}", "%s%n", "sum", "one-shot"});
}

void Arguments::fill(onehop_join_options_t& options) {
  onehop_join_options_init(&options, sizeof options);
  options.name = make<const char*>();
  options.timeout_ms =
      one_of<std::int64_t>({0, 1});  // a rank that cannot use its timeout waits with the default one
  options.scratch_bytes = one_of<std::size_t>({0, 1, 64 << 10, SIZE_MAX});
  options.rank = make<int>();
  options.world_size = make<int>();
  options.device = make<int>();
  options.tuning = make<const char*>();
  options.share_by = make<int>();
}

void Arguments::fill(onehop_call_options_t& options) {
  onehop_call_options_init(&options, sizeof options);
  options.timeout_ms = make<std::int64_t>();
  options.algorithm = make<int>();
  options.factor = one_of<double>({0, 1, -1e308, std::numeric_limits<double>::quiet_NaN()});
  options.symmetric = make<int>();
}

void Arguments::fill(onehop_tcp_options_t& options) {
  onehop_tcp_options_init(&options, sizeof options);
  options.host = host();
  options.secret = make<const char*>();
  options.timeout_ms = make<std::int64_t>();
  options.port = one_of<std::uint16_t>({0, 1});
}

void Arguments::fill(onehop_intra_node_options_t& options) {
  onehop_intra_node_options_init(&options, sizeof options);
  options.buffer_bytes = make<std::size_t>();
  options.timeout_ms = make<std::int64_t>();
  options.name = make<const char*>();
  options.topology_json = make<const char*>();
  options.device = make<int>();
}

void Arguments::fill(onehop_store_callbacks_t& callbacks) {
  onehop_store_callbacks_init(&callbacks, sizeof callbacks);
  if (random_() % 2 == 0) return;
  callbacks.set = [](void*, const char*, const void*, std::size_t, std::int64_t) -> onehop_status_t {
    return -7;
  };
  callbacks.get = [](void*, const char*, std::int64_t, onehop_reply_t* value) {
    return onehop_reply_set(value, "", SIZE_MAX);
  };
  callbacks.add = [](void*, const char*, std::int64_t, std::int64_t, std::int64_t*) -> onehop_status_t {
    return 0;
  };
  callbacks.compare_set = [](void*, const char*, const void*, std::size_t, const void*, std::size_t,
                             std::int64_t, onehop_reply_t*) -> onehop_status_t { return 0; };
  callbacks.delete_key = [](void*, const char*, std::int64_t, int*) -> onehop_status_t { return INT_MAX; };
  callbacks.description = make<const char*>();
}

}  // namespace misuse

namespace {

using misuse::Arguments;
using misuse::World;
using ::testing::IsEmpty;

/// The statuses and messages that a call may return.
void expect_plain(onehop_status_t status, const std::string& what) {
  EXPECT_STRNE(onehop_status_name(status), "unknown") << what << ": " << status;
  if (status == ONEHOP_OK) return;
  const std::string message = onehop_last_error();
  EXPECT_THAT(message, ::testing::Not(IsEmpty())) << what;
  for (const char c : message)
    EXPECT_TRUE(static_cast<unsigned char>(c) >= 0x20 && c != 0x7f) << what << message;
}

template <class R, class... A>
R with_zeroes(R (*function)(A...)) {
  return function(A{}...);
}

/// A call with invalid arguments, whose results are destroyed.
template <class R, class... A>
R with_odd_arguments(R (*function)(A...), World& world, std::mt19937& random) {
  Arguments arguments(world, random);
  return function(arguments.make<A>()...);
}

struct Function {
  const char* name;
  bool needs_an_argument;  ///< returns a status, which is no success if all arguments are zero
  std::function<onehop_status_t()> zeroes;
  std::function<onehop_status_t(World&, std::mt19937&)>
      odd;  ///< none: it would end, wait for or free something that the test needs
};

#define REFUSES(f)                                                                                          \
  Function {                                                                                                \
#f, true, [] { return with_zeroes(&f); },                                                               \
                                           [](World & world,                                                \
                                              std::mt19937 &                                                \
                                                  random) { return with_odd_arguments(&f, world, random); } \
  }
#define REFUSES_ZEROES(f)                        \
  Function {                                     \
#f, true, [] { return with_zeroes(&f); }, {} \
  }
#define ANSWERS(f)                                                     \
  Function {                                                           \
#f, false,                                                           \
        [] {                                                             \
          (void)with_zeroes(&f);                                         \
          return ONEHOP_OK;                                              \
        },                                                               \
        [](World& world, std::mt19937& random) {                         \
          (void)with_odd_arguments(&f, world, random);                   \
          return ONEHOP_OK;                                              \
        } \
  }
#define ANSWERS_ZEROES(f)     \
  Function {                  \
#f, false,                  \
        [] {                    \
          with_zeroes(&f);      \
          return ONEHOP_OK;     \
        },                      \
        {} \
  }

const Function kFunctions[] = {
    REFUSES(onehop_store_memory),
    REFUSES(onehop_store_file),
    REFUSES(onehop_store_prefix),
    ANSWERS(onehop_tcp_options_init),
    REFUSES(onehop_store_tcp),
    REFUSES(onehop_tcp_server_start),
    ANSWERS(onehop_tcp_server_port),
    ANSWERS_ZEROES(onehop_tcp_server_destroy),
    REFUSES_ZEROES(onehop_reply_set),
    ANSWERS(onehop_store_callbacks_init),
    REFUSES(onehop_store_callbacks),
    ANSWERS_ZEROES(onehop_store_destroy),
    REFUSES(onehop_store_set),
    REFUSES(onehop_store_get),
    REFUSES(onehop_store_wait),
    REFUSES(onehop_store_add),
    REFUSES(onehop_store_compare_set),
    REFUSES(onehop_store_delete),
    REFUSES(onehop_store_describe),
    REFUSES(onehop_store_exchange_create),
    ANSWERS_ZEROES(onehop_store_exchange_destroy),
    REFUSES(onehop_store_exchange_all_gather),
    REFUSES(onehop_store_exchange_broadcast),
    REFUSES(onehop_store_exchange_barrier),
    ANSWERS(onehop_job_info_init),
    REFUSES(onehop_job_from_env),
    REFUSES(onehop_store_from_env),
    ANSWERS(onehop_join_options_init),
    REFUSES(onehop_group_join),
    REFUSES(onehop_group_from_env),
    REFUSES(onehop_group_join_local),
    REFUSES(onehop_groups_run),
    ANSWERS_ZEROES(onehop_group_destroy),
    ANSWERS(onehop_group_rank),
    ANSWERS(onehop_group_size),
    ANSWERS(onehop_group_id),
    ANSWERS(onehop_group_parent_rank),
    ANSWERS(onehop_group_device),
    ANSWERS(onehop_group_name),
    ANSWERS(onehop_group_tuning_file),
    ANSWERS(onehop_group_share_by),
    ANSWERS(onehop_group_timeout),
    REFUSES(onehop_group_usage),
    REFUSES(onehop_group_barrier),
    REFUSES(onehop_group_synchronize),
    REFUSES(onehop_group_all_gather_bytes),
    REFUSES(onehop_group_split),
    REFUSES(onehop_group_shrink),
    REFUSES(onehop_group_check),
    REFUSES(onehop_group_watch),
    REFUSES(onehop_group_unreported_failure),
    ANSWERS_ZEROES(onehop_group_abort),
    ANSWERS_ZEROES(onehop_group_leave),
    REFUSES(onehop_group_allocate),
    REFUSES(onehop_group_register_buffer),
    ANSWERS(onehop_buffer_options_init),
    REFUSES(onehop_group_allocate_with),
    REFUSES(onehop_group_register_buffer_with),
    ANSWERS_ZEROES(onehop_buffer_destroy),
    ANSWERS(onehop_buffer_local),
    ANSWERS(onehop_buffer_bytes),
    ANSWERS(onehop_buffer_rank),
    ANSWERS(onehop_buffer_world_size),
    ANSWERS(onehop_buffer_channels),
    REFUSES(onehop_buffer_peer),
    ANSWERS(onehop_buffer_view_init),
    REFUSES(onehop_buffer_view),
    REFUSES(onehop_buffer_device_view),
    ANSWERS(onehop_device_view_bytes),
    REFUSES(onehop_buffer_sub),
    REFUSES(onehop_buffer_barrier),
    REFUSES(onehop_buffer_put_signal),
    REFUSES(onehop_buffer_wait_signal),
    REFUSES(onehop_buffer_barrier_on_stream),
    REFUSES(onehop_buffer_put_signal_on_stream),
    REFUSES(onehop_buffer_wait_signal_on_stream),
    REFUSES(onehop_pool_create),
    REFUSES(onehop_pool_create_in),
    ANSWERS_ZEROES(onehop_pool_destroy),
    REFUSES(onehop_pool_buffer),
    REFUSES(onehop_pool_offset),
    REFUSES(onehop_pool_allocate),
    REFUSES(onehop_pool_deallocate),
    ANSWERS(onehop_pool_free_bytes),
    REFUSES(onehop_pool_use),
    ANSWERS(onehop_pool_malloc),
    ANSWERS(onehop_pool_free),
    REFUSES_ZEROES(onehop_ipc_channel_connect),
    REFUSES(onehop_group_channel),
    ANSWERS_ZEROES(onehop_ipc_channel_destroy),
    ANSWERS(onehop_ipc_channel_rank),
    ANSWERS(onehop_ipc_channel_size),
    REFUSES(onehop_ipc_channel_send_fd),
    REFUSES(onehop_ipc_channel_recv_fd),
    REFUSES(onehop_ipc_channel_all_gather_fds),
    REFUSES(onehop_ipc_channel_broadcast_fd),
    REFUSES(onehop_ipc_channel_all_gather),
    REFUSES(onehop_ipc_channel_barrier),
    ANSWERS(onehop_algorithm_name),
    REFUSES(onehop_algorithm_parse),
    ANSWERS(onehop_call_options_init),
    ANSWERS(onehop_call_init),
    REFUSES(onehop_run),
    REFUSES(onehop_all_reduce),
    REFUSES(onehop_all_gather),
    REFUSES(onehop_reduce_scatter),
    REFUSES(onehop_broadcast),
    REFUSES(onehop_reduce),
    REFUSES(onehop_all_to_all),
    REFUSES(onehop_all_to_all_v),
    REFUSES(onehop_gather),
    REFUSES(onehop_scatter),
    REFUSES(onehop_send),
    REFUSES(onehop_recv),
    REFUSES(onehop_refuse_call),
    REFUSES(onehop_refuse_registration),
    REFUSES(onehop_refuse_allocation),
    REFUSES(onehop_refuse_split),
    REFUSES_ZEROES(onehop_group_call_begin),
    REFUSES(onehop_group_call_end),
    REFUSES(onehop_group_call_drop),
    REFUSES_ZEROES(onehop_topology_probe_json),
    REFUSES_ZEROES(onehop_host_id),
    REFUSES(onehop_intra_node_comm_is_enabled),
    ANSWERS(onehop_intra_node_options_init),
    REFUSES(onehop_intra_node_comm_create),
    ANSWERS_ZEROES(onehop_intra_node_comm_destroy),
    REFUSES(onehop_intra_node_comm_rendezvous),
    ANSWERS(onehop_intra_node_comm_reason),
    ANSWERS(onehop_intra_node_comm_select),
    REFUSES(onehop_intra_node_comm_all_reduce),
    REFUSES(onehop_intra_node_comm_synchronize),
    REFUSES(onehop_intra_node_comm_usage),
    ANSWERS(onehop_intra_node_comm_total_usage),
    ANSWERS(onehop_status_name),
    ANSWERS(onehop_last_error),
    ANSWERS(onehop_last_error_rank),
    ANSWERS(onehop_version),
    ANSWERS_ZEROES(onehop_free),
    ANSWERS_ZEROES(onehop_set_interrupt_check),
    ANSWERS(onehop_dtype_size),
    ANSWERS(onehop_dtype_name),
    ANSWERS(onehop_op_name),
    REFUSES(onehop_dtype_parse),
    REFUSES(onehop_op_parse),
    ANSWERS(onehop_share_by_name),
    REFUSES(onehop_share_by_parse),
    ANSWERS(onehop_payloads_count),
    ANSWERS(onehop_payloads_data),
    ANSWERS(onehop_payloads_bytes),
    ANSWERS_ZEROES(onehop_payloads_destroy),
    ANSWERS_ZEROES(onehop_device_memory_options_init),
    REFUSES_ZEROES(onehop_device_memory_create),
    REFUSES_ZEROES(onehop_device_memory_import_fd),
    REFUSES_ZEROES(onehop_device_memory_import_fabric),
    ANSWERS_ZEROES(onehop_device_memory_destroy),
    ANSWERS_ZEROES(onehop_device_memory_bytes),
    ANSWERS_ZEROES(onehop_device_memory_data),
    ANSWERS_ZEROES(onehop_device_memory_device),
    REFUSES_ZEROES(onehop_device_memory_export_fd),
    REFUSES_ZEROES(onehop_device_memory_export_fabric),
    REFUSES_ZEROES(onehop_device_memory_grant),
    REFUSES_ZEROES(onehop_device_memory_granted),
    REFUSES(onehop_memory_kind),
    ANSWERS(onehop_memory_kind_name),
    REFUSES_ZEROES(onehop_ipc_export),
    REFUSES_ZEROES(onehop_ipc_mapping_open),
    ANSWERS_ZEROES(onehop_ipc_mapping_data),
    ANSWERS_ZEROES(onehop_ipc_mapping_bytes),
    ANSWERS_ZEROES(onehop_ipc_mapping_destroy),
    REFUSES_ZEROES(onehop_peer_access_of_process),
    REFUSES_ZEROES(onehop_peer_access_create),
    ANSWERS_ZEROES(onehop_peer_access_destroy),
    REFUSES_ZEROES(onehop_peer_access_can_access),
    REFUSES_ZEROES(onehop_peer_access_disable),
    REFUSES_ZEROES(onehop_peer_access_grant_current_pool),
    REFUSES_ZEROES(onehop_peer_access_grant_pool),
    ANSWERS(onehop_pair_attributes_init),
    REFUSES_ZEROES(onehop_peer_access_pair_attributes),
    REFUSES_ZEROES(onehop_peer_access_reset),
    REFUSES_ZEROES(onehop_peer_access_device_count),
    ANSWERS(onehop_peer_test_name),
    ANSWERS(onehop_peer_outcome_name),
    ANSWERS(onehop_peer_check_options_init),
    REFUSES_ZEROES(onehop_peers_check),
    ANSWERS_ZEROES(onehop_peer_report_destroy),
    ANSWERS(onehop_peer_pair_init),
    ANSWERS(onehop_peer_test_result_init),
    ANSWERS(onehop_peer_report_count),
    REFUSES(onehop_peer_report_pair),
    REFUSES(onehop_peer_report_test),
    REFUSES_ZEROES(onehop_peers_verified),
    REFUSES_ZEROES(onehop_topology_probe),
    REFUSES(onehop_topology_from_json),
    REFUSES(onehop_topology_load),
    ANSWERS_ZEROES(onehop_topology_destroy),
    REFUSES(onehop_topology_to_json),
    REFUSES(onehop_topology_to_text),
    REFUSES(onehop_topology_to_svg),
    ANSWERS(onehop_topology_note_count),
    ANSWERS(onehop_topology_note),
    ANSWERS(onehop_host_info_init),
    REFUSES(onehop_topology_host),
    ANSWERS(onehop_numa_node_init),
    REFUSES(onehop_topology_numa_node),
    ANSWERS(onehop_cache_info_init),
    REFUSES(onehop_topology_cache),
    ANSWERS(onehop_device_info_init),
    ANSWERS(onehop_topology_device_count),
    REFUSES(onehop_topology_device),
    ANSWERS(onehop_pair_info_init),
    REFUSES(onehop_topology_pair),
    REFUSES(onehop_topology_connectivity),
    REFUSES(onehop_topology_explain_connectivity),
    ANSWERS(onehop_fabric_state_name),
    ANSWERS(onehop_pci_path_name),
    ANSWERS(onehop_connectivity_name),
    REFUSES_ZEROES(onehop_diagnosis_of_gpus),
    ANSWERS_ZEROES(onehop_diagnosis_destroy),
    ANSWERS_ZEROES(onehop_diagnosis_usable),
    ANSWERS_ZEROES(onehop_diagnosis_summary),
    ANSWERS(onehop_finding_init),
    ANSWERS_ZEROES(onehop_diagnosis_finding_count),
    REFUSES_ZEROES(onehop_diagnosis_finding),
    ANSWERS(onehop_collective_name),
    ANSWERS(onehop_backend_name),
    ANSWERS(onehop_type_class_name),
    ANSWERS(onehop_buffers_name),
    ANSWERS(onehop_links_name),
    REFUSES(onehop_type_class_of),
    ANSWERS(onehop_tuning_has_choice),
    ANSWERS(onehop_tuning_algorithm_name),
    REFUSES(onehop_tuning_from_json),
    REFUSES(onehop_tuning_default),
    REFUSES(onehop_tuning_candidates),
    ANSWERS_ZEROES(onehop_tuning_destroy),
    REFUSES(onehop_tuning_to_json),
    ANSWERS(onehop_tuning_device),
    ANSWERS(onehop_tuning_row_init),
    ANSWERS(onehop_tuning_row_count),
    REFUSES(onehop_tuning_row),
    REFUSES(onehop_tuning_find),
};

TEST(CApiMisuse, LooksAtEveryFunctionOfTheHeaders) {
  std::string headers;
  std::vector<std::filesystem::path> files{ONEHOP_TEST_HEADERS "/c_api.h"};
  for (const auto& entry : std::filesystem::directory_iterator(ONEHOP_TEST_HEADERS "/c"))
    files.push_back(entry.path());
  for (const std::filesystem::path& file : files) {
    std::ifstream in(file);
    headers.append(std::istreambuf_iterator<char>(in), {});
  }
  std::set<std::string> declared;
  constexpr std::string_view kMark = "\nONEHOP_API ";
  for (std::size_t at = 0; (at = headers.find(kMark, at)) != std::string::npos; at += kMark.size()) {
    const std::size_t end = headers.find('(', at);
    const std::size_t begin = headers.rfind("onehop_", end);
    declared.insert(headers.substr(begin, end - begin));
  }
  EXPECT_GT(declared.size(), 200U);
  std::set<std::string> listed;
  for (const Function& each : kFunctions) listed.insert(each.name);
  EXPECT_EQ(listed, declared);
}

TEST(CApiMisuse, ZeroesForAllArgumentsAreRefusedOrHarmless) {
  // Functions that succeed with all arguments zero.
  const std::set<std::string> good{"onehop_group_call_begin", "onehop_group_call_end"};
  for (const Function& each : kFunctions) {
    const onehop_status_t status = each.zeroes();
    expect_plain(status, each.name);
    if (each.needs_an_argument && good.count(each.name) == 0) {
      EXPECT_NE(status, ONEHOP_OK) << each.name;
    }
  }
}

class CApiMisuseInFolder : public ::testing::Test {
 protected:
  CApiMisuseInFolder() {
    folder_ = (std::filesystem::temp_directory_path() / "onehop-misuse-XXXXXX").string();
    EXPECT_NE(::mkdtemp(folder_.data()), nullptr);
    std::filesystem::current_path(folder_);  // relative paths end up here
  }
  ~CApiMisuseInFolder() override {
    std::filesystem::current_path(before_);
    std::filesystem::remove_all(folder_);
  }

  std::filesystem::path before_ = std::filesystem::current_path();
  std::string folder_;
};

TEST_F(CApiMisuseInFolder, OddArgumentsEndInOneLineOrDoNoHarm) {
  const testing::ScopedVariable quiet("ONEHOP_LOG", "off");
  std::mt19937 random(20261127);
  for (const Function& each : kFunctions) {
    if (!each.odd) continue;
    for (int round = 0; round < 3; ++round) {
      World world;  // a call may end the group
      for (int i = 0; i < 10; ++i) {
        const auto begin = std::chrono::steady_clock::now();
        expect_plain(each.odd(world, random), each.name);
        EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds{10})
            << each.name << " " << onehop_last_error();
      }
    }
  }
}

}  // namespace
}  // namespace onehop
